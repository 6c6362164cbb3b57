"""Memory that a process shares, after the process was resumed: small mappings were copied, large ones are read then."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator

import pytest
from support import kernel, programs
from support.nouns import GRAPHS

from gdbheap.errors import Fault
from gdbheap.targets.process import MAX_SHARED_COPY, stopped

PAGE, LARGE = 4096, MAX_SHARED_COPY + 4096


@contextlib.contextmanager
def neighbours(size: int) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """Yield a process, and the addresses of its shared memory next to its private mappings."""
    command = programs.python_program("stripped", "neighbours", size)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            places = json.loads(process.stdout.readline())
            assert places, "nothing is shared"
            yield process, places
        finally:
            process.kill()


@pytest.mark.parametrize("size", [PAGE, LARGE], ids=["small", "large"])
def test_answers_are_whole(size: int) -> None:
    """Check that a read from private into shared memory leaves nothing missing."""
    with neighbours(size) as (process, _):
        for noun in GRAPHS:
            assert not programs.ask(noun, str(process.pid))["warnings"], noun


@pytest.mark.parametrize("size", [PAGE, LARGE], ids=["small", "large"])
def test_after_the_stop(size: int) -> None:
    """Check that each word is the program's, also the last ones, while the process runs."""
    with neighbours(size) as (process, places), stopped(process.pid, copies=True) as target:
        assert target.is_copied and programs.tracer(process.pid) == 0
        found = {at: (target.space.word(at), target.space.word(at + size - 8)) for at in places}
        assert found == {at: (at, at + 1) for at in places}
        assert target.cut_short is None


@pytest.mark.parametrize("size", [16 * PAGE, LARGE], ids=["small", "large"])
def test_nothing_comes_into_memory(size: int) -> None:
    """Check that only resident shared memory is read: reading another page would bring it into memory."""
    with neighbours(size) as (process, places):
        before = [kernel.resident_inside(process.pid, at, size) for at in places]
        assert before == [2 * PAGE] * len(places)
        for noun in ("", *GRAPHS):
            programs.ask(noun, str(process.pid))
            assert [kernel.resident_inside(process.pid, at, size) for at in places] == before, noun


def test_a_process_that_ends() -> None:
    """Check that private memory can still be read, that large shared memory cannot, and that the answer mentions the
    missing part."""
    with neighbours(LARGE) as (process, places), stopped(process.pid, copies=True) as target:
        process.kill()
        process.wait()
        private = next(mapping for mapping in target.mappings if mapping.private and mapping.writable)
        assert len(target.space.read(private.start, PAGE)) == PAGE and target.cut_short is None
        with pytest.raises(Fault):
            target.space.word(places[-1])
        assert target.cut_short is not None and "ended" in target.cut_short
