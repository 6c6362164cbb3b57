"""The protocol of an allocator, and the records that its methods return. All of gdbheap's answers are built on these
records. Sizes are bytes; addresses are those that the program sees. ``registry.py`` lists the allocators.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import Enum
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar
from weakref import proxy

from gdbheap import _native
from gdbheap.allocators.line_ids import LineId, PartId
from gdbheap.allocators.recognised import OtherAllocator
from gdbheap.dataclass import dataclass
from gdbheap.documents import renamed_keys
from gdbheap.layout.facts import Facts
from gdbheap.remarks import RemarkId
from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.ranges import Ranges, subtract
from gdbheap.targets.target import Damage, Target

Progress = Callable[[int, int], object]
HoleRow = _native.Hole
PinRow = _native.Pin
Member = _native.Member
BlockList = _native.BlockList
PinSums = _native.Pins
MMAPPED = "mmapped"
"""The value of ``Block.list`` for a large block that has its own mapping. It is also the kind of such a block's area in
``heap map``."""


class State(Enum):
    """The state of a ledger line's bytes. All allocators use the same states."""

    FREE = "free"
    TOP = "top"
    """Free memory at the end of a heap, where the heap grows."""
    RESERVED = "reserved"
    """Address space in which no block has ever been."""
    OVERHEAD = "overhead"
    USED = "used"


@dataclass(frozen=True)
class LedgerLine:
    """A line of the ledger, the memory table of ``heap``.

    ``id`` and ``parent``: its own id, and the id of the line that includes it. ``title``: its text in the table.
    ``state``: the state of its bytes, None if only its child rows have states. ``detail``: only ``--detail`` shows the
    row."""

    id: LineId
    parent: LineId
    title: str
    state: State | None
    detail: bool = False


@dataclass(frozen=True)
class Piece:
    """A range of addresses [start, end) of an allocator, and the ledger line that counts its bytes.

    ``owner``: the id of the line; None if blocks in the range may belong to different lines."""

    start: int
    end: int
    owner: LineId | None


@dataclass(frozen=True)
class Block:
    """A block of an allocator, in use or free.

    ``address``: the pointer that the program has. ``size``: bytes, header included. ``end``: the address after the
    block. ``list``: the free list that the block is on, or None. ``mappings``: the number of mappings that contain the
    block. It is above 1 if madvise or mprotect was called for a part of the block. ``asked``: the bytes that the
    program asked for. For an aligned block of mimalloc, ``asked`` includes the bytes before the program's pointer."""

    address: int
    size: int
    state: str
    allocator: str
    arena: int | None
    list: str | None
    end: int
    mappings: int = 1
    asked: int | None = None


@dataclass(frozen=True)
class DrawnArea:
    """An area that the heap map draws: its addresses [start, end), its name, and its kind as in the JSON output."""

    start: int
    end: int
    name: str
    kind: str
    arena: int | None = None


@dataclass(frozen=True)
class KeepReason:
    """Free resident bytes that cannot be returned now, and the reason.

    ``why``: the reason as text, such as "in arenas, which are returned only when empty".
    """

    id: str
    bytes: int
    why: str


class BlockRequest(NamedTuple):
    """A request for a list of blocks: the conditions that a block must meet, and the order of the list.

    Blocks of ``least`` to ``largest`` bytes are listed (sizes as in ``used_sizes``). ``used``: list blocks in use,
    otherwise free blocks. ``cached``: list only blocks in thread caches, otherwise only blocks outside of them.
    ``arena``: list only the blocks of one arena, given as (index of the allocator among several, number of the arena);
    None for all arenas. ``order``: "size" (largest first), "address" or "arena". ``most``: list only the first ``most``
    blocks in that order."""

    least: int
    largest: int
    used: bool
    cached: bool
    arena: tuple[int, int] | None
    order: str
    most: int


