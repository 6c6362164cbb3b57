"""Measure the work of a function by counting instead of by time."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, NamedTuple

# A process of its own: the kernel counts the memory of the one that starts a command in the peak of the command.
RUN = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
print(done.stdout, end="")
"""


class Ended(NamedTuple):
    """How a command ended: its exit status, what it printed, and its peak RSS in bytes."""

    status: int
    said: str
    peak: int


def steps(action: Callable[[], object]) -> int:
    """Return how many Python instructions an action executes, which is the same on every machine."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


def peak(action: Callable[[], object]) -> int:
    """Return the peak memory of an action, in bytes."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def ended(command: Sequence[object]) -> Ended:
    """Run a command to its end."""
    run = [sys.executable, "-I", "-c", RUN, *map(str, command)]
    figures, _, said = subprocess.run(run, capture_output=True, text=True, check=True).stdout.partition("\n")
    status, kibibytes = map(int, figures.split())
    return Ended(status, said, kibibytes << 10)
