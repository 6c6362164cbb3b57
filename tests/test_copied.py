"""The memory of a process is copied during a stop, and every answer reads the copy while the process runs."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support import programs
from support.library import warnings_of
from support.nouns import GRAPHS, PLAIN

from gdbheap.answers.pyobjects import pyobjects
from gdbheap.commands.surface.parser import parse
from gdbheap.commands.surface.registry import COMMANDS
from gdbheap.errors import GdbheapError
from gdbheap.first_page.ledger import Ledger
from gdbheap.heap import Heap
from gdbheap.host import headroom
from gdbheap.targets.process import SPARE_BYTES, stopped

MIB = 1 << 20
# Numbers without addresses among them, and room for all other memory: this file's Python has about 20 MiB.
NUMBERS, ENOUGH = 64 * MIB, 48 * MIB
READS = re.compile(r"(\d+)(?: +\d+)? +(?:process_vm_readv|pread64)$", re.MULTILINE)
# The other commands write files, or take long.
ANSWERED = sorted(set(PLAIN + GRAPHS) - {"snapshot", "report", "refs", "why"})


@contextmanager
def parsers(count: int, numbers: int = 0) -> Iterator[subprocess.Popen[str]]:
    """Yield tests/programs/parsers.py once it is ready."""
    command = programs.python_program("stripped", "parsers", count, numbers)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert int(process.stdout.readline()) == process.pid
            yield process
        finally:
            process.kill()


def without_group(answer: Any) -> Any:
    """Return the answer without the figures of the control group, which are read when the answer is printed."""
    return replace(answer, container=None) if isinstance(answer, Ledger) else answer


@pytest.mark.cases(4)
@pytest.mark.parametrize("noun", ANSWERED)
def test_a_process_that_has_ended_is_answered(noun: str) -> None:
    """Check that answers are complete at the release of the process: they are the same once it has ended."""
    command = COMMANDS[noun]
    options = parse(command, [])[0]
    with parsers(3) as process:
        with stopped(process.pid) as standing:
            before = command.answer(Heap(standing), options)
            assert standing.stopped_seconds is None
        with stopped(process.pid, copies=True) as copied:
            assert copied.is_copied and programs.tracer(process.pid) == 0
            process.kill()
            process.wait()
            heap = Heap(copied)
            assert without_group(command.answer(heap, options)) == without_group(before)
            assert not heap.partial and not heap.damage and copied.cut_short is None


@pytest.mark.parametrize("noun", ["", "pyobjects", "chunks", "pins", "check"])
def test_structures_are_not_followed_by_system_calls(noun: str, tmp_path: Path) -> None:
    """Check that reads are in large pieces: a few system calls for each mapping and one for each MiB."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("no strace")
    counts = tmp_path / "counts"
    with parsers(40) as process:
        command = [strace, "-f", "-c", "-o", str(counts), "-e", "trace=process_vm_readv,pread64", str(programs.GDBHEAP)]
        done = subprocess.run([*command, noun or "heap", str(process.pid)], capture_output=True, check=False)
        if b"ptrace" in done.stderr:
            pytest.skip("strace may not trace")
        mappings = len(Path(f"/proc/{process.pid}/maps").read_text().splitlines())
        size = programs.status(process.pid, "VmRSS") >> 10
    found = [int(count) for count in READS.findall(counts.read_text())]
    assert done.returncode == 0 and found and sum(found) < 10 * mappings + 2 * size, counts.read_text()


def test_a_copy_without_what_holds_no_pointers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that blocks of numbers are not copied if memory is short, that all objects are found, and that a warning
    mentions the missing part."""
    with parsers(3, NUMBERS) as process:
        with stopped(process.pid) as standing:
            heap = Heap(standing)
            before = pyobjects(heap), heap.damage
        monkeypatch.setattr(headroom, "room_for_copy", lambda: ENOUGH)
        with stopped(process.pid, copies=True) as copied:
            assert copied.is_copied and programs.tracer(process.pid) == 0
            heap = Heap(copied)
            assert (pyobjects(heap), heap.damage) == before
            assert copied.space.left_out > NUMBERS * 0.9
            assert any("--clone" in warning for warning in warnings_of(heap))


@pytest.mark.parametrize("left", [SPARE_BYTES - 1, SPARE_BYTES], ids=["no room", "too little"])
def test_no_room_at_all(left: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the process stays stopped if the pointers do not fit either, and that the answer names a remedy."""
    monkeypatch.setattr(headroom, "room_for_copy", lambda: left)
    with parsers(500) as process, stopped(process.pid, copies=True) as standing:
        assert not standing.is_copied and programs.tracer(process.pid) != 0
        assert any("--clone" in warning and f"{left:,}" in warning for warning in standing.warnings)
        assert pyobjects(Heap(standing)).total.count > 1000


def test_a_room_takes_half_of_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the copy may use half of the least memory that the machine and all control groups above leave."""
    groups = [(1000 * MIB, 100 * MIB), (600 * MIB, 500 * MIB)]
    monkeypatch.setattr(headroom, "_memory_limits", lambda process: iter(groups))
    monkeypatch.setattr(headroom, "_meminfo", lambda: {"MemAvailable": 4000 * MIB})
    monkeypatch.setattr(headroom, "_address_space_left", lambda: headroom.UNLIMITED)
    assert headroom.room_for_copy() == 50 * MIB


def test_names_after_the_limit() -> None:
    """Check that all types get names if the process is released early, and that the answer mentions the release."""
    with parsers(3, 4 * NUMBERS) as process:
        for limit in (0.004 * 1.2**number for number in range(60)):
            with suppress(GdbheapError), stopped(process.pid, limit, copies=True) as copied:
                if not copied.is_copied or copied.cut_short is None:
                    continue
                heap = Heap(copied)
                types = [row.type for row in pyobjects(heap).rows]
                assert types and not [name for name in types if name.startswith("type at")]
                assert heap.partial and "--max-stop" in warnings_of(heap)[-1] and heap.damage == []
                return
    pytest.skip("the time limit was never reached while the memory was copied")
