"""Write stacks with weights to files: for other programs, or as a picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gdbheap.files import PRIVATE, write_text
from gdbheap.report.formats.flame import CALLS, Subject, flame_graph
from gdbheap.report.formats.weighted import folded, speedscope

if TYPE_CHECKING:
    from gdbheap.stacks import Weighted

__all__ = ["KINDS", "write_stacks"]

KINDS: dict[str, Callable[[Sequence[Weighted], str, Subject], str]] = {
    "folded": lambda stacks, _title, _subject: folded(stacks),
    "svg": lambda stacks, title, subject: flame_graph(stacks, title, subject=subject),
    "speedscope": lambda stacks, title, subject: speedscope(stacks, title, counts=subject.counts),
}


def write_stacks(
    kind: str, path: str, stacks: Sequence[Weighted], title: str, subject: Subject = CALLS, mode: int = PRIVATE
) -> None:
    """Write the stacks to a file. ``kind``: one of KINDS; ``subject``: what the stacks show. Raises UsageError if the
    file cannot be written."""
    write_text(path, KINDS[kind](stacks, title, subject), mode)
