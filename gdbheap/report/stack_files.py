"""Stacks with weights as files for other programs, and for the eye."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gdbheap.files import write_text
from gdbheap.report.flame import flame_graph
from gdbheap.report.weighted import folded, speedscope

if TYPE_CHECKING:
    from gdbheap.answers.stacks import Weighted

__all__ = ["KINDS", "write_stacks"]

KINDS: dict[str, Callable[[Sequence[Weighted], str], str]] = {
    "folded": lambda stacks, _title: folded(stacks),
    "svg": flame_graph,
    "speedscope": speedscope,
}


def write_stacks(kind: str, path: str, stacks: Sequence[Weighted], title: str) -> None:
    """Write one of KINDS. Raises UsageError where that is not possible."""
    write_text(path, KINDS[kind](stacks, title))
