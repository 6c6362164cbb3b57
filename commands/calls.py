"""``gdbheap calls FILE``: summarize the allocator calls in a trace."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import LOG
from gdbheap.commands.surface.options import Writing, number_or_all, process_of_log, valued
from gdbheap.commands.surface.progress import shown
from gdbheap.dataclass import dataclass
from gdbheap.files import check_writable, write_text
from gdbheap.report.words.calls import render

if TYPE_CHECKING:
    from gdbheap.tracing.arena_growths import ArenaGrowth
    from gdbheap.tracing.call_stats import CallStats

__all__ = ["COMMAND"]


@dataclass
class Options(Writing):
    """The options of ``gdbheap calls``: the process, the picture to write, and how many arena growths to examine.

    ``growth``: None if the calls are not replayed to find arena growths.
    """

    process: int | None = process_of_log()
    svg: str | None = valued("--svg", "FILE", "write a picture (SVG) of blocks and bytes in use", None, str)
    growth: int | None = valued(
        "--growth",
        "N",
        "replay the trace, list arena growths, examine the N largest",
        None,
        number_or_all("a number of arena growths"),
    )


def _answer(path: str, options: Options) -> CallStats:
    # Imported on use: imports take most of a command's start-up time.
    from gdbheap.report.formats.call_curves import picture
    from gdbheap.tracing.call_stats import call_stats

    if options.svg is not None:
        options.svg = os.path.expanduser(options.svg)
        check_writable(options.svg)
    with shown("reading the calls") as progress:
        answer = call_stats(os.path.expanduser(path), options.process, progress)
    if options.growth is not None:
        answer = replace(answer, arena_growths=_growth(os.path.expanduser(path), answer.pid, options.growth or None))
    if options.svg is not None:
        write_text(options.svg, picture(answer), options.mode)
    return answer


def _growth(path: str, pid: int, count: int | None) -> list[ArenaGrowth]:
    from gdbheap.tracing.arena_growths import growths

    with shown("examining arena growths") as progress:
        return growths(path, pid, count, progress)


def _render(shown: Shown[CallStats, Options]) -> str:
    return render(shown.answer, shown.whole, shown.style, shown.options.svg)


COMMAND = Command(
    noun="calls",
    summary="Summarize a trace: bytes in use over time, peak, lifetimes",
    text="""FILE is a trace that 'gdbheap trace' wrote. All bytes are bytes that the program requested. The lifetime of
    a block is the number of calls from its allocation to its release.""",
    example="gdbheap calls --svg=live.svg",
    details="""gdbheap analyses the calls of one process, in their order. Usable bytes are the block sizes that
    malloc_usable_size() returns.

    Cumulated bytes are all bytes that were ever allocated, given as two bounds. The upper bound counts the size of each
    call that returned a block. The lower bound counts only the bytes that a realloc adds to its block. A lifetime
    counts the calls of all threads. A realloc does not end a lifetime, even if it moves the block. A block is temporary
    if the thread that allocated it releases it with its very next call. heaptrack looks at the next call of the whole
    process instead. heaptrack treats a realloc as a release and an allocation. The figure "half" is the lifetime that
    half of the released blocks did not exceed. The figure "90 %" is the lifetime that nine tenths did not exceed. Both
    figures are at most 1/128 too high, and exact below 256. Lifetimes in seconds are less exact, because the trace has
    a timestamp only for every 256 events.

    A curve has at most 2,048 points, and each point stands for several successive calls. The point has the value after
    the last of these calls, and the most bytes in use during them. The peak is therefore always visible. Sizes are
    grouped in steps of 16 bytes below 32 KiB, and in steps of 32 KiB below 64 MiB. gdbheap needs memory for each block
    in use, but not for each call. docs/calls.md says more.

    `--growth` replays the calls as the program made them (docs/replay.md). `--growth` lists the calls that made an
    arena grow. Each row shows by how many bytes the arena grew. One column shows by how many bytes the largest free
    chunk was too small. gdbheap looks for that chunk only before each of the N largest growths; N may be "all". The
    main arena grows when the program break rises. Another arena grows when one of its heaps becomes larger than ever
    before.""",
    needs=LOG,
    options=Options,
    answer=_answer,
    render=_render,
    rows="sizes",
    listed="sizes",
    sorts={
        "calls": lambda row: row.calls,
        "bytes": lambda row: row.bytes,
        "live": lambda row: row.live_blocks,
        "live_bytes": lambda row: row.live_bytes,
        "size": lambda row: -row.start,
    },
    top=10,
    writes=True,
)
