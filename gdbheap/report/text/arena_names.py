"""The names of arenas in tables with several allocators."""

from __future__ import annotations

from gdbheap.allocators.registry import OF_C_LIBRARIES
from gdbheap.report.text.numbers import arena_text

__all__ = ["arena_name", "arena_number"]


def arena_number(index: int | None, allocator: str) -> str:
    """Return an arena's number for a row that names the arena's allocator. Only the first arena of a C library is
    "main"."""
    return arena_text(index) if index is None or allocator in OF_C_LIBRARIES else str(index)


def arena_name(index: int | None, allocator: str) -> str:
    """Return the name of an arena as ``--arena`` accepts it: with its allocator, unless that is the C library's."""
    return arena_text(index) if index is None or allocator in OF_C_LIBRARIES else f"{allocator}:{index}"
