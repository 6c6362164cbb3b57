"""Symbols confirm an address that was found without them, or contradict it."""

from __future__ import annotations

from gdbheap.targets.elf import LoadedObject

__all__ = ["confirm"]


def confirm(loaded: LoadedObject, name: str, address: int) -> str | None:
    """``symbol`` when the object's own symbols name the same address; None when they know nothing of it."""
    known = loaded.symbol(name)
    if known is None:
        return None
    return "symbol" if known == address else f"the symbol says {known:#x}"
