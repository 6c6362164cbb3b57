"""The threads' general registers, against the kernel's report of the system calls in which they wait."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.library import heap_of
from support.programs import FORMS, c_program, running

THREADS = 5


def arguments(pid: int) -> dict[int, set[int]]:
    """Return {tid: the arguments of its system call}, which are in registers; the first two words are its number."""
    calls = {int(task.name): (task / "syscall").read_text().split() for task in Path(f"/proc/{pid}/task").iterdir()}
    return {tid: {int(word, 16) for word in words[1:7]} for tid, words in calls.items()}


@pytest.mark.parametrize("form", FORMS)
def test_registers_are_the_kernels(form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that each thread's registers have the arguments of the call in which it waits."""
    command = c_program("recorder", THREADS, rng.getrandbits(30), 1000, 100, 5000, 0, tmp_path / "table")
    with running(command, tmp_path) as target:
        truth = arguments(target.pid)
        with heap_of(target.as_form(form)) as heap:
            found = {thread.tid: set(thread.registers) for thread in heap.target.threads}
    assert truth.keys() == found.keys() and any(truth.values())
    assert all(words <= found[tid] for tid, words in truth.items())
