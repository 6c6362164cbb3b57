"""Every jemalloc of one target: a library, what is linked into a program or a module; several may be there at once. No
symbols are needed.

A module's static data holds the root of a tree that leads from each page to its extent, and extents say which pages
they have: that proves the tree. Which release and which size classes it is, is asked of the active extents: of a slab
size, bitmap and count of free regions, of a large block size and class must be as a form of the structures says.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from gdbheap import _native
from gdbheap.allocators.extents import are_enough, own_ranges
from gdbheap.errors import Fault
from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.ranges import Ranges, joined
from gdbheap.targets.target import Target

# Of a thread's storage for one module, and modules that have some, at most.
STORAGE, MAX_MODULES = 16 << 10, 512


@dataclass(frozen=True)
class Root:
    """One jemalloc: the form of its structures, the root of its tree, for how many ``bits`` of addresses that is, the
    module that it is in, and what was asked of its extents."""

    form: _native.JemallocForm
    address: int
    bits: int
    module: LoadedObject
    fit: _native.JemallocFit


def thread_storage(target: Target) -> Ranges:
    """Where threads may have their data of modules, ascending and disjoint: their static storage, and what their dtv
    leads to (``dtv_t *`` behind the first word of the thread's control block, ``{value, to_free}`` for each module)."""
    found, word = [], target.machine.word
    for pointer in [thread.thread_pointer for thread in target.threads if thread.thread_pointer]:
        places = [target.machine.storage.data(pointer, STORAGE)[0]]
        with suppress(Fault):
            dtv = target.space.word(pointer + word)
            places += target.machine.words_of(target.space.read_available(dtv, 2 * word * MAX_MODULES))[::2]
        mappings = ((place, target.mappings.find(place)) for place in places)
        found += [
            (target.machine.word_up(place), min(mapping.end, place + STORAGE))
            for place, mapping in mappings
            if mapping is not None and mapping.anonymous and mapping.readable
        ]
    return joined(sorted(pair for pair in found if pair[0] < pair[1]))


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
    return Root(form, row.address, row.bits, loaded, fit) if are_enough(fit.fit, fit.extents) else None
