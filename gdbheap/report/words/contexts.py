"""The text of ``heap contexts``: a row for each memory context of a PostgreSQL backend, and sums by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.report.text.numbers import address_text, counted
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, join, table

if TYPE_CHECKING:
    from gdbheap.answers.contexts import ContextName, ContextRow, Contexts

__all__ = ["render"]

NAMES = (
    Column("total"), Column("free"), Column("used"), Column("count"), Column("context", True),
    Column("example", True),
)  # fmt: skip
SHOWN_NAMES = 10
COLUMNS = (
    Column("total"), Column("free"), Column("used"), Column("level"), Column("context", True),
    Column("identifier", True), Column("address"),
)  # fmt: skip


def render(answer: Contexts, style: Style) -> str:
    """Return the text of the answer: the number of contexts, the bytes that they got from malloc, and the free bytes
    among these. If several contexts have the same name, a row for each name follows; then a row for each context.

    Contexts that are not listed share one row. The total is the last row.
    """
    rows = [_row(row, style) for row in answer.rows]
    left = answer.count - len(answer.rows)
    if left:
        rest = (
            getattr(answer, name) - sum(getattr(row, name) for row in answer.rows) for name in ("bytes", "free", "used")
        )
        rows.append([*map(style.size, rest), "", f"{left:,} more", "", ""])
    sums = [style.size(answer.bytes), style.size(answer.free), style.size(answer.used)]
    listed = table(COLUMNS, rows, style, [*sums, "", "total", "", ""])
    return join(style.filled(_sentence(answer, style)), _names(answer, style), listed)


def _names(answer: Contexts, style: Style) -> str:
    """Return the table of the names whose contexts have the most memory; "" if each context has a name of its own."""
    if len(answer.by_name) == answer.count:
        return ""
    shown, left = answer.by_name[:SHOWN_NAMES], answer.by_name[SHOWN_NAMES:]
    rows = [[*_sizes(row, style), f"{row.count:,}", row.name, row.example or ""] for row in shown]
    if left:
        rest = (style.size(sum(getattr(row, key) for row in left)) for key in ("bytes", "free", "used"))
        rows.append([*rest, f"{sum(row.count for row in left):,}", f"{counted(len(left), 'other name')}", ""])
    return table(NAMES, rows, style)


def _sizes(row: ContextRow | ContextName, style: Style) -> list[str]:
    return [style.size(row.bytes), style.size(row.free), style.size(row.used)]


def _row(row: ContextRow, style: Style) -> list[str]:
    return [*_sizes(row, style), str(row.level), row.name, row.ident or "-", address_text(row.address)]


def _sentence(answer: Contexts, style: Style) -> str:
    contexts = counted(answer.count, "memory context holds", "memory contexts hold")
    return (
        f"{contexts} {style.bytes(answer.bytes)} from malloc, counted as in pg_backend_memory_contexts. "
        f"{style.bytes(answer.free)} of that is free: PostgreSQL can hand it out again.{_most(answer, style)}"
    )


def _most(answer: Contexts, style: Style) -> str:
    """Return a sentence that names the contexts with the most memory."""
    if not answer.by_name:
        return ""
    first = max(answer.by_name, key=lambda row: row.bytes)
    have = f"{first.count:,} contexts named {first.name} have" if first.count > 1 else f"The context {first.name} has"
    return f" {have} the most: {style.bytes(first.bytes)}."
