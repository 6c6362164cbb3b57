"""Who holds the used blocks of a Python process, and what lies in any one of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from gdbheap import _native
from gdbheap.allocators.glibc import MappedChunk
from gdbheap.allocators.pymalloc import Pymalloc
from gdbheap.errors import Fault, Unsupported
from gdbheap.layout import cpython
from gdbheap.layout.facts import Facts
from gdbheap.objects.contents import short_text
from gdbheap.objects.names import TypeNames
from gdbheap.objects.owned import CLOSED, REACHED, ROLES, Family, families
from gdbheap.objects.roots import Roots

SAMPLED_POOLS = 16
TYPES_IN_POOLS = 2
LEAST_VOTES = 20
ANY = cpython.FLAG_GC | cpython.FLAG_MANAGED_DICT | cpython.FLAG_MANAGED_WEAKREF
PRE_HEADER = 16
GC_HEADS = (16, 24, 32)

Progress = Callable[[int, int], object]


@dataclass(frozen=True)
class TypeLayout:
    """What the native classifier is told; see native/src/types.rs."""

    data: list[tuple[int, int]]
    smallest_heap_type: int
    gc_head: int
    flags_pre_header: int
    families: list[Family]
    class_dealloc: int = 0
    closed: tuple[str, ...] = CLOSED
    reached_role: int = REACHED
    pre_header: int = PRE_HEADER
    ob_type: int = cpython.OB_TYPE
    tp_name: int = cpython.TP_NAME
    tp_basicsize: int = cpython.TP_BASICSIZE
    tp_itemsize: int = cpython.TP_ITEMSIZE
    tp_flags: int = cpython.TP_FLAGS
    tp_base: int = cpython.TP_BASE
    tp_dealloc: int = cpython.TP_DEALLOC
    flag_gc: int = cpython.FLAG_GC
    flag_type_subclass: int = cpython.FLAG_TYPE
    flag_no_minimum: int = cpython.FLAG_UNICODE


@dataclass(frozen=True)
class Found:
    """The object in a block: its address, its type's address and name, and whether it is alive (not on a free list)."""

    address: int
    type_address: int
    type: str
    alive: bool


@dataclass(frozen=True)
class Question:
    """What a census is told beside the heaps; see native/src/census.rs."""

    roots: list[tuple[int, int, int]]
    last: int
    watched: list[int]
    unknown: int


@dataclass(frozen=True)
class Owner:
    """Who owns a buffer: the object's address and type's name, and what the buffer is to it (``items``, ``keys``).

    For a block that no object but a root leads to (see ``Roots``) the type is None, ``address`` is that of the word
    that leads there, and ``role`` names the root.
    """

    address: int
    type: str | None
    role: str


