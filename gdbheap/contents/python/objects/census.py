"""Find the Python objects in blocks in use, and the owners of the other blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import field, replace

from gdbheap import _native
from gdbheap.allocators.allocator import WalkedBlocks
from gdbheap.contents.python.names.lost_names import like_modules, lost_names
from gdbheap.contents.python.names.type_names import TypeNames
from gdbheap.contents.python.objects.foreign_heaps import class_dealloc, measures, root_ranges
from gdbheap.contents.python.objects.owned import CLOSED, REACHED, ROLES, Family, families, state_size
from gdbheap.contents.python.objects.roots import ON_STACKS, THREADS, Roots
from gdbheap.contents.python.objects.sizing import sizing
from gdbheap.contents.python.objects.slabs import Slab, slab
from gdbheap.contents.python.text.disclosure import Disclosure
from gdbheap.contents.python.text.repr import Limits, Repr
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault, Unsupported
from gdbheap.graph.nodes import Nodes
from gdbheap.layout import cpython
from gdbheap.layout.facts import Facts
from gdbheap.targets.ranges import Ranges
from gdbheap.targets.target import Target

SAMPLED_POOLS = 16
ESTIMATE_POOLS = 64
TYPES_IN_POOLS = 2
MIN_VOTES = 20
PRE_HEADER = 16
GC_HEADS = (16, 24, 32)
NO_GC_HEAD = (0,)
# The number of bytes that debug hooks put before a block for the size and the domain of the request
# (Objects/obmalloc.c, _PyMem_DebugRawAlloc).
HOOK = 16
# Objects of these types that have no tzinfo are allocated without the field for it (Modules/_datetimemodule.c, 2.7 to
# 3.15).
SHORTENED = [("datetime.time", 32), ("datetime.datetime", 40)]

Progress = Callable[[int, int], object]


@dataclass(frozen=True)
class TypeLayout:
    """The layout of types and objects for the native classifier; see native/core/src/python/layout.rs."""

    data: list[tuple[int, int]]
    smallest_heap_type: int
    hook: int
    gc_head: int
    flags_pre_header: int
    families: list[Family]
    slab: Slab | None
    shortened: list[tuple[str, int]]
    state_size: list[int]
    class_dealloc: int = 0
    closed: tuple[str, ...] = CLOSED
    reached_role: int = REACHED
    pre_header: int = PRE_HEADER
    unwalked: Ranges = field(default_factory=list)
    names: list[tuple[int, str]] = field(default_factory=list)
    ob_refcnt: int = 0
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
    flags_plain: int = cpython.FLAGS_PLAIN


@dataclass(frozen=True)
class Estimate:
    """An estimate for the type at ``address``.

    ``count``, ``bytes``: the live objects. ``idle_count``, ``idle_bytes``: the objects on free lists.
    """

    type: str
    address: int
    count: int
    bytes: int
    idle_count: int
    idle_bytes: int


@dataclass(frozen=True)
class BlockObject:
    """The object in a block: its address, its type's address and name, and whether it is alive (not on a free list)."""

    address: int
    type_address: int
    type: str
    alive: bool


@dataclass(frozen=True)
class CensusRequest:
    """The request for a census; see native/core/src/python/census.rs.

    ``roots``: the owner of each root of the graph, as an index into ``Roots.names``.
    ``watched``: the blocks whose owners are remembered.
    ``unknown``: how many blocks without an owner are listed, the largest first.
    """

    roots: list[int]
    watched: list[int]
    unknown: int


@dataclass(frozen=True)
class Owner:
    """The owner of a block: the object's address, its type's name, and the role of the block (``items``, ``keys``).

    If no object owns the block, but a root reaches it (see ``Roots``), ``type`` is None. Then ``address`` is the
    address of the word that points to the block, and ``role`` names the root.
    """

    address: int
    type: str | None
    role: str


