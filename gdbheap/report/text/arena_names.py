"""Arenas in rows of several allocators, in words."""

from __future__ import annotations

from gdbheap.allocators.finding import OF_C_LIBRARIES
from gdbheap.report.text.numbers import arena_text

__all__ = ["arena_name", "arena_number"]


def arena_number(index: int | None, allocator: str) -> str:
    """An arena of an allocator that is named beside it: only a C library's first one is called main."""
    return arena_text(index) if index is None or allocator in OF_C_LIBRARIES else str(index)


def arena_name(index: int | None, allocator: str) -> str:
    """An arena, with its allocator where that is no C library's, as ``--arena`` takes it."""
    return arena_text(index) if index is None or allocator in OF_C_LIBRARIES else f"{allocator}:{index}"
