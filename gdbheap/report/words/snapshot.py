"""The text of ``heap snapshot``: the file that was written, and how much it contains."""

from __future__ import annotations

from gdbheap.report.text.numbers import counted
from gdbheap.report.text.style import Style
from gdbheap.snapshots.snapshot import WrittenSnapshot

__all__ = ["render"]


def render(answer: WrittenSnapshot, style: Style) -> str:
    """Return a sentence with the path and size of the snapshot's file, and the number of types, holes and other items
    in it.
    """
    parts = [counted(answer.type_count, "type")] if answer.type_count else []
    parts += [counted(answer.hole_count, "hole")] if answer.hole_count else []
    parts.append(f"{answer.line_count:,} lines of the ledger")
    paths = "" if answer.owner_count is None else f", paths of {answer.owner_count:,} objects"
    if answer.block_count is not None:
        parts.append(counted(answer.block_count, "block"))
    where = answer.file
    return style.filled(f"The snapshot is in {where} ({style.bytes(answer.size)}): {', '.join(parts)}{paths}.")