class Objects:
    """The Python objects of one target, in the ``blocks`` of its allocators.

    ``unwalked``: memory whose blocks gdbheap cannot list. An object there is included if another object points to it.
    The buffers to which its fields point are then included too.

    Raises Unsupported if the layout of the objects cannot be proven.
    """

    def __init__(
        self,
        target: Target,
        release: cpython.Release,
        blocks: WalkedBlocks,
        roots: Roots,
        facts: Facts,
        unwalked: Ranges | None = None,
        progress: Progress | None = None,
        disclosure: Disclosure | None = None,
    ) -> None:
        self.target = target
        self.roots = roots
        self.blocks = blocks
        self.release = release
        data = sorted(pair for loaded in self.target.objects for pair in loaded.writable_ranges())
        heap_type, flags = release["sizeof_heaptype"], release["flags_pre_header"]
        own, short = families(release), [(name, release.at(least)) for name, least in SHORTENED]
        blank = TypeLayout(data, heap_type, 0, 0, flags, own, slab(release), short, state_size(release))
        blank = replace(_with_head(blank, release), unwalked=unwalked or [])
        self.claimed: _native.Claimed | None = None
        self.heaps = self._heaps(blocks.stores)
        self.layout = self._prove(blank, facts)
        if unwalked:
            self.layout = self._with_claimed(self.layout, facts, progress)
        lost = self._lost_names(facts)
        if lost:
            self.layout = replace(self.layout, names=list(lost.items()))
        self.names = TypeNames(self.target.space, release, lost)
        self.repr = Repr(self.target.space, release, self.names, disclosure)
        self._owners: dict[int, Owner | None] = {}

    def heaps_with(self, mapped: Ranges) -> _native.Heaps:
        """Return the heaps with each range of mapped memory added as a block whose bytes are not read."""
        claimed = [] if self.claimed is None else [self.claimed]
        stores = [*self.blocks.stores, *claimed, _native.Claimed(mapped)]
        return self._heaps(stores) if mapped else self.heaps

    def _heaps(self, stores: Sequence[_native.BlockStore]) -> _native.Heaps:
        return _native.Heaps(self.target.space, stores)

    def _prove(self, layout: TypeLayout, facts: Facts) -> TypeLayout:
        """Return the layout with the sizes of the headers before an object, and add facts about them.

        The headers are those of the debug hook and of the collector. A sample of blocks shows their sizes. Raises
        Unsupported if no sizes fit, or if they contradict the release.
        """
        # Other bits mean different things in different releases: in 2.7 nearly every type has 1 << 3 and 1 << 4.
        mask = cpython.FLAG_GC | layout.flags_pre_header
        for where, heaps in self._sampled.items():
            votes = _native.vote_distances(heaps, layout, mask, SAMPLED_POOLS)
            hook = _winner(votes, 0, (0, HOOK))
            heads = NO_GC_HEAD if self.release.is_free_threaded else GC_HEADS
            head = None if hook is None else _winner(votes, cpython.FLAG_GC, tuple(hook + size for size in heads))
            if hook is not None and head is not None:
                source = f"{sum(vote.blocks for vote in votes)} objects in a sample of {where}"
                if hook:
                    facts.add("debug hooks", f"{hook} bytes before each block", source)
                facts.add("PyGC_Head", head - hook, source)
                self._confirm_pre_header(votes, head, layout, facts)
                dealloc = self._class_dealloc(layout, heaps)
                return replace(layout, hook=hook, gc_head=head - hook, class_dealloc=dealloc)
        if layout.unwalked:
            return self._prove_by_references(layout, facts)
        raise Unsupported(
            f"gdbheap does not recognise the objects of Python {self.release.text} (a debug build?): no distance from "
            f"the start of a block to its object fits most blocks (tried the types' own flags on a sample of "
            f"{' and of '.join(self._sampled)})"
        )

    def _prove_by_references(self, layout: TypeLayout, facts: Facts) -> TypeLayout:
        """Determine the size of PyGC_Head by following references, and return the layout with it.

        The size with which the most blocks are found is chosen. This is done if no walked block shows the size. Raises
        Unsupported.
        """
        known = self.release.get("gc_head")
        heads = GC_HEADS if known is None else (known,)
        counts = {head: len(self._find_claimed(replace(layout, gc_head=head))) for head in heads}
        head = max(counts, key=lambda head: counts[head])
        if counts[head] < MIN_VOTES:
            raise Unsupported(
                f"gdbheap cannot find the objects of Python {self.release.text}: it cannot list the blocks of the "
                "allocator that has them, and found no references to them (if PYTHONMALLOC is set, start the program "
                "without it)"
            )
        facts.add(
            "PyGC_Head", head,
            f"following references finds {counts[head]} blocks with this size, no fewer than with any other size tried",
        )  # fmt: skip
        return replace(layout, gc_head=head)

    def _find_claimed(self, layout: TypeLayout, progress: Progress | None = None) -> _native.Claimed:
        heaps = self._heaps([*self.blocks.own.values(), *self.blocks.general.values()])
        return _native.find_claimed(heaps, layout, measures(self.release), root_ranges(self.roots), progress)

    @property
    def _sampled(self) -> dict[str, _native.Heaps]:
        """The heaps in which small objects may lie, by name. They are the stores that only objects use. If there are
        none, they are malloc's chunks.
        """
        own, general = self.blocks.own, self.blocks.general
        sampled = {name: self._heaps([store, *general.values()]) for name, store in own.items()}
        for name, store in general.items() if not self.blocks.replacing else ():
            sampled[name] = self._heaps([store, *(other for other in general.values() if other is not store)])
        return sampled

    def _class_dealloc(self, layout: TypeLayout, heaps: _native.Heaps) -> int:
        """Return the address of CPython's function ``subtype_dealloc``; 0 if the sample has no heap types.
        ``subtype_dealloc`` is the most frequent deallocator of heap types.
        """
        sample = _native.sample_types(heaps, layout, TYPES_IN_POOLS)
        heap_types = [address for address, flags in sample.items() if flags & cpython.FLAG_HEAP_TYPE]
        votes: Counter[int] = Counter()
        for address in heap_types:
            with suppress(Fault):
                votes[self.target.space.word(address + layout.tp_dealloc)] += 1
        return votes.most_common(1)[0][0] if votes else 0

    def _lost_names(self, facts: Facts) -> dict[int, str]:
        """Return {address of the type: name} for static types whose names are neither in memory nor in an available
        file.

        They are the names that modules use for the types.
        """
        space, layout = self.target.space, self.layout
        if all(loaded.elf is not None for loaded in self.target.objects if loaded.writable_ranges()):
            return {}
        types: set[int] = set()
        for heaps in self._sampled.values():
            types.update(_native.sample_types(heaps, layout, SAMPLED_POOLS))
        if all(_is_readable(space, self.release, address) for address in types):
            return {}
        found = self.instances(dict.fromkeys(like_modules(space, self.release, types), 0), set(), "address", None).rows
        names = lost_names(space, self.release, [row.address for row in found], layout.data)
        lost = {address: name for address, name in names.items() if not _is_readable(space, self.release, address)}
        facts.add("names of types", f"{len(lost)}", "the names that modules use, because the types' files are missing")
        return lost

    def _with_claimed(self, layout: TypeLayout, facts: Facts, progress: Progress | None) -> TypeLayout:
        """Find the blocks in unwalked memory by the fields of objects, and add them to the heaps. Return the layout for
        all later work, without unwalked memory.
        """
        claimed = self.claimed = self._find_claimed(layout, progress)
        facts.add(
            "blocks by objects' own fields", len(claimed), "references from walked blocks, static data and stacks"
        )
        own, general, single = self.blocks.own, self.blocks.general, self.blocks.single
        self.heaps = self._heaps([*own.values(), *general.values(), *single, claimed])
        found = replace(layout, unwalked=[])
        if not found.class_dealloc:
            heaps = self._heaps([*own.values(), claimed])
            found = replace(found, class_dealloc=class_dealloc(self.target.space, heaps, found, claimed))
        return found

    def static_types(self) -> list[int]:
        """Return the addresses of static types.

        A static type lies in the data of a loaded object, and looks like a type. Its own type lies in such data, or
        among the interpreter's own blocks.
        """
        own = [*self.blocks.own.values(), *([] if self.claimed is None else [self.claimed])]
        return _native.static_types(self._heaps(own), self.layout)

    def _confirm_pre_header(
        self, votes: Sequence[_native.DistanceVotes], head: int, layout: TypeLayout, facts: Facts
    ) -> None:
        """Raise Unsupported if the objects of a sample contradict the size of the header before managed dicts."""
        flags = cpython.FLAG_GC | cpython.FLAG_MANAGED_DICT
        ballots = _ballots(votes, flags)
        if not layout.flags_pre_header & cpython.FLAG_MANAGED_DICT or sum(ballots.values()) < MIN_VOTES:
            return
        if not ballots.get(head + PRE_HEADER):
            raise Unsupported(
                f"no object with a managed dict begins {head + PRE_HEADER} bytes after the start of its block"
            )
        facts.add("pre-header of managed dictionaries", PRE_HEADER, "shipped table", "objects in the same sample")

    def census(
        self,
        watched: Sequence[int] = (),
        progress: Progress | None = None,
        unknown: int = 0,
        references: Nodes | None = None,
    ) -> _native.Census:
        """Classify every block in use.

        The owners of the ``watched`` blocks (given by the program's pointers) are remembered for ``owners_of``. The
        ``unknown`` largest blocks without an owner are listed. ``references``: the graph that shows the owners of C
        blocks. Without a graph, C blocks have no owner.
        """
        question = CensusRequest(self._root_numbers(references), list(watched), unknown)
        graph = None if references is None else references.graph
        census = _native.take_census(self.heaps, self.layout, question, graph, progress)
        if graph is not None:
            self._owners.update(dict.fromkeys(watched))
        self._owners.update((found.block, self._owner(found, references)) for found in census.owners)
        return census

    def _root_numbers(self, references: Nodes | None) -> list[int]:
        """Return the owner of each root of a graph, as an index into ``Roots.names``. It is a library, the threads or,
        for any other root, the interpreter.
        """
        names = {name: number for number, name in enumerate(self.roots.names)}
        threads = dict.fromkeys(ON_STACKS, names[THREADS])
        return [{**names, **threads}.get(root.name, 0) for root in (references.roots if references else ())]

    def _owner(self, found: _native.BlockOwner, references: Nodes | None) -> Owner:
        if found.type_address:
            return Owner(found.address, self.names.name(found.type_address), ROLES[found.role])
        place = found.address or (references and references.word_of_root(found.block)) or 0
        return Owner(place, None, self.roots.names[found.role])

    def estimate(self) -> list[Estimate]:
        """Return an estimate of all objects in blocks of up to 512 bytes, with a row for each type.

        The estimate is made from a sample, so it takes the same time for a heap of any size.
        """
        rows = _native.estimate_types(self.heaps, self.layout, ESTIMATE_POOLS)
        return [
            Estimate(self.names.name(row.kind), row.kind, row.live, row.bytes, row.idle, row.idle_bytes) for row in rows
        ]

    def objects_in(self, blocks: Sequence[tuple[int, int]]) -> list[BlockObject | None]:
        """Return for each of ``blocks`` the object in it, or None if it contains none. A block is the pointer that the
        program has, and the block's size in bytes.

        If a block holds several objects, the first one is returned.
        """
        return self._objects_at([(address, size, address) for address, size in blocks])

    def addresses_in(self, blocks: Sequence[tuple[int, int]]) -> list[int | None]:
        """Return for each of ``blocks`` the address of the object in it, or None if it contains none. A block is the
        pointer that the program has, and the block's size in bytes."""
        places = [(address, size, address) for address, size in blocks]
        rows = _native.objects_in(self.heaps, self.layout, places)
        return [None if row is None else row.address for row in rows]

    def object_at(self, block: int, size: int, address: int) -> BlockObject | None:
        """Return the object at ``address``; None if there is none. ``block``: the program's pointer to the block;
        ``size``: the block's bytes.

        ``address`` may lie inside the block, because Python 2 puts many numbers in one block.
        """
        return self._objects_at([(block, size, address)])[0]

    def _objects_at(self, places: list[tuple[int, int, int]]) -> list[BlockObject | None]:
        rows = _native.objects_in(self.heaps, self.layout, places)
        return [None if row is None else self._found(row) for row in rows]

    def _found(self, row: _native.ObjectAt) -> BlockObject:
        return BlockObject(row.address, row.type_address, self.names.name(row.type_address), row.alive)

    def chunks_of(
        self, kinds: set[int], wanted: _native.ChunkFilter, progress: Progress | None = None
    ) -> list[_native.ListedChunk]:
        """Return the chunks among ``wanted`` that look like live objects of the types whose addresses are in
        ``kinds``."""
        return _native.list_objects(self.heaps, self.layout, kinds, wanted, progress)

    def instances(
        self, kinds: dict[int, int], without: set[int], order: str, top: int | None, progress: Progress | None = None
    ) -> _native.InstanceList:
        """Return the first ``top`` live objects of some types, sorted by ``order``.

        ``kinds``: {address of a type: its rank in the alphabet}.
        ``without``: blocks that only look like objects.
        Each object has the size of its block, and the size of the blocks that its fields own.
        """
        return _native.list_instances(self.heaps, self.layout, kinds, without, order, top, progress)

    def asked_sizes(self, without: set[int], progress: Progress | None = None) -> list[_native.AskedSize]:
        """Return, for each size class of pymalloc, how many bytes its live objects asked for.

        ``without``: blocks that only look like objects. Objects whose fields do not show these bytes are left out.
        """
        return _native.asked_sizes(self.heaps, self.layout, sizing(self.release), without, progress)

    def owners_of(
        self, blocks: Sequence[int], progress: Progress | None = None, references: Nodes | None = None
    ) -> dict[int, Owner | None]:
        """Return the owner of each block that is a buffer, by the program's pointer to the block.

        The value is None if the block has no owner, or if its owner is not known without the graph ``references``. If
        the owners of some blocks are not known yet, a census is taken first.
        """
        missing = [block for block in blocks if block not in self._owners]
        if missing:
            self.census(missing, progress, references=references)
        return {block: self._owners.get(block) for block in blocks}

    def in_slabs(self, name: str) -> bool:
        """Return whether many objects of the type ``name`` share a block, which is freed only as a whole."""
        return self.layout.slab is not None and name in self.layout.slab.names

    def type_at(self, address: int) -> str:
        """Return the name of the type of the object at ``address`` in any memory; "?" if it cannot be read."""
        try:
            return self.names.name(self.target.space.word(address + self.release.at(cpython.OB_TYPE)))
        except Fault:
            return "?"

    def text(self, found: BlockObject, limits: Limits | None = None) -> str | None:
        """Return a bounded repr of an object; None if only its type is known."""
        return self.repr.text(found.address, limits or Limits())


