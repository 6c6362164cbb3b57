"""The text of ``heap holes``: a row for each hole, with the blocks before and after it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gdbheap.answers.accounting.describing import OBJECT, UNKNOWN
from gdbheap.report.text.arena_names import arena_number
from gdbheap.report.text.numbers import address_text, count_text, counted
from gdbheap.report.text.stack_text import short_frames
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import SHARE, Column, join, table
from gdbheap.report.words.fit import render as render_fit

if TYPE_CHECKING:
    from gdbheap.answers.holes import Hole, Holes, Neighbour

__all__ = ["neighbour_text", "render", "sentence"]

COLUMNS = (
    Column("address"), Column("size"), Column("resident"), SHARE, Column("allocator", True), Column("arena"),
    Column("block before", True), Column("block after", True),
)  # fmt: skip

# The id of malloc's chunk at the end of a heap, and the words for it in texts.
FENCEPOST, END = "fencepost", "the end of the heap"


def render(answer: Holes, style: Style, minimum: int) -> str:
    """Return the text of ``heap holes``: whether a request fits (if that was asked), the sums of all holes, and a
    table.

    The sentences before the table also name the kind of block that follows the holes. The table has a row for each
    listed hole, one row for all holes that are not listed, and the total. ``minimum``: the size in bytes of the
    smallest hole that was searched for.
    """
    fitted = render_fit(answer.fit, style) if answer.fit is not None else ""
    return join(fitted, _listed(answer, style, minimum))


def _listed(answer: Holes, style: Style, minimum: int) -> str:
    if not answer.count:
        return style.filled(_none(answer.largest_hole, style, minimum))
    rows = [_row(hole, style) for hole in answer.rows]
    if answer.count > len(answer.rows):
        rows.append(_rest(answer, style))
    total = ["total", style.size(answer.bytes), style.size(answer.resident), style.share(answer.resident), *[""] * 4]
    return join(style.filled(sentence(answer, style, minimum)), table(COLUMNS, rows, style, total))


def _none(largest: int | None, style: Style, minimum: int) -> str:
    told = f"There is no hole of {style.bytes(minimum)} or more."
    return told if largest is None else f"{told} The largest hole has {style.bytes(largest)}: add '--min={largest}'."


def _row(hole: Hole, style: Style) -> list[str]:
    sizes = [style.size(hole.size), style.size(hole.resident), style.share(hole.resident)]
    where = [hole.allocator, arena_number(hole.arena, hole.allocator)]
    return [address_text(hole.address), *sizes, *where, *map(neighbour_text, (hole.before, hole.after))]


def neighbour_text(neighbour: Neighbour | None) -> str:
    """Return a description of the block next to a hole; "-" if there is none."""
    if neighbour is None:
        return "-"
    if neighbour.what == FENCEPOST:
        return END
    text = f"{neighbour.what} ({count_text(neighbour.size)} bytes)"
    if neighbour.made is not None and neighbour.made.frames:
        text += f", made by {' < '.join(short_frames(neighbour.made.frames))}"
    return f"{text}: {neighbour.path}" if neighbour.path else text


def _rest(answer: Holes, style: Style) -> list[str]:
    size = answer.bytes - sum(hole.size for hole in answer.rows)
    listed = [hole.resident for hole in answer.rows if hole.resident is not None]
    known = answer.resident is not None and len(listed) == len(answer.rows)
    resident = answer.resident - sum(listed) if known and answer.resident is not None else None
    more = f"{answer.count - len(answer.rows):,} more"
    return [more, style.size(size), style.size(resident), style.share(resident), *[""] * 4]


def sentence(answer: Holes, style: Style, minimum: int) -> str:
    """Return sentences about the sum of all holes, the blocks that follow them, and why the holes are not returned.

    ``minimum``: the size in bytes of the smallest hole that was searched for.
    """
    resident = f"{style.bytes(answer.resident)} of it resident{style.of_rss(answer.resident)}"
    if answer.resident is None:
        resident = "an unknown part of it resident"
    verb = "holds" if answer.count == 1 else "hold"
    start = f"{counted(answer.count, 'hole')} of {style.bytes(minimum)} or more {verb} {style.bytes(answer.bytes)}"
    return " ".join(filter(None, [f"{start}, {resident}.", _after(answer, style), _asking(answer), *answer.reasons]))


def _asking(answer: Holes) -> str:
    """Return a sentence that recommends ``--path`` if the blocks after some listed holes have no known kind and no
    known path; "" otherwise.
    """
    after = (hole.after for hole in answer.rows)
    unknown = [one for one in after if one and one.path is None and one.block_kind and one.block_kind.role == UNKNOWN]
    return "'heap holes --path' shows what holds the unknown blocks." if unknown else ""


def _after(answer: Holes, style: Style) -> str:
    """Return the kind of block that follows the listed holes, with the block's size if that is always the same.

    If there are several kinds, return the most frequent one, with the bytes of the holes before its blocks.
    """
    above = [(hole.size, hole.after) for hole in answer.rows if hole.after is not None]
    if not above:
        return ""
    after_them: Counter[str] = Counter()
    for size, after in above:
        after_them[_kind_of(after)] += size
    what, size = after_them.most_common(1)[0]
    sizes = {after.size for _size, after in above if _kind_of(after) == what}
    is_size = len(sizes) == 1 and len(above) > 1 and what != END
    blocks = f"{what} of {count_text(min(sizes))} bytes" if is_size else what
    is_all = len(above) == answer.count
    which = (
        "the hole"
        if answer.count == 1
        else "each hole"
        if is_all
        else f"each of the {counted(len(above), 'largest hole', 'largest holes')}"
    )
    lie = "lie" if blocks.partition(" of ")[0].endswith("objects") else "lies"
    if len(after_them) == 1:
        return f"After {which} {lie} {blocks}."
    return (
        f"After most of these holes {lie} {blocks} ({style.bytes(size)} of "
        f"{style.bytes(sum(row[0] for row in above))})."
    )


def _kind_of(neighbour: Neighbour) -> str:
    kind = neighbour.block_kind
    if neighbour.what == FENCEPOST:
        return END
    if kind is not None and kind.role == OBJECT:
        return f"{kind.type} objects"
    if kind is not None and kind.role == UNKNOWN:
        return f"a block that is {kind.text()}"
    return kind.text() if kind is not None else neighbour.what
