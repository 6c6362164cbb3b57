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
from gdbheap.objects.names import TypeNames
from gdbheap.objects.owned import CLOSED, REACHED, ROLES, Family, families
from gdbheap.objects.repr import Limits, Repr
from gdbheap.objects.roots import Roots
from gdbheap.objects.sizing import sizing
from gdbheap.objects.slabs import Slab, slab

SAMPLED_POOLS = 16
TYPES_IN_POOLS = 2
LEAST_VOTES = 20
PRE_HEADER = 16
GC_HEADS = (16, 24, 32)
# The size of the request and its domain (Objects/obmalloc.c, _PyMem_DebugRawAlloc).
HOOK = 16
# Without a tzinfo these are allocated without the field for it (Modules/_datetimemodule.c, 2.7 to 3.15).
SHORTENED = [("datetime.time", 32), ("datetime.datetime", 40)]

Progress = Callable[[int, int], object]


@dataclass(frozen=True)
class TypeLayout:
    """What the native classifier is told; see native/src/types.rs."""

    data: list[tuple[int, int]]
    smallest_heap_type: int
    hook: int
    gc_head: int
    flags_pre_header: int
    families: list[Family]
    slab: Slab | None
    shortened: list[tuple[str, int]]
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
        self.chunks = chunks
        self.mapped = [(chunk.chunk, chunk.end) for chunk in mapped if not chunk.cached]
        data = sorted(pair for loaded in self.target.objects for pair in loaded.writable_ranges())
        heap_type, flags = release["sizeof_heaptype"], release["flags_pre_header"]
        blank = TypeLayout(data, heap_type, 0, 0, flags, families(release), slab(release), SHORTENED)
        self.layout = self._prove(blank, facts)
        self.names = TypeNames(self.target.space, release)
        self.repr = Repr(self.target.space, release, self.names)
        self._owners: dict[int, Owner | None] = {}

    def _prove(self, layout: TypeLayout, facts: Facts) -> TypeLayout:
        """Learns from the blocks themselves what precedes an object, and compares with what the release says."""
        # Other bits mean something else in each release: in 2.7 nearly every type has 1 << 3 and 1 << 4.
        mask = cpython.FLAG_GC | layout.flags_pre_header
        votes = _native.vote_distances(self.target.space, self.chunks, self.python.pools, layout, mask, SAMPLED_POOLS)
        hook = _winner(votes, 0, (0, HOOK))
        head = None if hook is None else _winner(votes, cpython.FLAG_GC, tuple(hook + size for size in GC_HEADS))
        if hook is None or head is None:
            raise Unsupported(
                f"the objects of Python {self.release.text} were not recognised: no distance between blocks and "
                "objects prevails (tried the types' own flags on a sample of pools); a debug build?"
            )
        source = f"{sum(votes.values())} objects in a sample of pools"
        if hook:
            facts.add("debug hooks", f"{hook} bytes before each block", source)
        facts.add("PyGC_Head", head - hook, source)
        self._confirm_pre_header(votes, head, layout, facts)
        return replace(layout, hook=hook, gc_head=head - hook, class_dealloc=self._class_dealloc(layout))

    def _class_dealloc(self, layout: TypeLayout) -> int:
        """``subtype_dealloc``: the deallocator that more heap types have than any other; 0 when there are none."""
        sample = _native.sample_types(self.target.space, self.chunks, self.python.pools, layout, TYPES_IN_POOLS)
        heap_types = [address for address, flags in sample.items() if flags & cpython.FLAG_HEAP_TYPE]
        votes: Counter[int] = Counter()
        for address in heap_types:
            with suppress(Fault):
                votes[self.target.space.u64(address + cpython.TP_DEALLOC)] += 1
        return votes.most_common(1)[0][0] if votes else 0

    def _confirm_pre_header(
        self, votes: dict[tuple[int, int], int], head: int, layout: TypeLayout, facts: Facts
    ) -> None:
        """Objects with a managed dictionary must occur where the release's table puts them."""
        flags = cpython.FLAG_GC | cpython.FLAG_MANAGED_DICT
        ballots = _ballots(votes, flags)
        if not layout.flags_pre_header & cpython.FLAG_MANAGED_DICT or sum(ballots.values()) < LEAST_VOTES:
            return
        if not ballots.get(head + PRE_HEADER):
            raise Unsupported(f"no object with a managed dictionary stands {head + PRE_HEADER} bytes into its block")
        facts.add("pre-header of managed dictionaries", PRE_HEADER, "shipped table", "objects in a sample of pools")

    def census(self, watched: Sequence[int] = (), progress: Progress | None = None, unknown: int = 0) -> _native.Census:
        """Classify every used block; the owners of the ``watched`` blocks (user addresses) are remembered, and the
        ``unknown`` largest blocks that nobody leads to are listed."""
        question = Question(self.roots.ranges, self.roots.last, list(watched), unknown)
        census = _native.take_census(
            self.target.space, self.chunks, self.python.pools, self.mapped, self.layout, question, progress
        )
        self._owners.update(dict.fromkeys(watched))
        for block, address, type_address, role in census.owners:
            if type_address:
                self._owners[block] = Owner(address, self.names.name(type_address), ROLES[role])
            else:
                self._owners[block] = Owner(address, None, self.roots.names[role])
        return census

    def objects_in(self, blocks: Sequence[tuple[int, int]]) -> list[Found | None]:
        """The object in each block (user address, size of the block), or None; of several the first."""
        return self._objects_at([(address, size, address) for address, size in blocks])

    def object_at(self, block: int, size: int, address: int) -> Found | None:
        """The object at ``address`` in a block (user address, size): Python 2 puts many numbers in one."""
        return self._objects_at([(block, size, address)])[0]

    def _objects_at(self, places: list[tuple[int, int, int]]) -> list[Found | None]:
        rows = _native.objects_in(self.target.space, self.chunks, self.layout, places)
        return [None if row is None else Found(row[0], row[1], self.names.name(row[1]), row[2]) for row in rows]

    def chunks_of(
        self, kinds: set[int], wanted: _native.Wanted, progress: Progress | None = None
    ) -> list[tuple[int, int, str, int]]:
        """The wanted chunks (header, size, state, arena) that look like live objects of the types at ``kinds``."""
        space = self.target.space
        return _native.list_objects(space, self.chunks, self.layout, kinds, wanted, progress)

    def instances(
        self, kinds: dict[int, int], without: set[int], order: str, top: int | None, progress: Progress | None = None
    ) -> tuple[int, int, int, list[tuple[int, int, int, int]]]:
        """Live objects of the types at ``kinds``, which have their places in the alphabet: how many, their bytes,
        their buffers', and the first ``top`` in ``order`` as (address, type, size of its block, of the blocks that its
        fields own). ``without``: blocks that only look like objects."""
        space, pools = self.target.space, self.python.pools
        mapped = sorted(self.mapped)
        return _native.list_instances(
            space, self.chunks, pools, mapped, self.layout, kinds, without, order, top, progress
        )

    def asked_sizes(self, without: set[int], progress: Progress | None = None) -> list[tuple[int, int, int]]:
        """Of each of pymalloc's size classes: (block size, live objects that tell their size, bytes they asked for)."""
        return _native.asked_sizes(
            self.target.space, self.chunks, self.python.pools, self.layout, sizing(self.release), without, progress
        )

    def owners_of(self, blocks: Sequence[int], progress: Progress | None = None) -> dict[int, Owner | None]:
        """The owner of each block that is a buffer (user addresses); takes a census for those not yet known."""
        missing = [block for block in blocks if block not in self._owners]
        if missing:
            self.census(missing, progress)
        return {block: self._owners[block] for block in blocks}

    def type_at(self, address: int) -> str:
        """The type's name of the object at ``address``, wherever it lies; "?" when that cannot be read."""
        try:
            return self.names.name(self.target.space.u64(address + cpython.OB_TYPE))
        except Fault:
            return "?"

    def text(self, found: Found, limits: Limits | None = None) -> str | None:
        """A bounded repr of an object; None when no more than its type is known of it."""
        return self.repr.text(found.address, limits or Limits())


def _ballots(votes: dict[tuple[int, int], int], flags: int) -> dict[int, int]:
    """Distance to blocks, for types with exactly these flags."""
    return {distance: count for (voted, distance), count in votes.items() if voted == flags}


def _winner(votes: dict[tuple[int, int], int], flags: int, distances: tuple[int, ...]) -> int | None:
    """The one of ``distances`` that most objects with exactly these flags agree on; None when too few do.

    A block that holds a small number before a pointer to a class votes too, wherever it has them.
    """
    ballots = {distance: count for distance, count in _ballots(votes, flags).items() if distance in distances}
    best = max(ballots, key=lambda distance: ballots[distance], default=0)
    return best if ballots.get(best, 0) >= LEAST_VOTES else None