def _with_head(layout: TypeLayout, release: cpython.Release) -> TypeLayout:
    """Return the layout with the offsets of this build, in which an object's head may be longer than usual."""
    return replace(
        layout,
        ob_refcnt=release.ob_refcnt,
        ob_type=release.at(layout.ob_type),
        tp_name=release.at(layout.tp_name),
        tp_basicsize=release.at(layout.tp_basicsize),
        tp_itemsize=release.at(layout.tp_itemsize),
        tp_flags=release.at(layout.tp_flags),
        tp_base=release.at(layout.tp_base),
        tp_dealloc=release.at(layout.tp_dealloc),
    )


def _is_readable(space: _native.Space, release: cpython.Release, address: int) -> bool:
    """Return whether the name of the type at ``address`` is in memory or in an available file."""
    try:
        return bool(space.cstring(space.word(address + release.at(cpython.TP_NAME)), 1))
    except Fault:
        return False


def _ballots(votes: Sequence[_native.DistanceVotes], flags: int) -> dict[int, int]:
    """Return {distance: votes} for the types with exactly these flags. A distance is the number of bytes between the
    start of a block and its object.
    """
    return {vote.distance: vote.blocks for vote in votes if vote.flags == flags}


def _winner(votes: Sequence[_native.DistanceVotes], flags: int, distances: tuple[int, ...]) -> int | None:
    """Return the distance in ``distances`` that most objects of types with exactly these flags have.

    Return None if too few objects have it. Some votes come from blocks without an object that happen to contain a small
    number before a pointer to a class.
    """
    ballots = {distance: count for distance, count in _ballots(votes, flags).items() if distance in distances}
    best = max(ballots, key=lambda distance: ballots[distance], default=0)
    return best if ballots.get(best, 0) >= MIN_VOTES else None
