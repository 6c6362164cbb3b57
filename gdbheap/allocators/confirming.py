"""Check the address of a variable, found by its contents, against the symbol table."""

from __future__ import annotations

from gdbheap.targets.elf import LoadedObject

__all__ = ["confirm"]


def confirm(loaded: LoadedObject, name: str, address: int) -> str | None:
    """Compare ``address`` with the address of the symbol ``name``.

    Return "symbol" if they are equal, a sentence if they differ, None if there is no such symbol.
    """
    known = loaded.symbol(name)
    if known is None:
        return None
    return "symbol" if known == address else f"the symbol says {known:#x}"
