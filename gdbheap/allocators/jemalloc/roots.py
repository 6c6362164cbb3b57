"""Every jemalloc of one target: a library, what is linked into a program or a module; several may be there at once. No
symbols are needed.

A module's static data holds the root of a tree that leads from each page to its extent, and extents say which pages
they have: that proves the tree. Which release and which size classes it is, is asked of the active extents: of a slab
size, bitmap and count of free regions, of a large block size and class must be as a form of the structures says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gdbheap import _native
from gdbheap.target.elf import LoadedObject
from gdbheap.target.ranges import Ranges, joined
from gdbheap.target.target import Target

# Of the active extents of a sample so many in ten must be as the form says.
ENOUGH = 9


@dataclass(frozen=True)
class Root:
    """One jemalloc: the form of its structures, the root of its tree, for how many ``bits`` of addresses that is, the
    module that it is in, and what was asked of its extents."""

    form: _native.JemallocForm
    address: int
    bits: int
    module: LoadedObject
    fit: _native.JemallocFit


def own_ranges(target: Target) -> Ranges:
    """Where its memory may lie, ascending and joined."""
    return joined([
        (mapping.start, mapping.end)
        for mapping in target.mappings
        if mapping.anonymous and mapping.private and mapping.writable and mapping.readable
    ])  # fmt: skip


def find_roots(target: Target) -> Iterator[Root]:
    """All there are."""
    anonymous = own_ranges(target)
    for loaded in target.objects:
        for row in _native.find_trees(target.space, loaded.writable_ranges(), anonymous):
            root = _best(target, loaded, row)
            if root is not None:
                yield root


def _best(target: Target, loaded: LoadedObject, row: _native.FoundTree) -> Root | None:
    """With the form that fits most extents; None where none fits enough of them."""
    fits = [
        (form, _native.jemalloc_fit(target.space, form.name, row.address, row.bits))
        for form in _native.jemalloc_forms()
    ]
    form, fit = max(fits, key=lambda pair: pair[1].fit)
    enough = fit.fit and fit.fit * 10 >= fit.extents * ENOUGH
    return Root(form, row.address, row.bits, loaded, fit) if enough else None
