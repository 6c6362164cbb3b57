"""Find every jemalloc of one target without symbols: as a library, or linked into a program or a module. A target may
have several.

A module's static data holds the root of a tree that maps each page to its extent. The extents confirm the tree, because
each stores the address of its pages.

The release and the size classes are determined from a sample of active extents. Their data must fit a known layout of
the structures. In a slab, these data are the size, the bitmap and the count of free regions. In a large block, they are
the size and the class."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from gdbheap import _native
from gdbheap.allocators.extents import are_enough, own_ranges
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault
from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.ranges import Ranges, joined
from gdbheap.targets.target import Target

# The most bytes of thread-local data that are searched for one module of a thread, and the most modules of one thread.
STORAGE, MAX_MODULES = 16 << 10, 512


@dataclass(frozen=True)
class LocatedJemalloc:
    """One jemalloc: the name of its layout (``form``), its tree, its module, and how well a sample of extents
    fits the layout.

    ``address``: the root of the tree. ``bits``: the number of bits of the addresses that the tree covers.
    """

    form: str
    address: int
    bits: int
    module: LoadedObject
    fit: _native.JemallocFit


def thread_storage(target: Target) -> Ranges:
    """Return the ranges in which the thread-local data of modules may lie, for all threads, ascending and disjoint.

    The ranges are the static thread-local storage, and the memory to which each thread's dtv points. The dtv (``dtv_t
    *``) is the second word of the thread's control block, and has an entry ``{value, to_free}`` for each module."""
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


def find_roots(target: Target) -> Iterator[LocatedJemalloc]:
    """Yield each jemalloc of the target with its layout; nothing if there is none."""
    anonymous = own_ranges(target)
    for loaded in target.objects:
        for row in _native.find_trees(target.space, loaded.writable_ranges(), anonymous):
            root = _best(target, loaded, row)
            if root is not None:
                yield root


def _best(target: Target, loaded: LoadedObject, row: _native.FoundTree) -> LocatedJemalloc | None:
    """Return the jemalloc with the layout of structures that the most extents fit; None if not enough extents fit any
    layout.
    """
    fits = [
        (form, _native.jemalloc_fit(target.space, form, row.address, row.bits)) for form in _native.jemalloc_forms()
    ]
    form, fit = max(fits, key=lambda pair: pair[1].fit)
    return LocatedJemalloc(form, row.address, row.bits, loaded, fit) if are_enough(fit.fit, fit.extents) else None
