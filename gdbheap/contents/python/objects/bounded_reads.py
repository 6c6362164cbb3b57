"""The interface for reading a target's memory to interpret objects. Three classes implement it: the native ``Space``,
``Pages``, which reads through a cache, and a reader that limits how much is read.
"""

from __future__ import annotations

from typing import Protocol

from gdbheap._native import Space
from gdbheap.machines.machine import Machine

# The bytes that are read at a time; no page of any machine is smaller.
STEP = 4 << 10
MAX_PAGES = 1 << 14


class ReadableMemory(Protocol):
    """The memory of a target. Each read raises Fault if bytes are absent."""

    @property
    def machine(self) -> Machine:
        """The target's kind of machine, which decides the size of a word."""

    def read(self, address: int, size: int) -> bytes:
        """Return exactly ``size`` bytes."""

    def word(self, address: int) -> int:
        """Return the word at ``address``."""

    def u32(self, address: int) -> int:
        """Return the little-endian 32-bit number at ``address``."""


def signed_word(memory: ReadableMemory, address: int) -> int:
    """Return the signed word (Py_ssize_t) at ``address``. Raises Fault."""
    return int(memory.machine.structure("N").unpack(memory.read(address, memory.machine.word))[0])


class Pages:
    """The memory of a stopped target. It is read and cached STEP bytes at a time, for many reads of single words."""

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
        """Return the word at ``address``. Raises Fault if it is absent."""
        at = address % STEP
        page = self._page(address // STEP)
        if at + self._word.size <= len(page):
            word: int = self._word.unpack_from(page, at)[0]
            return word
        return self._space.word(address)

    def u32(self, address: int) -> int:
        """Return the little-endian 32-bit number at ``address``. Raises Fault."""
        return int.from_bytes(self.read(address, 4), "little")

    def read(self, address: int, size: int) -> bytes:
        """Return exactly ``size`` bytes. Raises Fault."""
        at = address % STEP
        if at + size <= STEP:
            found = self._page(address // STEP)[at : at + size]
            if len(found) == size:
                return found
        return self._space.read(address, size)

    def read_available(self, address: int, size: int) -> bytes:
        """Return the bytes before the first absent one, at most ``size``."""
        return self._space.read_available(address, size)

    def cstring(self, address: int, limit: int) -> bytes:
        """Return the bytes before the first zero byte, at most ``limit``. Raises Fault."""
        return self._space.cstring(address, limit)
