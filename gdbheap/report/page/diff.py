"""The page that compares several snapshots: what changed from the first to the last, which figures only rose, and the
state at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gdbheap.report.page.html import ADDRESS, COUNT, SIGNED, SIZE, Column, Section, TableRow, paragraph, safe, table
from gdbheap.report.page.ledger import ledger_section
from gdbheap.report.page.skeleton import fitted, page
from gdbheap.report.page.target import moment, name_of, sections_of, title_of
from gdbheap.report.text.numbers import arena_text, size_text
from gdbheap.report.text.style import Style
from gdbheap.report.words.diff import conclusion, heading, holder_text, limit_sentence, owner_text
from gdbheap.report.words.holder_changes import now_text
from gdbheap.text import printable_record

if TYPE_CHECKING:
    from gdbheap.snapshots.difference import Difference
    from gdbheap.snapshots.overview import Overview

__all__ = ["difference_page"]

HOUR = 3600
LINES = (Column("name", "what"), Column("resident", "resident", SIGNED), Column("virtual", "virtual", SIGNED))
HOLDERS = (Column("path", "held by"), Column("what", "what it is"), Column("bytes", "in use", SIGNED))
TYPES = (
    Column("type", "type"), Column("count", "count", COUNT), Column("bytes", "own", SIGNED),
    Column("buffers", "buffers", SIGNED), Column("together", "total", SIGNED),
)  # fmt: skip
SIZES = (
    Column("allocator", "allocator"), Column("size", "size", SIZE), Column("count", "blocks", COUNT),
    Column("bytes", "bytes", SIGNED),
)  # fmt: skip
BLOCKS = (
    Column("type", "type"), Column("size", "size", SIZE), Column("new", "came", COUNT), Column("gone", "went", COUNT),
    Column("kept", "still there", COUNT), Column("holders", "holder of most"),
)  # fmt: skip
OWNERS = (
    Column("type", "type"), Column("address", "address", ADDRESS), Column("retained", "retained", SIGNED),
    Column("state", "state"), Column("path", "path"),
)  # fmt: skip
ARENAS = (
    Column("index", "arena"), Column("address", "address", ADDRESS), Column("system", "system", SIGNED),
    Column("in_use", "in use", SIGNED), Column("top", "top", SIGNED), Column("state", "state"),
)  # fmt: skip
HOLES = (
    Column("address", "address", ADDRESS), Column("size", "size", SIZE), Column("resident", "resident", SIZE),
    Column("allocator", "allocator"), Column("state", "state"), Column("pins", "held by"),
)  # fmt: skip
TREND = (Column("name", "what only rises"), Column("kind", "kind"), Column("rate", "an hour", SIGNED))
FINDINGS = (Column("id", "finding"), Column("state", "state"), Column("bytes", "bytes", SIGNED))
LOOKS = (Column("number", "snapshot"), Column("time", "when"), Column("what", "what"), Column("rss", "RSS", SIZE))


def difference_page(answer: Difference, last: Overview, style: Style) -> bytes:
    """Return the HTML page of a difference, encoded. ``last``: the last snapshot, which the second half of the page
    shows."""
    answer = printable_record(answer)
    count = len(answer.compared)
    name = title_of(answer.compared[-1].program, answer.compared[-1].target)
    title = f"{'What changed' if count == 2 else 'What rose'} in {name}"
    said = f"{count} snapshots, from {moment(answer.compared[0].time)} to {moment(answer.compared[-1].time)}."
    grown, told = conclusion(answer, style), heading(answer, style)
    first, more = (grown, told) if grown else (told, "")
    lead = f'<p class="lead">{safe(first[:1].upper() + first[1:], 1000)}</p>\n'
    lead += paragraph(more[:1].upper() + more[1:]) + paragraph(limit_sentence(answer, style))

    def made(most: int) -> bytes:
        of_last = [section for section in sections_of(last, most, style) if not section.why and section.id != "ledger"]
        now = ledger_section(last.ledger, most)
        at_end = [Section(one.id, f"At the end: {one.title}", one.body) for one in (now, *of_last)]
        return page(title, lead, [*_sections(answer, most), *at_end], said)

    return fitted(made)


def _sections(answer: Difference, most: int) -> Iterator[Section]:
    yield Section("looks", "The snapshots", _curve(answer) + _looks(answer, most))
    parts = (
        ("changed-holders", "Holders", _holders(answer, most)),
        ("trend", "Figures that only rose", _trend(answer, most)),
        ("changed", "The ledger", _lines(answer, most) or paragraph("No line of the ledger changed.")),
        ("changed-types", "Types", _types(answer, most)),
        ("changed-blocks", "New blocks and blocks that are gone", _blocks(answer, most)),
        ("changed-owners", "Memory that one object alone keeps alive", _owners(answer, most)),
        ("changed-sizes", "Blocks by size", _sizes(answer, most)),
        ("changed-arenas", "Arenas", _arenas(answer, most)),
        ("changed-holes", "Holes that are new or gone", _holes(answer, most)),
        ("changed-findings", "Findings", _findings(answer, most)),
    )
    yield from (
        Section(id, f"What changed: {title}" if id != "trend" else title, body) for id, title, body in parts if body
    )


def _looks(answer: Difference, most: int) -> str:
    rows = [
        (str(number), moment(look.time), name_of(look.target), look.rss)
        for number, look in enumerate(answer.compared, 1)
    ]
    return table("looks-table", "The compared snapshots", LOOKS, rows, most)


def _curve(answer: Difference) -> str:
    """Return a curve of RSS over time; "" if fewer than three values are known."""
    known = [(look.time, look.rss) for look in answer.compared if look.rss is not None]
    span = known[-1][0] - known[0][0] if known else 0
    if len(known) < 3 or span <= 0:
        return ""
    highest = max(size for _time, size in known) or 1
    points = " ".join(
        f"{10 + 940 * (time - known[0][0]) / span:.1f},{150 - 130 * size / highest:.1f}" for time, size in known
    )
    told = f"RSS from {size_text(known[0][1])} to {size_text(known[-1][1])}, at most {size_text(highest)}"
    return (
        f'<figure><svg class="curve" viewBox="0 0 960 160" width="960" role="img" aria-label="{told}">'
        f'<polyline points="{points}"/></svg><figcaption>{told}</figcaption></figure>\n'
    )


def _with_looks(columns: Sequence[Column], answer: Difference) -> list[Column]:
    count = len(answer.compared)
    names = ["first", *(f"snapshot {number}" for number in range(2, count)), "last"]
    return [*columns, *(Column(f"look-{place}", name, SIZE) for place, name in enumerate(names))]


def _holders(answer: Difference, most: int) -> str:
    rows = [(row.path, now_text(row), row.bytes, *row.looks) for row in answer.holders or []]
    title = "Holders of the memory in use, those that grew the most first"
    return table("changed-holders-table", title, _with_looks(HOLDERS, answer), rows, most)


def _lines(answer: Difference, most: int) -> str:
    rows = [
        (f"{row.name}", row.resident, row.virtual, *row.looks) for row in answer.ledger if row.resident or row.virtual
    ]
    return table("changed-table", "Lines that changed, parts below their whole", _with_looks(LINES, answer), rows, most)


def _types(answer: Difference, most: int) -> str:
    rows = [(row.type, row.count, row.own, row.buffers, row.bytes, *row.looks) for row in answer.types]
    return table("changed-types-table", "Types, those that grew the most first", _with_looks(TYPES, answer), rows, most)


def _sizes(answer: Difference, most: int) -> str:
    rows = [(row.allocator, row.size, row.count, row.bytes) for row in answer.sizes]
    return table("changed-sizes-table", "Blocks in use", SIZES, rows, most)


def _blocks(answer: Difference, most: int) -> str:
    rows: list[TableRow] = [
        (row.type or "(no object)", row.size, row.new, row.gone, row.still_there, holder_text(row))
        for row in answer.block_changes or []
    ]
    return table("changed-blocks-table", "Changed blocks, by type and size", BLOCKS, rows, most)


def _owners(answer: Difference, most: int) -> str:
    rows = [(row.type, row.address, row.retained, row.state, owner_text(row), *row.looks) for row in answer.owners]
    return table("changed-owners-table", "Memory that objects retain", _with_looks(OWNERS, answer), rows, most)


def _arenas(answer: Difference, most: int) -> str:
    rows = [
        (arena_text(row.index), row.address, row.system, row.in_use, row.top, row.state) for row in answer.arena_changes
    ]
    return table("changed-arenas-table", "malloc's arenas", ARENAS, rows, most)


def _holes(answer: Difference, most: int) -> str:
    rows = [
        (row.address, row.size, row.resident, row.allocator, row.state, ", ".join(row.around)) for row in answer.holes
    ]
    return table("changed-holes-table", "Holes, the largest first", HOLES, rows, most)


def _findings(answer: Difference, most: int) -> str:
    rows = [(row.id, row.state, row.bytes) for row in answer.findings]
    return table("changed-findings-table", "How much following the advice would save", FINDINGS, rows, most)


def _trend(answer: Difference, most: int) -> str:
    rows = [(row.name, row.kind, round(row.rate * HOUR), *row.looks) for row in answer.trend]
    return table(
        "trend-table", "Figures that never fell from one snapshot to the next", _with_looks(TREND, answer), rows, most
    )
