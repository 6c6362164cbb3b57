"""The text of ``heap pyobjects``: a row for each type, and memory with unknown contents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.answers.pyobjects import TOTALS, Count, Tally
from gdbheap.report.text.numbers import address_text, count_text, counted
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, Shares, join, left_over, table

if TYPE_CHECKING:
    from gdbheap.answers.pyobjects import PyObjects, TypeRow

__all__ = ["render", "sentences"]

# A table is left out if its rows have less than this share of the memory in use.
FOLDED = 0.01
MAX_NAMES = 3
UNKNOWN = (Column("unknown block"), Column("size"), Column("looks like", True))
COLUMNS = Column("count"), Column("own"), Column("buffers")


def render(answer: PyObjects, style: Style, cut: int = 0, some: bool = False) -> str:
    """Return the text of the answer. A table has a row for each type, one for types that are not listed, and the total.
    Sentences follow about memory that is in no row.

    ``cut``: how many types are not listed.
    ``some``: whether only some types were requested, so that memory of other types is not mentioned.
    """
    if some and not answer.rows:
        return style.filled("No type's name matches; 'heap pyobjects' lists all types.")
    has_mapped = answer.total.mapped > 0
    every: list[TypeRow | Count] = [answer.total, *answer.rows]
    shares = Shares(style, ((_whole(row), row.absent) for row in every))
    rows = [_cells(row, row.type, style, has_mapped, shares) for row in answer.rows]
    if cut:
        rest = Count(*left_over(answer.total, answer.rows, TOTALS))
        rows.append(_cells(rest, f"({cut:,} more types)", style, has_mapped, shares))
    total = _cells(answer.total, "total", style, has_mapped, shares)
    told = [_sentence(answer, style)] if some else sentences(answer, style)[1:]
    sizes = [Column("mapped"), Column("total")] if has_mapped else [Column("total")]
    columns = (*COLUMNS, *sizes, *shares.columns, Column("type", True))
    parts = [style.filled(_largest(answer, style)), table(columns, rows, style, total), *map(style.filled, told)]
    return join(*parts, "" if some else _unknown(answer, style))


def sentences(answer: PyObjects, style: Style) -> list[str]:
    """Return sentences about the sum of all objects, and about memory that is not in the table."""
    return [
        _largest(answer, style),
        _sentence(answer, style),
        _mapped(answer, style),
        _elsewhere(answer, style),
        _beside(answer, style),
    ]


def _whole(row: TypeRow | Count) -> int:
    return row.own + row.buffers + row.mapped


def _cells(row: TypeRow | Count, name: str, style: Style, has_mapped: bool, shares: Shares) -> list[str]:
    sizes = [row.own, row.buffers, *([row.mapped] if has_mapped else []), _whole(row)]
    return [count_text(row.count), *map(style.size, sizes), *shares.cells(_whole(row), row.absent), name]


def _sentence(answer: PyObjects, style: Style) -> str:
    total = answer.total
    both = total.own + total.buffers
    together = f"{style.bytes(both)} together{style.of_rss(both, total.absent)}"
    start = (
        f"{total.count:,} objects hold {style.bytes(total.own)} in their own blocks and {style.bytes(total.buffers)} "
        f"in buffers (a dict's keys, a list's items, a set's table): {together}."
    )
    if total.reached:
        start += f" {style.bytes(total.reached)} of the buffers were found by following pointers in C structures."
    return start


def _largest(answer: PyObjects, style: Style) -> str:
    """Return a sentence about the largest listed type; "" if no type is listed."""
    both = answer.total.own + answer.total.buffers
    if not answer.rows or not both:
        return ""
    most = max(answer.rows, key=lambda row: row.own + row.buffers)
    share = 100 * (most.own + most.buffers) / both
    return f"Largest type: {most.type}, {share:.1f} % of {style.bytes(both)} in {counted(most.count, 'object')}."


def _unknown(answer: PyObjects, style: Style) -> str:
    """Return the table of the largest blocks with unknown contents. One row stands for all such blocks that are not
    listed; the total is the last row.

    Return "" if these blocks are only a tiny part of the memory in use.
    """
    count = answer.unclassified.count + answer.other_chunks.count
    size = answer.unclassified.bytes + answer.other_chunks.bytes
    if not answer.unidentified or size < FOLDED * answer.all_used.bytes:
        return ""
    rows = [[address_text(block.address), style.size(block.size), block.look] for block in answer.unidentified]
    if count > len(rows):
        rest = size - sum(block.size for block in answer.unidentified)
        rows.append([f"{count - len(rows):,} more", style.size(rest), ""])
    return table(UNKNOWN, rows, style, ["total", style.size(size), ""])


def _others(answer: PyObjects) -> Tally:
    return Tally(sum(root.count for root in answer.roots), sum(root.bytes for root in answer.roots))


def _names(answer: PyObjects) -> str:
    names = [root.name for root in answer.roots]
    return ", ".join(names[:MAX_NAMES]) + (", …" if len(names) > MAX_NAMES else "")


def _mapped(answer: PyObjects, style: Style) -> str:
    """Return a sentence about memory that objects have mapped in addition to their blocks; "" if there is none."""
    size = answer.total.mapped
    return f"In addition, objects own {style.bytes(size)} of mapped files and other mapped memory." if size else ""


def _elsewhere(answer: PyObjects, style: Style) -> str:
    if not answer.elsewhere.count:
        return ""
    return (
        f"{style.bytes(answer.elsewhere.bytes)} of these bytes, in {answer.elsewhere.count:,} blocks, is in the "
        "memory of an allocator whose blocks gdbheap cannot list: the sizes of these blocks come from the objects' "
        "own fields."
    )


def _beside(answer: PyObjects, style: Style) -> str:
    parts = (
        ("block", "of the interpreter itself", answer.interpreter),
        ("block", f"of libraries and threads ({_names(answer)})", _others(answer)),
        ("used block", "with unknown contents", answer.unclassified),
        ("object", "on the interpreter's free lists", answer.free_lists),
        ("malloc block", "without a known owner", answer.other_chunks),
    )
    told = [
        f"{style.bytes(part.bytes)} in {counted(part.count, noun)} {which}" for noun, which, part in parts if part.count
    ]
    return f"Not in the table: {'; '.join(told)}." if told else ""
