"""The text of ``heap pyobjects --list``: a row for each object."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.report.text.numbers import address_text, counted
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, join, table

if TYPE_CHECKING:
    from gdbheap.answers.instances import Instance, Instances

__all__ = ["render"]

COLUMNS = (Column("address"), Column("size"), Column("buffers"), Column("type", True), Column("text", True))


def render(answer: Instances, style: Style) -> str:
    """Return the text of the answer. It begins with the number of all objects, the bytes of their own blocks, and the
    bytes of the blocks that their fields own. A table has a row for each object, one for objects that are not
    listed, and the total.
    """
    if not answer.count:
        return style.filled("No object has a type whose name matches; 'heap pyobjects' lists the types.")
    rows = [_row(instance, style) for instance in answer.rows]
    left = answer.count - len(answer.rows)
    if left:
        size = answer.own - sum(instance.size for instance in answer.rows)
        buffers = answer.buffers - sum(instance.buffers for instance in answer.rows)
        rows.append([f"{left:,} more", style.size(size), style.size(buffers), "", ""])
    total = ["total", style.size(answer.own), style.size(answer.buffers), "", ""]
    return join(style.filled(_sentence(answer, style)), table(COLUMNS, rows, style, total))


def _row(instance: Instance, style: Style) -> list[str]:
    sizes = [style.size(instance.size), style.size(instance.buffers)]
    return [address_text(instance.address), *sizes, instance.type, instance.text or "-"]


def _sentence(answer: Instances, style: Style) -> str:
    objects = counted(answer.count, "object holds", "objects hold")
    its, blocks = ("its", "block") if answer.count == 1 else ("their", "blocks")
    return (
        f"{objects} {style.bytes(answer.own)} in {its} own {blocks}, and {style.bytes(answer.buffers)} in the blocks "
        f"that {its} fields own. 'heap at ADDRESS' shows details of one object."
    )
