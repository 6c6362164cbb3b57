"""``heap snapshot`` for people."""

from __future__ import annotations

from gdbheap.report.text.numbers import counted
from gdbheap.report.text.style import Style
from gdbheap.snapshots.snapshot import Written

__all__ = ["render"]


def render(answer: Written, style: Style) -> str:
    """One sentence: what is in the file."""
    parts = [counted(answer.types, "type")] if answer.types else []
    parts += [counted(answer.holes, "hole")] if answer.holes else []
    parts.append(f"{answer.lines:,} lines of the ledger")
    paths = "" if answer.owners is None else f", paths of {answer.owners:,} objects"
    if answer.blocks is not None:
        parts.append(counted(answer.blocks, "block"))
    where = answer.path
    return style.filled(f"The snapshot is in {where} ({style.bytes(answer.size)}): {', '.join(parts)}{paths}.")
