"""Keep the heap of a stop for the next command, until the target may have changed. This module does not import gdb."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gdbheap.heap import Heap

__all__ = ["HeapCache"]


class HeapCache:
    """The cached heaps, one for each of gdb's inferiors."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Hashable, Heap]] = {}

    def heap(self, inferior: int, key: Hashable, make: Callable[[], Heap]) -> Heap:
        """Return the cached heap of an inferior. If it was made for another ``key``, make a new one.

        ``key``: identifies the inferior's target, its process or its core.
        """
        found = self._kept.get(inferior)
        if found is None or found[0] != key:
            self.drop(inferior)
            self._kept[inferior] = found = (key, make())
        return found[1]

    def has(self, heap: Heap) -> bool:
        """Return whether a heap is still in the cache."""
        return any(kept is heap for _key, kept in self._kept.values())

    def drop(self, inferior: int | None = None) -> None:
        """Forget the heap of one inferior, or the heaps of all inferiors."""
        if inferior is None:
            self._kept.clear()
        else:
            self._kept.pop(inferior, None)
