"""gdbheap's memory is in proportion to the target, also if one chain, one block or one root is very large."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.programs import GDBHEAP, SOURCES, c_program, running
from support.work import ended

from gdbheap import heap as heaps
from gdbheap.heap import Heap
from gdbheap.targets.process import stopped
from gdbheap.targets.ranges import Ranges
from gdbheap.targets.stack_mappings import Stack, live_parts
from gdbheap.targets.target import Target

# Memory of gdbheap and its libraries, and for each byte of the target: up to 2 were observed, and 5 for an export.
# Without a limit it was 12 to 34.
BASE, TIMES, OF_EXPORT = 96 << 20, 4, 8

SHAPES = [
    (("one_chain", 900_000, 200, 20_000), ["PID"]),
    (("one_chain", 900_000, 3000, 24), ["pins", "PID"]),
    (("shared_block", "table", 2 << 20, 1), ["PID"]),
    (("shared_block", "circle", 0, 1500), ["PID"]),
    (("static_words", 4 << 20), ["export", "PID", "-o", "OUT"]),
    (("nested_dicts.py", 40_000), ["retained", "PID"]),
]


def started(folder: Path, name: str, *arguments: object) -> list[str]:
    """Return the command that runs a program of Python, C or C++."""
    if name.endswith(".py"):
        return [sys.executable, str(SOURCES / name), *map(str, arguments)]
    source = SOURCES / f"{name}.cc"
    if not source.exists():
        return c_program(name, *arguments)
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    subprocess.run([compiler, "-O1", str(source), "-o", str(folder / name)], check=True)
    return [str(folder / name), *map(str, arguments)]


@pytest.mark.parametrize(("program", "words"), SHAPES, ids=lambda one: " ".join(map(str, one)))
def test_memory(program: tuple[str, ...], words: list[str], tmp_path: Path) -> None:
    """Check that the peak of gdbheap's RSS is at most a few times that of the target."""
    with running(started(tmp_path, *program), tmp_path) as target:
        named = {"PID": str(target.pid), "OUT": str(tmp_path / "out")}
        status, said, peak = ended([GDBHEAP, *(named.get(word, word) for word in words)])
        rss = next(
            int(line.split()[1]) << 10
            for line in Path(f"/proc/{target.pid}/status").read_text().splitlines()
            if line.startswith("VmRSS:")
        )
    most = BASE + (OF_EXPORT if words[0] == "export" else TIMES) * rss
    assert status == 0 and peak < most, (status, peak, rss, said)


def test_steps_for_each_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that drawing the graph does not sort the threads once for each of them."""
    sorted_threads = 0

    def counted(target: Target, stacks: Sequence[Stack]) -> Ranges:
        nonlocal sorted_threads
        sorted_threads += len(target.threads)
        return live_parts(target, stacks)

    monkeypatch.setattr(heaps, "live_parts", counted)
    with running(c_program("caches", 1, 60, tmp_path / "table"), tmp_path) as target:
        with stopped(target.pid, None, copies=True) as process:
            count = len(process.threads)
            assert count >= 60 and Heap(process).block_references is not None
    assert sorted_threads == count