@dataclass(frozen=True)
class SizeClassUse:
    """The blocks of one size: their number, the groups that contain them, and the memory that packing would free.

    ``size``: bytes of a block. ``groups``: the slabs, spans or pages that hold blocks of this size. ``used_count`` and
    ``free_count``: blocks in use, and free ones. ``asked``: bytes that the program asked for. ``spare``: groups that
    packing would empty. ``freed``: bytes that packing would free. ``asked``, ``spare`` and ``freed`` are None if
    unknown."""

    size: int
    groups: int
    used_count: int
    free_count: int
    asked: int | None = None
    spare: int | None = None
    freed: int | None = None

    @classmethod
    def from_older(cls, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a row of a format 1 snapshot with its keys renamed to today's."""
        return renamed_keys(content, {"used": "used_count", "free": "free_count"})


@dataclass(frozen=True)
class WalkedCounts:
    """The number of structures that ``check`` walked, by kind: "regions", "chunks", "pools", "pages", "slabs" or
    "spans".

    ``unexplained``: bytes that the walk could not read as blocks."""

    counts: dict[str, int]
    unexplained: int = 0


@dataclass(frozen=True)
class ExtentArena:
    """The memory of one arena of an allocator that allocates from extents. For mimalloc, it is the memory of one
    thread's heap.

    ``given_back``: the bytes of address space whose memory was returned to the kernel. ``choice``: the value for the
    option ``--arena``."""

    allocator: str
    module: str
    index: int
    active: int
    dirty: int
    muzzy: int
    given_back: int
    used: int
    cached: int
    root: int = 0
    address: int | None = None
    choice: str = ""

    @classmethod
    def from_older(cls, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a row of a format 1 snapshot with its keys renamed to today's."""
        return renamed_keys(content, {"retained": "given_back"})


@dataclass(frozen=True)
class FreeCache:
    """A cache of free blocks, of an allocator that has no arenas.

    ``kind`` is "central" (the free lists of spans), "transfer" or "thread"."""

    allocator: str
    module: str
    kind: str
    address: int | None
    blocks: int
    bytes: int


@dataclass
class WalkedBlocks:
    """The blocks of all allocators, as the native code expects them.

    A block store is a native list of an allocator's blocks. If several stores contain an address, the first of them is
    used. ``own``: the stores that only an interpreter uses. ``general``: the stores of all other blocks, except those
    in ``single``. The keys of ``own`` and ``general`` name the memory: "pools" or "pages", "chunks" or "slots".
    ``single``: the stores in which each block is a whole mapping. ``replacing``: True if all objects of the interpreter
    lie in the stores of ``own``."""

    own: dict[str, _native.BlockStore] = field(default_factory=dict)
    replacing: bool = False
    general: dict[str, _native.BlockStore] = field(default_factory=dict)
    single: list[_native.BlockStore] = field(default_factory=list)

    @property
    def stores(self) -> list[_native.BlockStore]:
        """All stores; the stores that only an interpreter uses come first."""
        return [*self.own.values(), *self.general.values(), *self.single]


A = TypeVar("A", bound="Allocator")


class Surroundings(Protocol):
    """The facts about the rest of the target that an allocator can ask for. Each fact is read when it is first asked
    for."""

    target: Target
    facts: Facts

    def allocator(self, kind: type[A]) -> A:
        """Return the target's allocator of the class ``kind``. Raises NotAPython or Unsupported if the target
        lacks it."""

    @property
    def other_allocator(self) -> OtherAllocator | None:
        """An allocator whose blocks gdbheap does not walk, and which the target uses next to the C library's allocator
        or instead of it. None if there is none."""

    def taken(self) -> Ranges:
        """Return the ranges that already have an owner, ascending. They are .bss, the allocators' memory, and those
        thread stacks that lie in no block."""

    def outside(self, ranges: Ranges, of: type[Allocator]) -> Ranges:
        """Return the parts of ``ranges`` outside stacks and outside the memory of every allocator that is searched
        before ``of``."""

    def anonymous(self, writable: bool = True) -> Ranges:
        """Return the ranges of private anonymous memory: writable memory only, or all of it if ``writable`` is
        False."""

    def labelled(self, label: str) -> Progress:
        """Return a progress callback for long work, shown under the name ``label``."""

    def note(self, id: RemarkId, **values: Any) -> None:
        """Add the remark with this id, which every answer shows. ``values``: the values for the placeholders in its
        sentence.
        """

    def note_others(self, idle: bool) -> None:
        """Add a warning to a list of the C library's blocks: the list lacks the blocks of other allocators.

        ``idle``: whether the C library's allocator has no memory.
        """


class Purpose(Enum):
    """The purpose of a setting: to return unused memory sooner, to keep less in caches, or to have fewer arenas."""

    UNUSED = "unused"
    CACHES = "caches"
    ARENAS = "arenas"


@dataclass(frozen=True)
class Caching:
    """Free blocks in caches.

    ``caches``: the number of thread caches. ``blocks``: the number of free blocks in thread caches and in shared
    caches. ``shared``: the bytes of free blocks in shared caches. ``ranges``: the addresses of all these blocks."""

    caches: int
    blocks: int
    shared: int
    ranges: Ranges


class Allocator(ABC):
    """One allocator of one target. It is valid only as long as its ``Surroundings`` exist.

    The constructor locates the allocator. If the allocator is absent, it raises NotAPython, NotInUse or Unsupported. An
    allocator that lacks a feature does not override the method for it.

    ``name``: the allocator's name in JSON, and the first part of the ids of its ledger lines. ``title``: the title of
    its ledger line. ``replaces``: the allocator that a target does not use if it has this one, or None. ``walks``: the
    name of this allocator in ``recognised.py``, or None if that module does not know it. An allocator of this name is
    not reported as one that gdbheap cannot walk. ``shown_idle``: its ledger lines are shown with zeros if the target
    has no memory of it. ``why_holes_stay``: a sentence that says why holes are not returned. ``groups``: the noun for a
    group of blocks that pins memory, singular and plural. ``emptied``: a phrase that says what would happen to such a
    group if its blocks were freed. ``returned_lines``: the ids of the ledger lines whose completely free pages a
    function of the allocator returns to the kernel."""

    name: ClassVar[LineId]
    title: ClassVar[str]
    replaces: ClassVar[type[Allocator] | None] = None
    walks: ClassVar[str | None] = None
    lines: ClassVar[tuple[LedgerLine, ...]]
    shown_idle: ClassVar[bool] = True
    why_holes_stay: ClassVar[str]
    groups: ClassVar[tuple[str, str]]
    emptied: ClassVar[str] = "would be freed"
    returned_lines: ClassVar[tuple[LineId, ...]] = ()

    def __init__(self, around: Surroundings) -> None:
        # A weak reference: a cycle would keep the target's files open until the collector runs.
        self._around: Surroundings = proxy(around)
        self.target: Target = around.target

    @property
    def warnings(self) -> Sequence[str]:
        """Warnings, as sentences, that apply to every answer about this allocator."""
        return ()

    @property
    def idle(self) -> bool:
        """Whether the allocator has no memory, because it was never called or because another allocator replaces it."""
        return False

    @property
    @abstractmethod
    def damage(self) -> list[Damage]:
        """The inconsistencies in the allocator's data that were found so far."""

    @property
    def interpreter(self) -> LoadedObject | None:
        """The loaded object of the interpreter that the allocator serves; None if the allocator does not identify
        it."""
        return None

    @property
    def is_free_threaded(self) -> bool:
        """Whether the allocator's data proves that the interpreter is a free-threaded build, without a GIL."""
        return False

    # Memory and its owners.

    @abstractmethod
    def ranges(self) -> Ranges:
        """Return all address space of the allocator, ascending, including address space that is only reserved."""

    def single_blocks(self) -> Ranges:
        """Return the mappings outside ``ranges`` that hold one block each, ascending.

        The search for them comes last, because other memory can look like such a block."""
        return []

    def of_others(self) -> Ranges:
        """Return the parts of ``ranges`` that other code, and not the allocator, got from the system, ascending."""
        return []

    def books(self) -> Ranges:
        """Return the ranges of the allocator's own records in static data, ascending.

        The records point to blocks in use and to free blocks alike. Their pointers therefore do not count as
        references."""
        return []

    def leaves(self, ranges: Ranges) -> Ranges:
        """Return the parts of ``ranges`` that remain for the allocators that are searched later.

        This allocator's memory is left out, as far as it is known before the blocks are listed."""
        return subtract(ranges, self.ranges())

    @abstractmethod
    def pieces(self) -> Iterable[Piece]:
        """Return the allocator's address space as pieces without overlaps."""

    @abstractmethod
    def sweep(self, sweep: _native.Sweep, start: int, number: Callable[[LineId], int]) -> int:
        """Add the blocks of the piece at ``start`` to ``sweep``, which sums bytes by ledger line. Return the end of the
        piece.

        The method is called only for a piece without an owner (``Piece.owner`` is None). ``number``: a function that
        returns the number in ``sweep`` for the id of a ledger line.
        """

    def all_lines(self) -> Iterator[LedgerLine]:
        """Yield the allocator's ledger lines in this target, including lines of single arenas."""
        yield from self.lines

    def drawn(self) -> Iterable[DrawnArea]:
        """Return the areas of this allocator that ``heap map`` draws."""
        return (DrawnArea(start, end, self.title, self.name) for start, end in self.ranges())

    # Blocks.

    @abstractmethod
    def find(self, address: int) -> Block | None:
        """Return the block, in use or free, that holds ``address``; None if there is none."""

    def own_part(self, address: int) -> str | None:
        """Return the purpose of ``address`` in the allocator's own memory outside of blocks; None for any other
        address.
        """
        return None

    def structures(self) -> dict[int, str]:
        """Return the blocks that the allocator made for its own purposes, as {address: purpose}."""
        return {}

    def loose_blocks(self) -> dict[int, str]:
        """Return the blocks that the allocator made for itself and to which it keeps no pointer, as {address: purpose}.
        They are not lost."""
        return {}

    def requests_for(self, block: Block) -> tuple[int, int] | None:
        """Return (least, most), the smallest and the largest request in bytes that gets a block of the size of
        ``block``. None if malloc() does not hand out the allocator's blocks."""
        return None

    @abstractmethod
    def used_sizes(self) -> list[tuple[int, int]]:
        """Return (size in bytes, number of blocks in use) for each size of block."""

    def free_sizes(self) -> list[tuple[int, int]]:
        """Return (size in bytes, number of free blocks) for each size of free block; an empty list if the allocator
        does not group free blocks by size.
        """
        return []

    def extent_arenas(self) -> list[ExtentArena]:
        """Return the arenas of an allocator that allocates from extents; an empty list for all other allocators."""
        return []

    def free_caches(self) -> list[FreeCache]:
        """Return the caches of free blocks, for an allocator without arenas; an empty list if they are not known."""
        return []

    def owners(self) -> list[str]:
        """Return the modules that contain a copy of this allocator if several do, otherwise an empty list."""
        return []

    def size_classes(self, root: int | None = None) -> list[SizeClassUse]:
        """Return a row for each size of block, ascending, if the allocator keeps blocks of one size together in groups;
        otherwise an empty list.

        ``root``: the index in ``owners`` of one allocator, or None for all."""
        return []

    def packing(self) -> _native.Packing | None:
        """Return the memory that would be freed if the blocks in use of each size were moved into as few groups as
        possible.

        None if the allocator does not keep blocks of one size together in groups."""
        return None

    # Settings that the program can be started with.

    def owner_at(self, address: int) -> str | None:
        """Return the module whose copy of the allocator owns ``address``; None if unknown, or if only one module is
        possible."""
        return None

    def variables(self) -> list[str]:
        """Return the environment variables that control when the allocator returns memory to the kernel."""
        return []

    def remedy(self, purpose: Purpose, owner: str | None) -> dict[str, str]:
        """Return the environment variables that serve ``purpose``, with their values; empty if there are none.

        ``owner``: the module with the copy of the allocator to configure.
        """
        return {}

    def caching(self) -> Caching | None:
        """Return the free blocks in the allocator's caches; None if it has none, or if they are not known."""
        return None

    @property
    def tells_asked(self) -> bool:
        """Whether ``find`` gives the number of bytes that the program asked for."""
        return False

    def largest_used(self, least: int, most: int) -> list[tuple[int, int]]:
        """Return (the program's pointer, size in bytes) of the largest blocks in use, largest first.

        ``least``: leave out blocks of fewer bytes. ``most``: the largest number of blocks to return. Sizes are as in
        ``used_sizes``.
        """
        return []

    def first_used(self, least: int, largest: int, most: int) -> list[tuple[int, int]]:
        """Return (the program's pointer, size in bytes) of the blocks in use with the lowest addresses, in ascending
        order.

        ``least``, ``largest``: leave out blocks of fewer or more bytes. ``most``: the largest number of blocks to
        return. Sizes are as in ``used_sizes``. The list is empty if the allocator cannot list blocks by address.
        """
        return []

    def list_blocks(self, asked: BlockRequest) -> BlockList | None:
        """Return the number and the bytes of the blocks that match the request ``asked``, and the first of these
        blocks; None if the allocator cannot list blocks.
        """
        return None

    @abstractmethod
    def give(self, blocks: WalkedBlocks) -> None:
        """Add the allocator's blocks to ``blocks``, from which the native code reads them."""

    # Holes, pins, and free memory that stays.

    @abstractmethod
    def holes(self, minimum: int) -> Iterable[HoleRow]:
        """Return the maximal runs of free memory of at least ``minimum`` bytes."""

    @abstractmethod
    def pins(self, kept: Ranges, minimum: int, most: int) -> PinSums:
        """Return at most ``most`` groups of blocks, each of which pins at least ``minimum`` bytes in addition to its
        own bytes.

        ``kept``: memory that the kernel cannot take back.
        """

    @abstractmethod
    def members(self, row: PinRow) -> list[Member]:
        """Return the blocks of a group that pins memory. ``row``: the group."""

    def returnable(self) -> int | None:
        """Return how many bytes a call of the C library's malloc_trim() would return to the kernel now.

        None if the allocator has no such function, or if the number is unknown.
        """
        return None

    def reclaimable(self, line: LineId, whole: int) -> int:
        """Return how many bytes of a ledger line's free memory a call of the allocator's own function would return to
        the kernel now.

        ``line``: a line without children. ``whole``: the resident bytes in its completely free pages.
        """
        return whole if self.returned_lines and line.startswith(self.returned_lines) else 0

    @abstractmethod
    def kept(self, free: int, whole: int) -> list[KeepReason]:
        """Return the reasons why free resident bytes stay in the process; bytes that ``returnable`` counts are left
        out.

        ``free``: the number of free resident bytes. ``whole``: how many of them lie in completely free pages.
        """

    # State, damage and checks.

    @abstractmethod
    def check(self) -> WalkedCounts:
        """Walk all of the allocator's data, and add the inconsistencies to ``damage``. Return how much was walked."""


class PartsAllocator(Allocator):
    """An allocator whose blocks a native store reads.

    The store sorts the bytes of each piece of address space by use: blocks in use, free blocks, headers and others.
    These uses are called parts. ``parts`` gives the id of the ledger line that counts the bytes of each part."""

    parts: ClassVar[dict[PartId, LineId]]

    @property
    @abstractmethod
    def store(self) -> _native.BlockStore:
        """The allocator's blocks, as the native code has read them."""

    def sweep(self, sweep: _native.Sweep, start: int, number: Callable[[LineId], int]) -> int:
        """Add the parts of the piece at ``start`` to ``sweep``, which sums bytes by ledger line. Return the end of the
        piece.
        """
        owners: dict[str, int] = {part: number(line) for part, line in self.parts.items()}
        return sweep.add_blocks(self.target.space, self.store, start, owners)

    def pins(self, kept: Ranges, minimum: int, most: int) -> PinSums:
        """Return at most ``most`` groups of blocks, each of which pins at least ``minimum`` bytes in addition to its
        own bytes.

        Pinned memory is returned or reused once the last block of its group is freed.
        """
        return _native.pins(self.target.machine, self.store, self.target.pages, kept, [], minimum, most)


class StoreAllocator(PartsAllocator):
    """An allocator that keeps blocks of one size together in groups, such as slabs, pools or spans. Every block is in a
    group."""

    @property
    @abstractmethod
    def store(self) -> _native.Pools | _native.Mimalloc | _native.Mallocng | _native.ExtentStore:
        """The allocator's blocks, as the native code has read them."""

    def used_sizes(self) -> list[tuple[int, int]]:
        """Return (size in bytes, number of blocks in use) for each size of block."""
        return [(row.block_size, row.used) for row in self.store.classes()]

    def free_sizes(self) -> list[tuple[int, int]]:
        """Return (size in bytes, number of free blocks) for each size of block, including blocks that were never handed
        out.
        """
        return [(row.block_size, row.free) for row in self.store.classes()]

    def packed_classes(
        self, packing: _native.Packing, classes: list[_native.SizeClass], asked: dict[int, int] | None, root: int | None
    ) -> list[SizeClassUse]:
        """Return a row for each block size, with the number of bytes that packing would free.

        ``packing``: what moving the blocks into fewer groups would free. ``asked``: the bytes that the program asked
        for, by block size, or None if unknown. ``root``: the index of one of several allocators, or None for all."""
        spare: Counter[int] = Counter()
        freed: Counter[int] = Counter()
        for row in packing.sizes:
            if root not in (None, row.root):
                continue
            spare[row.size] += row.spare
            freed[row.size] += row.freed
        told = (lambda size: None) if asked is None else (lambda size: asked.get(size, 0))
        return [
            SizeClassUse(size, row.groups, row.used, row.free, told(size), spare[size], freed[size])
            for row in classes
            for size in (row.block_size,)
        ]


class ListingAllocator(Allocator):
    """An allocator whose native store can list holes and can list the blocks in use by size."""

    @property
    @abstractmethod
    def store(self) -> _native.ListedStore:
        """The allocator's blocks, as the native code has read them."""

    def largest_used(self, least: int, most: int) -> list[tuple[int, int]]:
        """Return (the program's pointer, size in bytes) of the largest blocks in use, from all arenas, largest first.

        ``least``: leave out blocks of fewer bytes. ``most``: the largest number of blocks to return.
        """
        return [(row.address, row.size) for row in self.store.largest_used(least, most)]

    def first_used(self, least: int, largest: int, most: int) -> list[tuple[int, int]]:
        """Return (the program's pointer, size in bytes) of the blocks in use with the lowest addresses, from all
        arenas.

        ``least``, ``largest``: leave out blocks of fewer or more bytes. ``most``: the largest number of blocks to
        return.
        """
        return [(row.address, row.size) for row in self.store.first_used(least, largest, most)]

    def list_blocks(self, asked: BlockRequest) -> BlockList:
        """Return the blocks that match the request ``asked``, from all arenas or from one arena."""
        return self.store.list_blocks(asked)

    def holes(self, minimum: int) -> Iterable[HoleRow]:
        """Return the holes of at least ``minimum`` bytes in memory that the allocator got from the kernel.

        Memory that was never used, or is only reserved, is not a hole."""
        return self.store.holes(max(minimum, 1))
