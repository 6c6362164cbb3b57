"""The text of ``gdbheap calls FILE``: the sums of a program's calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gdbheap.errors import one_line
from gdbheap.report.text.distribution import bar
from gdbheap.report.text.numbers import UNKNOWN, arena_text, count_text, counted, share_text
from gdbheap.report.text.programs import program_text
from gdbheap.report.text.stack_text import short_frames
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, join, table

if TYPE_CHECKING:
    from gdbheap.tracing.arena_growths import ArenaGrowth
    from gdbheap.tracing.call_stats import CallStats, InUse, LifetimesOf, Moment, Point, SizeOfCalls

__all__ = ["about", "render", "told"]

LEFT = True
NEW, NONE = "new", "-"
STEPS, BAR = 16, 30
KINDS = ("malloc", "calloc", "realloc", "memalign", "free")
OTHERS = ("mmap", "munmap", "mremap", "mallopt", "malloc_trim", "fork")
CALLS = (Column("call", LEFT), Column("calls"), Column("%"))
MOMENTS = (
    Column("moment", LEFT), Column("after call"), Column("seconds"), Column("blocks"), Column("asked for"),
    Column("usable"), Column("% larger"),
)  # fmt: skip
COURSE = (
    Column("after call"), Column("seconds"), Column("blocks"), Column("bytes"), Column("peak in interval"),
    Column("", LEFT),
)  # fmt: skip
SIZES = (
    Column("from size"), Column("below"), Column("calls"), Column("bytes"), Column("blocks at end"),
    Column("bytes at end"),
)  # fmt: skip
LIVES = (Column("lifetimes", LEFT), Column("median"), Column("90th percentile"), Column("longest"))
GROWTHS = (
    Column("call"), Column("arena"), Column("asked for"), Column("chunk needed"), Column("largest hole"),
    Column("too short by"), Column("grew by"), Column("called by", LEFT),
)  # fmt: skip
SPANS = (Column("calls lived"), Column("below"), Column("distribution of blocks", LEFT), Column("blocks"), Column("%"))


def render(answer: CallStats, whole: CallStats, style: Style, picture: str | None) -> str:
    """Return the text of the answer: the most memory in use, the program that made the calls, several tables, and the
    limitations of the figures.

    ``answer`` has fewer sizes than ``whole`` if the list was cut. ``picture``: the file to which the picture was
    written, None if there is none.
    """
    where = "" if picture is None else f"The picture is in {one_line(picture)}."
    return join(
        style.filled(f"{_most(answer, style)} {about(answer)}"),
        _calls(answer, style),
        _moments(answer, style),
        _course(answer.curve.over_calls, style),
        _sizes(answer.sizes, whole.sizes, style),
        _lives(answer, style),
        _growths(answer.arena_growths or [], style),
        "\n".join(style.filled(sentence) for sentence in [*told(answer, style), where] if sentence),
    )


def about(answer: CallStats) -> str:
    """Return a sentence with the number of calls and the program that made them."""
    program = program_text(answer.words, answer.exe)
    return (
        f"Process {answer.pid} ({program}) made {counted(answer.calls.all, 'call')} in"
        f" {counted(answer.threads, 'thread')} and {answer.seconds:,.2f} s."
    )


def _most(answer: CallStats, style: Style) -> str:
    """Return a sentence with the largest number of requested bytes in use, and the number at the end."""
    peak = answer.peak
    return (
        f"At most {style.bytes(peak.bytes)} was in use, after call {count_text(peak.call)}, and"
        f" {style.bytes(answer.live.bytes)} at the end."
    )


def _calls(answer: CallStats, style: Style) -> str:
    calls = answer.calls
    rows = [[kind, count_text(getattr(calls, kind)), share_text(getattr(calls, kind), calls.all)] for kind in KINDS]
    return table(CALLS, rows, style, ["total", count_text(calls.all), share_text(calls.all, calls.all)])


def _moments(answer: CallStats, style: Style) -> str:
    peak, most = answer.peak, answer.most_blocks
    rows = [
        ["peak of bytes in use", *_when(peak), *_amounts(peak, style)],
        ["peak of blocks in use", *_when(most), *_amounts(most, style)],
        ["at the end", count_text(answer.calls.all), f"{answer.seconds:.2f}", *_amounts(answer.live, style)],
    ]
    return table(MOMENTS, rows, style)


def _when(moment: Moment) -> list[str]:
    return [count_text(moment.call), f"{moment.seconds:.2f}"]


def _amounts(found: InUse | Moment, style: Style) -> list[str]:
    more = share_text(found.usable - found.bytes, found.bytes)
    return [count_text(found.count), style.size(found.bytes), style.size(found.usable), more]


def _course(points: Sequence[Point], style: Style) -> str:
    """Return a table that shows how the memory in use changed. It has a row for each of a few intervals, which have
    about the same number of calls.
    """
    if len(points) < 2:
        return ""
    last = len(points) - 1
    ends = sorted({last * (step + 1) // STEPS for step in range(STEPS)})
    starts = [0, *(end + 1 for end in ends)]
    most = [max(point.most for point in points[start : end + 1]) for start, end in zip(starts, ends) if start <= end]
    rows = [
        [count_text(points[end].call), f"{points[end].seconds:.2f}", count_text(points[end].count),
         style.size(points[end].bytes), style.size(high), bar(high, max(most), style, BAR)]
        for end, high in zip(ends, most)
    ]  # fmt: skip
    return table(COURSE, rows, style)


def _sizes(rows: Sequence[SizeOfCalls], whole: Sequence[SizeOfCalls], style: Style) -> str:
    """Return the table of sizes: the given rows, one row for all others, and the total."""
    if not whole:
        return ""
    body = [[count_text(row.start), count_text(row.end), *_size(row, style)] for row in rows]
    if len(rows) < len(whole):
        body.append([f"{len(whole) - len(rows):,} more", "", *_sum([row for row in whole if row not in rows], style)])
    return table(SIZES, body, style, ["total", "", *_sum(whole, style)])


def _size(row: SizeOfCalls, style: Style) -> list[str]:
    return [count_text(row.calls), style.size(row.bytes), count_text(row.live_blocks), style.size(row.live_bytes)]


def _sum(rows: Sequence[SizeOfCalls], style: Style) -> list[str]:
    calls, size, live, left = (
        sum(getattr(row, name) for row in rows) for name in ("calls", "bytes", "live_blocks", "live_bytes")
    )
    return [count_text(calls), style.size(size), count_text(live), style.size(left)]


def _lives(answer: CallStats, style: Style) -> str:
    lives = answer.lifetimes
    if not lives.released:
        return ""
    rows = [["in calls", *_quantiles(lives.in_calls, ",.0f")], ["in seconds", *_quantiles(lives.in_seconds, ",.6f")]]
    longest = max(span.blocks for span in lives.by_calls)
    spans = [
        [count_text(span.start), count_text(span.end), bar(span.blocks, longest, style), count_text(span.blocks),
         share_text(span.blocks, lives.released)]
        for span in lives.by_calls
    ]  # fmt: skip
    total = ["", "", "total", count_text(lives.released), share_text(lives.released, lives.released)]
    return join(table(LIVES, rows, style), table(SPANS, spans, style, total))


def _growths(growths: Sequence[ArenaGrowth], style: Style) -> str:
    """Return the table of arena growths. It has a row for each growth whose arena was examined before the call, one for
    all other growths, and the total.
    """
    looked = [grown for grown in growths if grown.has_looked]
    if not growths:
        return ""
    rows = [
        [count_text(grown.call), NEW if grown.is_new else arena_text(grown.arena), count_text(grown.asked),
         count_text(grown.chunk), *(NONE if found is None else count_text(found)
         for found in (grown.largest, grown.short_by)), style.size(grown.bytes),
         " < ".join(short_frames(grown.frames or []))]
        for grown in looked
    ]  # fmt: skip
    total, shown = sum(grown.bytes for grown in growths), sum(grown.bytes for grown in looked)
    if len(looked) < len(growths):
        rows.append([f"{len(growths) - len(looked):,} more", "", "", "", "", "", style.size(total - shown), ""])
    total_row = ["total", "", "", "", "", "", style.size(total), ""]
    if not any(grown.frames for grown in looked):
        return table(GROWTHS[:-1], [row[:-1] for row in rows], style, total_row[:-1])
    return table(GROWTHS, rows, style, total_row)


def _quantiles(of: LifetimesOf, form: str) -> Iterator[str]:
    for value in (of.median, of.p90, of.longest):
        yield UNKNOWN if value is None else format(value, form)


def told(answer: CallStats, style: Style) -> Iterator[str]:
    """Yield sentences about the sums of the calls, and about the limitations of the figures."""
    yield from _sums(answer, style)
    yield from _notes(answer)


def _sums(answer: CallStats, style: Style) -> Iterator[str]:
    lower, upper, requested = answer.cumulated.lower, answer.cumulated.upper, answer.requested
    yield (
        f"The program requested {style.bytes(upper)} in total, or {style.bytes(lower)} if a realloc counts only for "
        f"the bytes that it adds. The blocks returned for the {style.bytes(upper)} had "
        f"{style.bytes(requested.usable)} of"
        f" usable memory ({share_text(requested.usable - requested.bytes, requested.bytes)} % more)."
    )
    lives, temporary = answer.lifetimes, answer.temporary
    yield (
        f"{counted(answer.allocated, 'block was allocated', 'blocks were allocated')}, and"
        f" {count_text(lives.released)} released. The very next call released {count_text(lives.within_a_call)} of the"
        f" released blocks ({share_text(lives.within_a_call, lives.released)} %)."
        f" {counted(temporary.count, 'block was', 'blocks were')} temporary"
        f" ({share_text(temporary.count, answer.allocated)} % of all, {style.bytes(temporary.bytes)}): released by the"
        " next call of the thread that had allocated the block."
    )
    resized = answer.resized
    if answer.calls.realloc:
        yield (
            f"realloc made {counted(resized.made_larger, 'block')} larger and {count_text(resized.shrunk)} smaller."
            f" It moved {counted(resized.moved, 'block')}, and copied {style.bytes(resized.copied)} to do so."
        )
    if answer.arena_growths is not None:
        yield from _about_growths(answer.arena_growths)
    others = [f"{count_text(getattr(answer.calls, kind))} of {kind}" for kind in OTHERS if getattr(answer.calls, kind)]
    if others:
        yield f"Calls that are not counted above: {', '.join(others)}."


def _about_growths(growths: Sequence[ArenaGrowth]) -> Iterator[str]:
    if not growths:
        yield "No arena became larger."
    nearest = min(
        (grown for grown in growths if grown.short_by is not None), key=lambda grown: grown.short_by or 0, default=None
    )
    if nearest is not None:
        yield (
            f"{counted(len(growths), 'call')} made an arena larger. Call {count_text(nearest.call)} came"
            f" closest to finding a hole: it needed a chunk of {count_text(nearest.chunk)} bytes, and the largest hole"
            f" was {count_text(nearest.short_by)} bytes too small."
        )


def _notes(answer: CallStats) -> Iterator[str]:
    """Yield sentences about the limitations of the figures, such as calls that could not be recorded, or a damaged
    trace.
    """
    if answer.failed:
        yield f"The sums of bytes do not include {counted(answer.failed, 'call')} that returned NULL."
    if answer.unknown:
        yield (
            f"{counted(answer.unknown, 'call')} concerned blocks that the parent process had allocated before the "
            "recording. If realloc resized one of these blocks, the returned block counts as new."
        )
    if answer.not_released:
        yield f"The release of {counted(answer.not_released, 'block')} is not in the trace."
    if answer.lost:
        yield f"{counted(answer.lost, 'call')} could not be recorded."
    if not answer.is_whole:
        yield "The trace is damaged or was cut off: the figures cover only the calls before that point."
    if answer.processes > 1:
        yield f"The trace has {counted(answer.processes, 'process', 'processes')}: --process=PID chooses another."
