"""Every tcmalloc of gperftools of one target: a library, what is linked into a program or a module. No symbols are
needed.

A module's static data holds the root of a map that leads from each page to its span, and spans say which pages they
have: that proves the map. The sizes of blocks are a table in the same data; it is proven by spans, whose free blocks
and count of those that are handed out must be as many blocks as have room.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gdbheap import _native
from gdbheap.allocators.extents import are_enough, own_ranges
from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.target import Target

__all__ = ["Root", "find_roots"]


@dataclass(frozen=True)
class Root:
    """One tcmalloc: the root of its map of pages, the bytes of a ``page``, the module that it is in, and what was asked
    of its spans."""

    address: int
    page: int
    module: LoadedObject
    fit: _native.TcmallocFit


def find_roots(target: Target) -> Iterator[Root]:
    """All there are, one for each module at most: of several sizes of pages the one that fits most spans."""
    anonymous = own_ranges(target)
    for loaded in target.objects:
        data = loaded.writable_ranges()
        found = [
            Root(row.address, row.page, loaded, _native.tcmalloc_fit(target.space, row.address, row.page, data))
            for row in _native.find_span_maps(target.space, data, anonymous)
        ]
        best = max(found, key=lambda root: root.fit.fit, default=None)
        if best is not None and are_enough(best.fit.fit, best.fit.spans):
            yield best
