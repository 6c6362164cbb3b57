"""Find every tcmalloc (gperftools) of one target without symbols: as a library, or linked into a program or a module.

A module's static data holds the root of a map that leads from each page to its span, and spans name their pages: that
proves the map. The block sizes are a table in the same data. Spans prove it: their free blocks and their count of
allocated blocks must add up to the blocks that have room.
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
    """One tcmalloc: its map of pages, the bytes of a ``page``, its module, and how well a sample of spans fits."""

    address: int
    page: int
    module: LoadedObject
    fit: _native.TcmallocFit


def find_roots(target: Target) -> Iterator[Root]:
    """Yield every tcmalloc of the target, at most one for each module.

    Of several page sizes the one that fits the most spans is chosen."""
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
