"""``gdbheap stacks``: show the call stacks that allocated the memory which a recorded program had in use."""

from __future__ import annotations

import os

from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import FILES
from gdbheap.commands.surface.options import Pictured, process_of_log, valued, whole_number
from gdbheap.commands.surface.pictures import draw
from gdbheap.dataclass import dataclass
from gdbheap.errors import UsageError
from gdbheap.report.formats.flame import ALLOCATED
from gdbheap.report.formats.pprof import pprof
from gdbheap.report.words.call_stacks import render
from gdbheap.tracing.call_stacks import CallStacks, Moment, call_stacks

__all__ = ["COMMAND"]

PEAK, END = "peak", "end"
BETWEEN = ".."


def _moment(text: str) -> Moment:
    """Return the moment that a word of --at or --diff names: after a call with this number, at the "peak", or at the
    "end". Calls are numbered from 1. Raises ValueError for any other word.
    """
    if text in (PEAK, END):
        return text
    number = whole_number(text)
    if not number:
        raise ValueError(f"{text!r} is not a call: calls are numbered from 1")
    return number


def _two_moments(text: str) -> tuple[Moment, Moment]:
    """Return the two moments that the value of --diff names, such as "100..peak". Raises ValueError if ".." is missing
    or a moment is invalid.
    """
    first, between, second = text.partition(BETWEEN)
    if not between:
        raise ValueError(f"{text!r} is not a pair of calls A..B, such as 100..peak")
    return _moment(first), _moment(second)


@dataclass
class Options(Pictured):
    """The options of ``gdbheap stacks``: the call after which blocks in use are shown, or two calls to compare, and the
    process.

    ``at``: None means the peak.
    """

    at: Moment | None = valued(
        "--at", "CALL", "show blocks in use after CALL: a number, peak or end [default: peak]", None, _moment
    )
    diff: tuple[Moment, Moment] | None = valued(
        "--diff", "A..B", "compare blocks in use after call A and after call B", None, _two_moments
    )
    process: int | None = process_of_log()


def _answer(files: tuple[str, ...], options: Options) -> CallStacks:
    if len(files) > 1:
        raise UsageError("gdbheap stacks: give only one file")
    if options.at is not None and options.diff is not None:
        raise UsageError("gdbheap stacks: --at and --diff exclude each other")
    since, at = options.diff or (None, options.at or PEAK)
    found = call_stacks(os.path.expanduser(files[0]), options.process, at, since)
    # A picture can show only stacks whose memory grew.
    rows = [(stack.frames, stack.bytes, stack.blocks) for stack in found.rows if stack.bytes > 0]
    draw(options, rows, _title(found), ALLOCATED, lambda: pprof(found.rows, found.began, found.mean))
    return found


def _title(found: CallStacks) -> str:
    if found.since_call is not None:
        return f"Memory that process {found.pid} got from call {found.since_call:,} to call {found.call:,}"
    return f"Memory that process {found.pid} had in use after call {found.call:,}"


def _render(shown: Shown[CallStacks, Options]) -> str:
    return render(shown.answer, shown.left_out, shown.style)


COMMAND = Command(
    noun="stacks",
    summary="Show which stacks allocated the memory that a program used",
    text="""FILE is a trace that 'gdbheap trace --stacks' wrote. The figures count the blocks that were in use at the
    peak, unless --at or --diff is given. If stacks were sampled, the figures are estimates.""",
    example="gdbheap stacks --svg=peak.svg",
    details="""A stack contains frames of Python and of C, in the order of the calls. If a block was resized, the stack
    of its last realloc counts. A table of sites comes first. The site of a stack is its innermost line of Python, or
    its innermost function if it has no Python. The stacks with the most bytes follow the table. `--format` and the
    options for its formats draw all stacks. Folded stacks take at most 64 MiB; the line `[other stacks]` has the sum of
    all further stacks. A flame graph takes at most 1 MiB.

    If stacks were sampled, the figures are estimates. The trace has a stack for a block of s bytes with the probability
    p = 1 - exp(-s/mean); each block with a stack counts 1/p times. In this formula, "mean" is the average number of
    bytes between two samples. The mean error of a sum is at most sqrt(sum × mean). If a stack was recorded every 512
    KiB, a sum of 100 MiB has an error of 7 MiB. `--diff` subtracts the figures after call A from the figures after call
    B. Pictures do not show stacks that have fewer bytes after call B than after call A.

    gdbheap reads the names of functions from files on this machine that have the recorded build-ids. A function without
    a symbol is shown as a file and an address. A Python frame is shown as a function with its file and line. gdbheap
    records Python frames in CPython 3.7 to 3.14 with a GIL. In stacks of other interpreters, all frames are frames of
    C.""",
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
