"""The page of a trace: its sums, and the stacks of the memory in use at the peak."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gdbheap.report.formats.call_curves import curves_part, curves_style
from gdbheap.report.formats.flame import ALLOCATED, COLOURS, flame_part, flame_style
from gdbheap.report.formats.weighted import NO_STACK, label
from gdbheap.report.page.html import COUNT, SIZE, Column, Section, paragraph, refused, safe, table
from gdbheap.report.page.skeleton import DARK, LIGHT, fitted, page
from gdbheap.report.page.target import moment
from gdbheap.report.text.numbers import counted
from gdbheap.report.text.style import Style
from gdbheap.report.words.calls import told as told_of_calls
from gdbheap.text import file_name, printable_record

if TYPE_CHECKING:
    from gdbheap.tracing.call_stacks import CallStacks
    from gdbheap.tracing.call_stats import CallStats

__all__ = ["calls_page"]

GROUNDS = (LIGHT["ground"], DARK["ground"])
KINDS = (
    "malloc",
    "calloc",
    "realloc",
    "memalign",
    "free",
    "mmap",
    "munmap",
    "mremap",
    "mallopt",
    "malloc_trim",
    "fork",
)
CALLS = (Column("kind", "call"), Column("calls", "calls", COUNT))
MOMENTS = (
    Column("moment", "in use"), Column("call", "after call", COUNT), Column("seconds", "seconds"),
    Column("count", "blocks", COUNT), Column("bytes", "requested", SIZE), Column("usable", "usable", SIZE),
)  # fmt: skip
SIZES = (
    Column("from", "size", COUNT), Column("to", "below", COUNT), Column("calls", "calls", COUNT),
    Column("bytes", "bytes", SIZE), Column("live", "in use at the end", COUNT), Column("live_bytes", "bytes", SIZE),
)  # fmt: skip
LIVES = (Column("from", "calls", COUNT), Column("to", "below", COUNT), Column("blocks", "blocks", COUNT))
SITES = (
    Column("frame", "allocated by"), Column("file", "file"), Column("bytes", "in use", SIZE),
    Column("blocks", "blocks", COUNT), Column("allocated_bytes", "allocated", SIZE),
    Column("allocated_blocks", "calls", COUNT),
)  # fmt: skip


def calls_page(found: CallStats, stacks: CallStacks | None, why: str) -> bytes:
    """Return the HTML page of a trace, encoded.

    ``stacks``: the stacks that allocated the memory in use at the peak; None if the trace has no stacks, for the reason
    ``why``.
    """
    found = printable_record(found)
    program = file_name(found.exe) or "an unknown program"
    title = f"Calls of process {found.pid} ({program})"
    began = f"The recording began at {moment(stacks.began / 1e9)}. " if stacks is not None else ""
    said = (
        f"{began}{counted(found.calls.all, 'call')} in {counted(found.threads, 'thread')} and {found.seconds:,.2f} s."
    )
    style, peak = Style(), found.peak
    lead = (
        f"At the peak, after call {peak.call:,}, {style.bytes(peak.bytes)} in {counted(peak.count, 'block')} were in "
        "use; "
        f"at the end, {style.bytes(found.live.bytes)} in {counted(found.live.count, 'block')}."
    )
    first = f'<p class="lead">{safe(lead, 1000)}</p>\n{"".join(map(paragraph, told_of_calls(found, style)))}'
    colours = flame_style(COLOURS, GROUNDS) + curves_style(GROUNDS)
    return fitted(lambda most: page(title, first, list(_sections(found, stacks, why, most)), said, colours))


def _sections(found: CallStats, stacks: CallStacks | None, why: str, most: int) -> Iterator[Section]:
    yield _stacks(stacks, most) if stacks is not None else refused("stacks", "What allocated the memory", why)
    yield Section(
        "curves", "Memory in use, over calls and over time", f"<figure>{curves_part(found)}</figure>\n{_moments(found)}"
    )
    kinds = [(kind, getattr(found.calls, kind)) for kind in KINDS if getattr(found.calls, kind)]
    yield Section("kinds", "Calls", table("kinds-table", "Calls by kind", CALLS, kinds, most))
    by_bytes = sorted(found.sizes, key=lambda row: -row.bytes)
    rows = [(row.start, row.end, row.calls, row.bytes, row.live_blocks, row.live_bytes) for row in by_bytes]
    yield Section("sizes", "Sizes", table("sizes-table", "Requested sizes, the most bytes first", SIZES, rows, most))
    spans = [(span.start, span.end, span.blocks) for span in found.lifetimes.by_calls]
    lives = table(
        "lives-table",
        "Lifetimes of released blocks, in calls",
        LIVES,
        spans,
        most,
        ("total", "", found.lifetimes.released),
    )
    yield Section("lives", "Lifetimes", lives or paragraph("No block was released."))


def _moments(found: CallStats) -> str:
    rows: list[Sequence[object]] = [
        (name, one.call, f"{one.seconds:.2f}", one.count, one.bytes, one.usable)
        for name, one in (("most bytes", found.peak), ("most blocks", found.most_blocks))
    ]
    live = found.live
    rows.append(("at the end", found.calls.all, f"{found.seconds:.2f}", live.count, live.bytes, live.usable))
    return table("moments-table", "Memory in use", MOMENTS, rows, len(rows))


def _stacks(found: CallStacks, most: int) -> Section:
    rows = [(stack.frames, stack.bytes, stack.blocks) for stack in found.rows if stack.bytes > 0]
    picture = flame_part(rows, f"Memory in use after call {found.call:,}, by stack", ALLOCATED)
    sites = [
        (label(site.frame) if site.frame else NO_STACK, site.frame.file if site.frame else "", site.bytes, site.blocks,
         site.allocated_bytes, site.allocated_blocks)
        for site in found.sites
    ]  # fmt: skip
    about = (
        f"After call {found.call:,} of {found.calls:,}, when the most bytes were in use. The outermost frame is on top."
    )
    estimate = (
        ""
        if found.mean <= 1
        else f" Only a sample of the stacks was recorded: the figures are estimates from {found.sampled_blocks:,} "
        "blocks."
    )
    body = paragraph(about + estimate) + f"<figure>{picture}</figure>\n"
    return Section(
        "stacks", "What allocated the memory", body + table("sites-table", "Innermost lines", SITES, sites, most)
    )
