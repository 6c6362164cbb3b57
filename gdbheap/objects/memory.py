"""What is read of a target's memory to tell what its objects say: a Space, or one with a budget."""

from __future__ import annotations

from typing import Protocol


class Memory(Protocol):
    """Each raises Fault where nothing is."""

    def read(self, address: int, size: int) -> bytes:
        """Exactly ``size`` bytes."""

    def u64(self, address: int) -> int:
        """A word."""

    def u32(self, address: int) -> int:
        """Half of one."""