class Objects:
    """The Python objects of one target, in pymalloc's pools, glibc's ``chunks`` and its ``mapped`` chunks.

    Raises Unsupported when the layout cannot be proven.
    """

    def __init__(
        self,
        python: Pymalloc,
        release: cpython.Release,
        chunks: _native.Chunks,
        mapped: Sequence[MappedChunk],
        roots: Roots,
        facts: Facts,
    ) -> None:
        self.target = python.target
        self.roots = roots
        self.python = python
        self.release = release
        self._chunks = chunks
        self._mapped = [(chunk.chunk, chunk.end) for chunk in mapped if not chunk.cached]
        data = sorted(pair for loaded in self.target.objects for pair in loaded.writable_ranges())
        blank = TypeLayout(data, release["sizeof_heaptype"], 0, release["flags_pre_header"], families(release))
        self.layout = self._prove(blank, facts)
        self.names = TypeNames(self.target.space, release)
        self._owners: dict[int, Owner | None] = {}

    def _prove(self, layout: TypeLayout, facts: Facts) -> TypeLayout:
        """Learns from the blocks themselves what precedes an object, and compares with what the release says."""
        votes = _native.vote_distances(self.target.space, self._chunks, self.python.pools, layout, ANY, SAMPLED_POOLS)
        gc_head = _winner(votes, cpython.FLAG_GC)
        if gc_head is None:
            raise Unsupported(
                f"the objects of Python {self.release.text} were not recognised: no distance between blocks and "
                "objects prevails (tried the types' own flags on a sample of pools); a debug build or debug hooks?"
            )
        facts.add("PyGC_Head", gc_head, f"{sum(votes.values())} objects in a sample of pools")
        self._confirm_pre_header(votes, gc_head, layout, facts)
        return replace(layout, gc_head=gc_head, class_dealloc=self._class_dealloc(layout))

    def _class_dealloc(self, layout: TypeLayout) -> int:
        """``subtype_dealloc``: the deallocator that more heap types have than any other; 0 when there are none."""
        sample = _native.sample_types(self.target.space, self._chunks, self.python.pools, layout, TYPES_IN_POOLS)
        heap_types = [address for address, flags in sample.items() if flags & cpython.FLAG_HEAP_TYPE]
        votes: Counter[int] = Counter()
        for address in heap_types:
            with suppress(Fault):
                votes[self.target.space.u64(address + cpython.TP_DEALLOC)] += 1
        return votes.most_common(1)[0][0] if votes else 0

    def _confirm_pre_header(
        self, votes: dict[tuple[int, int], int], gc_head: int, layout: TypeLayout, facts: Facts
    ) -> None:
        """Objects with a managed dictionary must occur where the release's table puts them."""
        flags = cpython.FLAG_GC | cpython.FLAG_MANAGED_DICT
        ballots = _ballots(votes, flags)
        if not layout.flags_pre_header & cpython.FLAG_MANAGED_DICT or sum(ballots.values()) < LEAST_VOTES:
            return
        if not ballots.get(gc_head + PRE_HEADER):
            raise Unsupported(f"no object with a managed dictionary stands {gc_head + PRE_HEADER} bytes into its block")
        facts.add("pre-header of managed dictionaries", PRE_HEADER, "shipped table", "objects in a sample of pools")

    def census(
        self, watched: Sequence[int] = (), progress: Progress | None = None, unknown: int = 0
    ) -> _native.Census:
        """Classify every used block; the owners of the ``watched`` blocks (user addresses) are remembered, and the
        ``unknown`` largest blocks that nobody leads to are listed."""
        question = Question(self.roots.ranges, self.roots.last, list(watched), unknown)
        census = _native.take_census(
            self.target.space, self._chunks, self.python.pools, self._mapped, self.layout, question, progress
        )
        self._owners.update(dict.fromkeys(watched))
        for block, address, type_address, role in census.owners:
            if type_address:
                self._owners[block] = Owner(address, self.names.name(type_address), ROLES[role])
            else:
                self._owners[block] = Owner(address, None, self.roots.names[role])
        return census

    def objects_in(self, blocks: Sequence[tuple[int, int]]) -> list[Found | None]:
        """The object in each block (user address, size of the block), or None."""
        rows = _native.objects_in(self.target.space, self._chunks, self.layout, list(blocks))
        return [None if row is None else Found(row[0], row[1], self.names.name(row[1]), row[2]) for row in rows]

    def chunks_of(
        self, kinds: set[int], wanted: _native.Wanted, progress: Progress | None = None
    ) -> list[tuple[int, int, str, int]]:
        """The wanted chunks (header, size, state, arena) that look like live objects of the types at ``kinds``."""
        space = self.target.space
        return _native.list_objects(space, self._chunks, self.layout, kinds, wanted, progress)

    def owners_of(self, blocks: Sequence[int], progress: Progress | None = None) -> dict[int, Owner | None]:
        """The owner of each block that is a buffer (user addresses); takes a census for those not yet known."""
        missing = [block for block in blocks if block not in self._owners]
        if missing:
            self.census(missing, progress)
        return {block: self._owners[block] for block in blocks}

    def text(self, found: Found) -> str | None:
        """A bounded repr of an object; None for types whose contents are not shown."""
        flags = self.names.flags(found.type_address)
        return short_text(self.target.space, self.release, found.address, flags, found.type)


def _ballots(votes: dict[tuple[int, int], int], flags: int) -> dict[int, int]:
    """Distance to blocks, for types with exactly these flags."""
    return {distance: count for (voted, distance), count in votes.items() if voted == flags}


def _winner(votes: dict[tuple[int, int], int], flags: int) -> int | None:
    """The size of PyGC_Head that most objects with exactly these flags agree on; None when too few do.

    A block that holds a small number before a pointer to a class votes too, wherever it has them.
    """
    ballots = {size: count for size, count in _ballots(votes, flags).items() if size in GC_HEADS}
    best = max(ballots, key=lambda size: ballots[size], default=0)
    return best if ballots.get(best, 0) >= LEAST_VOTES else None
