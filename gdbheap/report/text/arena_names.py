"""Names of arenas in tables with several allocators."""

from __future__ import annotations

from gdbheap.allocators.finding import OF_C_LIBRARIES
from gdbheap.report.text.numbers import arena_text

__all__ = ["arena_name", "arena_number"]


def arena_number(index: int | None, allocator: str) -> str:
    """Return an arena's number in a row that names its allocator; only a C library's first arena is "main"."""
    return arena_text(index) if index is None or allocator in OF_C_LIBRARIES else str(index)


def arena_name(index: int | None, allocator: str) -> str:
    """Return an arena as ``--arena`` takes it, with its allocator unless that is a C library's."""
    return arena_text(index) if index is None or allocator in OF_C_LIBRARIES else f"{allocator}:{index}"
