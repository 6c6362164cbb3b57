"""What gdbheap takes is in proportion to the target, also where one chain, one block or one root is very large."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.programs import GDBHEAP, SOURCES, c_program, running

# A process of its own, so that the peak is not that of the tests.
MEASURE = """
import os, subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
_pid, status, usage = os.wait4(child.pid, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_maxrss)
"""
# gdbheap and its libraries, and what it takes for each byte of the target: up to 2 were observed, and 5 for an export.
# Without a limit it was 12 to 34.
BASE, TIMES, OF_EXPORT = 96 << 20, 4, 8

SHAPES = [
    (("one_chain", 900_000, 200, 20_000), ["PID"]),
    (("one_chain", 900_000, 3000, 24), ["pins", "PID"]),
    (("shared_block", "table", 2 << 20, 1), ["PID"]),
    (("shared_block", "circle", 0, 1500), ["PID"]),
    (("static_words", 4 << 20), ["export", "PID", "-o", "OUT"]),
]


def started(folder: Path, name: str, *arguments: object) -> list[str]:
    """Return the command that runs a program of C or C++."""
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
    """The peak of gdbheap's RSS is within a few times that of the target."""
    with running(started(tmp_path, *program), tmp_path) as target:
        named = {"PID": str(target.pid), "OUT": str(tmp_path / "out")}
        command = [sys.executable, "-c", MEASURE, str(GDBHEAP), *(named.get(word, word) for word in words)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        status, peak = map(int, done.stdout.split())
        rss = next(
            int(line.split()[1]) << 10
            for line in Path(f"/proc/{target.pid}/status").read_text().splitlines()
            if line.startswith("VmRSS:")
        )
    most = BASE + (OF_EXPORT if words[0] == "export" else TIMES) * rss
    assert status == 0 and peak << 10 < most, (status, peak, rss >> 10)
