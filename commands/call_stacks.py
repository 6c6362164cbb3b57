"""``gdbheap stacks``: show which stacks allocated what a recorded program had in use."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import FILES
from gdbheap.commands.surface.options import Pictured, process_of_log, valued, whole_number
from gdbheap.commands.surface.pictures import draw
from gdbheap.errors import UsageError
from gdbheap.report.formats.flame import ALLOCATED
from gdbheap.report.formats.pprof import pprof
from gdbheap.report.words.call_stacks import render

if TYPE_CHECKING:
    from gdbheap.tracing.call_stacks import CallStacks, Moment

__all__ = ["COMMAND"]

PEAK, END = "peak", "end"
BETWEEN = ".."


def _moment(text: str) -> Moment:
    """Parse a moment: the number of a call, "peak" or "end". Raises ValueError."""
    if text in (PEAK, END):
        return text
    number = whole_number(text)
    if not number:
        raise ValueError(f"{text!r} is no call: they are numbered from 1")
    return number


def _two_moments(text: str) -> tuple[Moment, Moment]:
    """Parse two moments, written ``A..B``. Raises ValueError."""
    first, between, second = text.partition(BETWEEN)
    if not between:
        raise ValueError(f"{text!r} is not A..B")
    return _moment(first), _moment(second)


@dataclass
class Options(Pictured):
    """The options of gdbheap stacks."""

    at: Moment | None = valued("--at", "CALL", "show this call: its number, peak or end [default: peak]", None, _moment)
    diff: tuple[Moment, Moment] | None = valued(
        "--diff", "A..B", "compare two calls: numbers, peak or end", None, _two_moments
    )
    process: int | None = process_of_log()
    pprof: str | None = valued("--pprof", "FILE", "write a profile for go tool pprof", None, str)


def _answer(files: tuple[str, ...], options: Options) -> CallStacks:
    # Imported on use: imports take most of a command's start-up time.
    from gdbheap.tracing.call_stacks import call_stacks

    if len(files) > 1:
        raise UsageError("gdbheap stacks: one file at a time")
    if options.at is not None and options.diff is not None:
        raise UsageError("gdbheap stacks: --at is one call, --diff two")
    since, at = options.diff or (None, options.at or PEAK)
    found = call_stacks(os.path.expanduser(files[0]), options.process, at, since)
    # A picture cannot show what became less.
    rows = [(tuple(stack.frames), stack.bytes, stack.blocks) for stack in found.rows if stack.bytes > 0]
    draw(options, rows, _title(found), ALLOCATED, lambda: pprof(found.rows, found.began, found.mean))
    return found


def _title(found: CallStacks) -> str:
    if found.since_call is not None:
        return f"What process {found.pid} had more of after call {found.call:,} than after call {found.since_call:,}"
    return f"What process {found.pid} had in use after call {found.call:,}"


def _render(shown: Shown[CallStacks, Options]) -> str:
    return render(shown.answer, shown.left_out, shown.style)


COMMAND = Command(
    noun="stacks",
    summary="Show which stacks allocated what a program had in use",
    text="""FILE is a trace of 'gdbheap trace --stacks'. The blocks are those in use at the peak, unless --at or
    --diff is given. Sampled stacks give estimates.""",
    example="gdbheap stacks --svg=peak.svg",
    details="""A stack has the frames of Python and of C, in their order. A block belongs to the realloc that last gave
    it its size. Sites come first: the innermost line of Python of each stack, or its innermost function. The stacks
    with the most bytes follow. `--format`, `--folded`, `--svg`, `--speedscope` and `--pprof` draw all stacks.

    If stacks were sampled, the figures are estimates. A block of s bytes has a stack with probability p = 1 -
    exp(-s/mean), and counts 1/p times. The mean error of a sum is at most the square root of the sum times the mean. A
    sum of 100 MiB with a stack every 512 KiB has an error of 7 MiB. `--diff` subtracts the figures after the first call
    from those after the second. Pictures leave out stacks that became smaller.

    Names of functions come from files on this machine that have the recorded build-ids. Without symbols, functions have
    a file and an address. A Python frame is a function with file and line, of CPython 3.7 to 3.14 with a GIL. Other
    interpreters have only frames of C.""",
    needs=FILES,
    options=Options,
    answer=_answer,
    render=_render,
    rows="rows",
    sorts={"bytes": lambda stack: stack.bytes, "allocated": lambda stack: stack.allocated_bytes},
    top=10,
    listed="stacks",
    writes=True,
)
