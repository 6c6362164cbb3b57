"""Find Python objects and buffers in the memory of an allocator that is not walked and serves as malloc.

The search is in native/core/src/python/unwalked.rs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from gdbheap import _native
from gdbheap.contents.python.objects.hash_tables import TableHead, tables_of
from gdbheap.contents.python.objects.roots import Roots
from gdbheap.contents.python.objects.sizing import SizeFields, sizing
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault
from gdbheap.layout.cpython import FLAG_HEAP_TYPE, FLAGS_PLAIN, Release

MAX_SAMPLED_BLOCKS = 20_000


@dataclass(frozen=True)
class Measures:
    """The offsets and flags from which the sizes of objects are computed.

    ``plain``: ``tp_flags`` of types whose objects hold no references.
    """

    sizing: SizeFields
    keys: TableHead | None
    plain: int = FLAGS_PLAIN
    flag_heap_type: int = FLAG_HEAP_TYPE


def measures(release: Release) -> Measures:
    """Return the fields from which the sizes of a release's objects are computed, and the layout of a dict table's
    header.
    """
    (keys,) = [table.head for table in tables_of(release) if table.name == "dict"]
    return Measures(sizing(release), keys)


def root_ranges(roots: Roots) -> list[list[tuple[int, int]]]:
    """Return three lists of ranges: the interpreter's data, other static data, and the threads' stacks.

    If two pointers contradict each other, the one in the earlier list is used.
    """

    def of(numbers: Sequence[int]) -> list[tuple[int, int]]:
        return [(start, end) for number, start, end in roots.ranges if number in numbers]

    others = [number for number in range(1, len(roots.names)) if number != roots.last]
    return [of([0]), of(others), of([roots.last])]


def class_dealloc(
    space: _native.Space, heaps: _native.Heaps, layout: _native.TypeLayout, claimed: _native.Claimed
) -> int:
    """Return the address of ``subtype_dealloc``; 0 if ``claimed`` has no objects of heap types.

    ``claimed``: the blocks that were found in unwalked memory. ``subtype_dealloc`` is the most frequent deallocator of
    the heap types of their objects.
    """
    places = [(start, size, start) for start, size in claimed.sample(MAX_SAMPLED_BLOCKS)]
    types = {row.type_address for row in _native.objects_in(heaps, layout, places) if row is not None}
    votes: Counter[int] = Counter()
    for address in types:
        with suppress(Fault):
            if space.word(address + layout.tp_flags) & FLAG_HEAP_TYPE:
                votes[space.word(address + layout.tp_dealloc)] += 1
    return votes.most_common(1)[0][0] if votes else 0
