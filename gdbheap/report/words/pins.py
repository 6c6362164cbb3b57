"""The text of ``heap pins``: a row for each small group of blocks that keeps whole pages from being returned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.report.text.numbers import address_text, count_text, counted
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import SHARE, Column, join, table

if TYPE_CHECKING:
    from gdbheap.answers.pins import Pin, PinningKind, Pins, PinSums

__all__ = ["conclusion", "render", "sentences"]

KINDS = 10
# Below this share of RSS, removing pins is not worth a change of the program.
MIN_PERCENT = 1
HOLES = "Whole pages in holes are not pinned: 'heap holes' lists them, and 'heap trim' shows what malloc can return."
COLUMNS = (
    Column("address"), Column("would free"), SHARE, Column("blocks"), Column("size"), Column("allocator", True),
    Column("what", True),
)  # fmt: skip
PATH, MAX_FROM = Column("path", True), Column("path of most", True)
KIND_COLUMNS = (
    Column("blocks"), Column("size"), Column("groups"), Column("kept alone"), Column("would free"), SHARE,
    Column("allocator", True), Column("what", True),
)  # fmt: skip


def render(answer: Pins, style: Style) -> str:
    """Return the text of the answer: the bytes that removing the pins would free, then the pins.

    A sentence for each allocator gives its pages with pins, the blocks that pin them, and the bytes that would be
    freed. Tables have a row for each pin, the total of all pins, and the kinds of their blocks. There is a column for
    paths if any path is known.
    """
    sums = [row for row in answer.sums if row.groups]
    if not sums:
        least = style.bytes(answer.minimum)
        return style.filled(
            f"No pinned pages: no group of a few blocks keeps {least} or more from being returned. {HOLES}"
        )
    paths = any(pin.path for pin in answer.rows)
    rows = [_row(pin, paths, style) for pin in answer.rows]
    shown = sum(pin.would_free for pin in answer.rows), sum(pin.blocks for pin in answer.rows)
    freed, blocks, size, groups = (
        sum(column) for column in zip(*((row.would_free, row.blocks, row.bytes, row.groups) for row in sums))
    )
    if groups > len(answer.rows):
        more = f"{groups - len(answer.rows):,} more"
        left = size - sum(pin.size for pin in answer.rows)
        rows.append(_cells(more, freed - shown[0], blocks - shown[1], left, ["", "", *[""] * paths], style))
    total = _cells("total", freed, blocks, size, ["", "", *[""] * paths], style)
    pins = table((*COLUMNS, *[PATH] * paths), rows, style, total)
    told = map(style.filled, (f"{conclusion(answer, style)} {HOLES}", *sentences(answer, style)))
    return join(*told, pins, _kinds(answer.by_kind, paths, style))


def conclusion(answer: Pins, style: Style) -> str:
    """Return a sentence: the bytes that removing the pins would free, and whether that is worthwhile."""
    freed, blocks = (sum(getattr(row, name) for row in answer.sums if row.groups) for name in ("would_free", "blocks"))
    is_little = bool(style.rss) and 100 * freed < MIN_PERCENT * (style.rss or 0)
    start = "Nothing worth fixing: removing" if is_little else "Removing"
    most = "" if answer.resident_known else " at most"
    return f"{start} {counted(blocks, 'block')} would free {style.bytes(freed)}{style.of_rss(freed)}{most}."


def sentences(answer: Pins, style: Style) -> list[str]:
    """Return one sentence for each allocator: its pages with pins, the blocks that pin them, and the bytes that would
    be freed.
    """
    return [_sentence(row, answer, style) for row in answer.sums if row.groups]


def _row(pin: Pin, paths: bool, style: Style) -> list[str]:
    words = [pin.allocator, pin.what, *[pin.path or "-"] * paths]
    return _cells(address_text(pin.address), pin.would_free, pin.blocks, pin.size, words, style)


def _cells(start: str, freed: int, blocks: int, size: int, rest: list[str], style: Style) -> list[str]:
    return [start, style.size(freed), style.share(freed), count_text(blocks), style.size(size), *rest]


def _kinds(kinds: list[PinningKind], paths: bool, style: Style) -> str:
    rows = [
        [
            count_text(row.blocks), style.size(row.bytes), count_text(row.groups), count_text(row.alone),
            style.size(row.would_free), style.share(row.would_free), row.allocator, _what(row),
            *[row.path or "-"] * paths,
        ]
        for row in kinds[:KINDS]
    ]  # fmt: skip
    return table((*KIND_COLUMNS, *[MAX_FROM] * paths), rows, style) if rows else ""


def _what(row: PinningKind) -> str:
    return row.what if row.holder is None else f"{row.what}, held by {row.holder}"


def _sentence(row: PinSums, answer: Pins, style: Style) -> str:
    units, blocks = counted(row.groups, *row.units), counted(row.blocks, "block")
    text = f"{row.allocator}: {units} kept by {blocks} ({style.bytes(row.bytes)})"
    most = next((kind for kind in _by_blocks(answer.by_kind) if kind.allocator == row.allocator), None)
    of_which = "" if most is None else f", of which {counted(most.blocks, 'is', 'are')} {_what(most)}"
    partly = "" if row.described == row.blocks else f" (among the {row.described:,} blocks that keep the most memory)"
    unsure = "" if answer.resident_known else " (at most: resident memory is unknown)"
    freed = f"{style.bytes(row.would_free)}{style.of_rss(row.would_free)}"
    return f"{text}{of_which}{partly}. Without these blocks {freed} {row.emptied}{unsure}."


def _by_blocks(kinds: list[PinningKind]) -> list[PinningKind]:
    return sorted(kinds, key=lambda kind: -kind.blocks)
