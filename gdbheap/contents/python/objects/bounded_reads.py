"""What is read of a target's memory to tell what its objects say: a Space, or one with a budget."""

from __future__ import annotations

from typing import Protocol

from gdbheap._native import Space
from gdbheap.machines.machine import Machine

# Read at a time: a part of a page on every machine.
STEP = 4 << 10
MAX_PAGES = 1 << 14


class Memory(Protocol):
    """Each raises Fault where nothing is."""

    @property
    def machine(self) -> Machine:
        """Of the target."""

    def read(self, address: int, size: int) -> bytes:
        """Exactly ``size`` bytes."""

    def word(self, address: int) -> int:
        """A word."""

    def u32(self, address: int) -> int:
        """Half of one."""


def signed_word(memory: Memory, address: int) -> int:
    """A word with a sign (Py_ssize_t). Raises Fault."""
    return int(memory.machine.structure("N").unpack(memory.read(address, memory.machine.word))[0])


class Pages:
    """A target that does not run, read a page at a time: for walks that look at a word here and a word there."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self.machine = space.machine
        self._word = space.machine.structure("P")
        self._pages: dict[int, bytes] = {}

    def _page(self, number: int) -> bytes:
        page = self._pages.get(number)
        if page is None:
            if len(self._pages) >= MAX_PAGES:
                self._pages.clear()
            page = self._pages[number] = self._space.read_available(number * STEP, STEP)
        return page

    def word(self, address: int) -> int:
        """A word. Raises Fault."""
        at = address % STEP
        page = self._page(address // STEP)
        if at + self._word.size <= len(page):
            word: int = self._word.unpack_from(page, at)[0]
            return word
        return self._space.word(address)

    def u32(self, address: int) -> int:
        """Half of one. Raises Fault."""
        return int.from_bytes(self.read(address, 4), "little")

    def read(self, address: int, size: int) -> bytes:
        """Exactly ``size`` bytes. Raises Fault."""
        at = address % STEP
        if at + size <= STEP:
            found = self._page(address // STEP)[at : at + size]
            if len(found) == size:
                return found
        return self._space.read(address, size)

    def read_available(self, address: int, size: int) -> bytes:
        """As many of the bytes as there are before the first that is absent."""
        return self._space.read_available(address, size)

    def cstring(self, address: int, limit: int) -> bytes:
        """Up to the byte 0. Raises Fault."""
        return self._space.cstring(address, limit)
