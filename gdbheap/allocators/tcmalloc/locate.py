"""Find every tcmalloc (gperftools) of one target without symbols: as a library, or linked into a program or a module.

A module's static data holds the root of a map from each page to its span. The spans confirm the map, because each
stores the numbers of its pages.

The block sizes are in a table in the same data. The spans confirm the table too. The free blocks of a span and its
count of allocated blocks must add up to the number of blocks that fit into it."""

from __future__ import annotations

from collections.abc import Iterator

from gdbheap import _native
from gdbheap.allocators.extents import are_enough, own_ranges
from gdbheap.dataclass import dataclass
from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.target import Target

__all__ = ["LocatedTcmalloc", "find_roots"]


@dataclass(frozen=True)
class LocatedTcmalloc:
    """One tcmalloc of a target.

    ``address``: the address of its map of pages. ``page``: the bytes of a page. ``module``: the loaded object that
    contains this tcmalloc. ``fit``: how well its spans fit the layout.
    """

    address: int
    page: int
    module: LoadedObject
    fit: _native.TcmallocFit


def find_roots(target: Target) -> Iterator[LocatedTcmalloc]:
    """Yield every tcmalloc of the target, at most one for each module.

    If several page sizes are possible, the page size that fits the most sampled spans is chosen.
    """
    anonymous = own_ranges(target)
    for loaded in target.objects:
        data = loaded.writable_ranges()
        found = [
            LocatedTcmalloc(
                row.address, row.page, loaded, _native.tcmalloc_fit(target.space, row.address, row.page, data)
            )
            for row in _native.find_span_maps(target.space, data, anonymous)
        ]
        best = max(found, key=lambda root: root.fit.fit, default=None)
        if best is not None and are_enough(best.fit.fit, best.fit.spans):
            yield best
