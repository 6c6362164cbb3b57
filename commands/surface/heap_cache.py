"""The Heap of one stop, kept for the next command, and dropped when the target may have changed. Imports no gdb."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gdbheap.heap import Heap

__all__ = ["HeapCache"]


class HeapCache:
    """One Heap for each inferior. ``key`` says what the inferior is (its process or its core's file)."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Hashable, Heap]] = {}

    def heap(self, inferior: int, key: Hashable, make: Callable[[], Heap]) -> Heap:
        """The Heap that was made for the same inferior and key, else a new one."""
        found = self._kept.get(inferior)
        if found is None or found[0] != key:
            self.drop(inferior)
            self._kept[inferior] = found = (key, make())
        return found[1]

    def has(self, heap: Heap) -> bool:
        """Whether a Heap is kept still."""
        return any(kept is heap for _key, kept in self._kept.values())

    def drop(self, inferior: int | None = None) -> None:
        """Forget the Heap of one inferior, or all of them."""
        if inferior is None:
            self._kept.clear()
        else:
            self._kept.pop(inferior, None)
