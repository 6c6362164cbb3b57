"""``gdbheap calls FILE``: what the calls of a log add up to."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import LOG
from gdbheap.commands.surface.options import Writing, number_or_all, process_of_log, valued
from gdbheap.commands.surface.progress import shown
from gdbheap.files import check_writable, write_text
from gdbheap.report.words.call_stats import render

if TYPE_CHECKING:
    from gdbheap.tracing.arena_growths import Growth
    from gdbheap.tracing.stats import CallStats

__all__ = ["COMMAND"]


@dataclass
class Options(Writing):
    """The options of gdbheap calls."""

    process: int | None = process_of_log()
    svg: str | None = valued(
        "--svg", "FILE", "write a scalable picture (SVG) to FILE: blocks and bytes in use over calls and over time",
        None, str,
    )  # fmt: skip
    growth: int | None = valued(
        "--growth", "N", "replay the calls too, and say which of them made an arena of malloc's larger; before the N"
        " largest growths (all: each) look for the largest hole", None, number_or_all("a number of growths"),
    )  # fmt: skip


def _answer(path: str, options: Options) -> CallStats:
    # Imported where they are needed: a command's start is mostly imports.
    from gdbheap.report.formats.call_curves import picture
    from gdbheap.tracing.stats import call_stats

    if options.svg is not None:
        options.svg = os.path.expanduser(options.svg)
        check_writable(options.svg)
    with shown("reading the calls") as progress:
        answer = call_stats(os.path.expanduser(path), options.process, progress)
    if options.growth is not None:
        answer = replace(answer, growth=_growth(os.path.expanduser(path), answer.pid, options.growth or None))
    if options.svg is not None:
        write_text(options.svg, picture(answer), options.mode)
    return answer


def _growth(path: str, pid: int, count: int | None) -> list[Growth]:
    from gdbheap.tracing.arena_growths import growths

    with shown("looking at growths") as progress:
        return growths(path, pid, count, progress)


def _render(shown: Shown[CallStats, Options]) -> str:
    return render(shown.answer, shown.whole, shown.style, shown.options.svg)


COMMAND = Command(
    noun="calls",
    question="What do recorded calls add up to? In use over time, the peak, sizes, lifetimes",
    text="""FILE is a log that gdbheap trace wrote. The calls of one process are analysed, in their order. Bytes are
    those that were asked for, usable ones those that malloc_usable_size() gives.

    Cumulated bytes: the upper bound counts the size of each call that gave a block; the lower bound counts a realloc
    for what it adds to its block. A lifetime is the number of calls, of all threads, between the call that gave a
    block and the one that released it; realloc continues a life, wherever it moves the block to. A block is temporary
    if the next call of the thread that allocated it released it. (heaptrack asks for the process's next call instead,
    and sees a realloc as a release and an allocation.) Half of the released blocks lived no longer than the median,
    nine tenths no longer than the 90 %; both are at most 1/128 too high, and exact below 256. Seconds are known to
    within the distance of two times in the log, which has one for every 256 events.

    The curves have at most 2,048 points each: the last value of a stretch of calls, and the most bytes in it, so that
    the peak is seen. Sizes are summed up in steps of 16 bytes below 32 KiB and of 32 KiB below 64 MiB. Memory is taken
    for the blocks in use and not for the calls. docs/calls.md says more.

    --growth replays the calls as the program made them (docs/replay.md) and lists those for which an arena had to
    become larger: by how much, and by how much the largest free chunk that there was missed what was asked for. The
    main arena is larger where the break rises, another one where a heap of it is larger than it ever was.""",
    example="gdbheap calls --svg=live.svg",
    needs=LOG,
    options=Options,
    answer=_answer,
    render=_render,
    rows="sizes",
    listed="sizes",
    sorts={
        "calls": lambda row: row.calls,
        "bytes": lambda row: row.bytes,
        "live": lambda row: row.live,
        "live_bytes": lambda row: row.live_bytes,
        "size": lambda row: -row.start,
    },
    top=10,
    writes=True,
)
