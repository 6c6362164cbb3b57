"""The text of ``heap diff``: which holders grew, and a table for each kind of change."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from gdbheap.answers.accounting.source_paths import source_path
from gdbheap.answers.holder_change import GONE, NEW
from gdbheap.report.text.numbers import address_text, arena_text
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, join, table
from gdbheap.report.words.holder_changes import growth_sentence, now_text, signed
from gdbheap.report.words.verdict import program_text
from gdbheap.snapshots.blocks import BlockChange
from gdbheap.snapshots.difference import Compared, Difference, OwnerChange
from gdbheap.text import file_name

__all__ = ["conclusion", "heading", "holder_text", "limit_sentence", "owner_text", "render"]

MINUTE, HOUR, DAY = 60, 3600, 86400
MAX_SECONDS_LEFT = 365 * DAY
LEFT = True
# Lines of the ledger at a deeper level are only in the JSON.
MAX_DEPTH = 1


def render(answer: Difference, whole: Difference, top: int | None, style: Style) -> str:
    """Return the text of the answer. It begins with the holders that grew, and with what was compared. A table for each
    kind of change follows, then the figures that only rise, and the time at which RSS reaches the limit.

    ``top``: the most rows of a table, None for all.
    """
    return join(
        style.filled(conclusion(whole, style)),
        style.filled(heading(answer, style)),
        _holders(answer, top, style),
        _ledger(answer, style),
        _types(answer, whole, style),
        _sizes(answer, top, style),
        _blocks(answer, top, style),
        _owners(answer, top, style),
        _arenas(answer, top, style),
        _holes(answer, top, style),
        _findings(answer, style),
        _trend(answer, top, style),
        style.filled(limit_sentence(answer, style)),
    )


UNKNOWN = "It is unknown which holder grew: a snapshot did not read all references. 'gdbheap snapshot --owners' does."


def conclusion(answer: Difference, style: Style) -> str:
    """Return a sentence that says which holders grew. If a snapshot has no holders, the sentence names the object whose
    retained size grew the most."""
    told = growth_sentence(answer.holders, answer.in_use, answer.free, style)
    most = answer.owners[0] if answer.owners and answer.holders is None else None
    if most is None or most.retained <= 0:
        return " ".join(filter(None, [told, UNKNOWN if answer.holders is None else ""]))
    sizes = f"{style.bytes(most.looks[0])} to {style.bytes(most.looks[-1])}"
    retained = (
        f"The memory that {source_path(owner_text(most))} retains grew by {style.bytes(most.retained)} ({sizes})."
    )
    return " ".join(filter(None, [retained, told]))


def _table(columns: Sequence[Column], rows: list[list[str]], count: int, style: Style) -> str:
    """Return a table of the rows, and how many of the ``count`` rows are left out; "" if there are no rows."""
    left = count - len(rows)
    more = f"Rows that are not shown: {left:,}. --top=N shows more." if left else ""
    return join(table(columns, rows, style), more) if rows else ""


def heading(answer: Difference, style: Style) -> str:
    """Return the compared targets, the time from the first to the last, and the change of RSS, as text."""
    first, last = answer.compared[0], answer.compared[-1]
    looks = f"{len(answer.compared)} snapshots of " if len(answer.compared) > 2 else ""
    names = list(dict.fromkeys(_name(look) for look in answer.compared))
    what = f"{looks}{names[0]}" if answer.same_process else f"{looks}{' and '.join(names)} (not the same process)"
    seconds = _duration(last.time - first.time)
    time = f"over {seconds}" if looks else f"{seconds} apart"
    if answer.rss is None:
        return f"{what}, {time}. RSS is unknown for the first or the last of the compared targets."
    rss = f"RSS {style.size(first.rss)} to {style.size(last.rss)}, {signed(answer.rss, style)}"
    return f"{what}, {time}: {rss}."


def _name(look: Compared) -> str:
    target = look.target
    program = look.program or file_name(target.get("exe") or "") or "an unknown program"
    if target.get("kind") == "process":
        return program_text(program, target.get("pid"))
    return f"core {target.get('core') or '?'} of {program_text(program, target.get('pid'))}"


def _duration(seconds: float) -> str:
    if seconds < MINUTE:
        return f"{seconds:.1f} s"
    return str(timedelta(seconds=round(seconds)))


def _count(count: int) -> str:
    return f"{count:+,}" if count else "0"


def _looks(values: Sequence[int | None], style: Style) -> list[str]:
    return [style.size(value) for value in values]


def _look_columns(answer: Difference) -> list[Column]:
    count = len(answer.compared)
    return [Column("first"), *(Column(f"snapshot {number}") for number in range(2, count)), Column("last")]


def _ledger(answer: Difference, style: Style) -> str:
    """Return the table of the ledger lines that changed, each below its parent."""
    depths: dict[str, int] = {}
    for row in answer.ledger:
        depths[row.id] = 0 if row.parent is None else depths.get(row.parent, 0) + 1
    changed = [row for row in answer.ledger if (row.resident or row.virtual) and depths[row.id] <= MAX_DEPTH]
    if not changed:
        return "The memory of each owner is the same in both."
    columns = (Column("what", LEFT), Column("resident"), Column("virtual"), *_look_columns(answer))
    rows = [
        [
            "  " * depths[row.id] + row.name,
            signed(row.resident, style),
            signed(row.virtual, style),
            *_looks(row.looks, style),
        ]
        for row in changed
    ]
    roots = [row for row in answer.ledger if row.parent is None]
    sums = [None if None in column else sum(column) for column in zip(*(row.looks for row in roots))]
    resident = None if any(row.resident is None for row in roots) else sum(row.resident or 0 for row in roots)
    total = ["total", signed(resident, style), signed(sum(row.virtual for row in roots), style), *_looks(sums, style)]
    return table(columns, rows, style, total)


def _holders(answer: Difference, top: int | None, style: Style) -> str:
    columns = (
        Column("in use"), *_look_columns(answer), Column("holder", LEFT), Column("description", LEFT),
    )  # fmt: skip
    rows = [
        [signed(row.bytes, style), *_looks(row.looks, style), row.path, now_text(row)]
        for row in (answer.holders or [])[:top]
    ]
    return _table(columns, rows, len(answer.holders or []), style)


def _types(answer: Difference, whole: Difference, style: Style) -> str:
    if not whole.types:
        return ""
    columns = (
        Column("count"), Column("own"), Column("buffers"), Column("total"), *_look_columns(answer),
        Column("type", LEFT),
    )  # fmt: skip

    def row(name: str, of: Sequence[Any]) -> list[str]:
        looks = [sum(column) for column in zip(*(one.looks for one in of))]
        sums = [sum(getattr(one, key) for one in of) for key in ("count", "own", "buffers", "bytes")]
        return [_count(sums[0]), *(signed(size, style) for size in sums[1:]), *_looks(looks, style), name]

    rows = [row(found.type, [found]) for found in answer.types]
    listed = {found.type for found in answer.types}
    left = [found for found in whole.types if found.type not in listed]
    if left:
        rows.append(row(f"({len(left):,} more types)", left))
    return table(columns, rows, style, row("total", whole.types))


def _sizes(answer: Difference, top: int | None, style: Style) -> str:
    columns = (Column("blocks"), Column("bytes"), Column("size"), Column("allocator", LEFT))
    rows = [
        [_count(row.count), signed(row.bytes, style), style.size(row.size), row.allocator] for row in answer.sizes[:top]
    ]
    return _table(columns, rows, len(answer.sizes), style)


def _blocks(answer: Difference, top: int | None, style: Style) -> str:
    columns = (
        Column("new"), Column("gone"), Column("still there"), Column("size"), Column("bytes"), Column("type", LEFT),
        Column("new block at", LEFT), Column("holder of most", LEFT),
    )  # fmt: skip
    rows = [
        [
            f"{row.new:,}",
            f"{row.gone:,}",
            f"{row.still_there:,}",
            style.size(row.size),
            signed((row.new - row.gone) * row.size, style),
            row.type or "(no object)",
            address_text(row.addresses[0] if row.addresses else None),
            holder_text(row),
        ]
        for row in (answer.block_changes or [])[:top]
    ]
    return _table(columns, rows, len(answer.block_changes or []), style)


def holder_text(row: BlockChange) -> str:
    """Return the first holder of the new blocks. If it does not hold all of them, add how many it holds."""
    if not row.new_holders:
        return "-"
    first = row.new_holders[0]
    if first.type is None:
        name = "no single holder"
    elif first.path is None:
        name = first.type
    else:
        name = f"{first.path} ({first.type})"
    return name if first.count == row.new else f"{name}: {first.count:,}"


def _owners(answer: Difference, top: int | None, style: Style) -> str:
    columns = (
        Column("retained"), *_look_columns(answer), Column("address"), Column("type", LEFT), Column("path", LEFT),
    )  # fmt: skip
    rows = [
        [
            signed(row.retained, style),
            *_looks(row.looks, style),
            address_text(row.address),
            row.type,
            owner_text(row),
        ]
        for row in answer.owners[:top]
    ]
    return _table(columns, rows, len(answer.owners), style)


def owner_text(row: OwnerChange) -> str:
    """Return the path by which an object is reached."""
    return row.path or row.chain or "-"


def _arenas(answer: Difference, top: int | None, style: Style) -> str:
    columns = (
        Column("arena"), Column("address"), Column("system"), Column("in use"), Column("top"), Column("state", LEFT),
    )  # fmt: skip
    rows = [
        [
            arena_text(row.index),
            address_text(row.address),
            *(signed(size, style) for size in (row.system, row.in_use, row.top)),
            row.state,
        ]
        for row in answer.arena_changes[:top]
    ]
    return _table(columns, rows, len(answer.arena_changes), style)


def _holes(answer: Difference, top: int | None, style: Style) -> str:
    columns = (
        Column("hole"), Column("size"), Column("resident"), Column("allocator", LEFT), Column("state", LEFT),
        Column("blocks around", LEFT),
    )  # fmt: skip
    rows = [
        [
            address_text(row.address),
            style.size(row.size),
            style.size(row.resident),
            row.allocator,
            row.state,
            ", ".join(row.around) or "-",
        ]
        for row in answer.holes[:top]
    ]
    return _table(columns, rows, len(answer.holes), style)


def _findings(answer: Difference, style: Style) -> str:
    words: dict[str, str] = {NEW: "is new", GONE: "is gone"}
    lines = [
        f"Finding {row.id}: one of the snapshots did not look for it."
        if row.bytes is None
        else f"Finding {row.id} {words.get(row.state, 'is still there')}: {signed(row.bytes, style)}."
        for row in answer.findings
    ]
    return "\n".join(style.filled(line) for line in lines)


def _trend(answer: Difference, top: int | None, style: Style) -> str:
    """Return the table of the figures that never fell from one snapshot to the next."""
    if not answer.trend:
        return ""
    columns = (Column("per hour"), *_look_columns(answer), Column("kind", LEFT), Column("rising figure", LEFT))
    rows = [
        [f"+{style.size(round(row.rate * HOUR))}", *_looks(row.looks, style), row.kind, row.name]
        for row in answer.trend[:top]
    ]
    return _table(columns, rows, len(answer.trend), style)


def limit_sentence(answer: Difference, style: Style) -> str:
    """Return a sentence that says when RSS will reach the limit; "" if there is no limit."""
    if answer.limit is None:
        return ""
    limit = style.bytes(answer.limit)
    if answer.seconds_left is None:
        return f"RSS did not grow towards the limit of {limit}."
    if answer.seconds_left > MAX_SECONDS_LEFT:
        return f"At this rate RSS does not reach the limit of {limit} within a year."
    return f"At this rate RSS reaches the limit of {limit} in {_duration(answer.seconds_left)}."
