"""The protocol of an allocator, and the records in which it answers. All answers are built on these.

Sizes are bytes; addresses are those that the program sees. ``finding.py`` lists the allocators.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar
from weakref import proxy

from gdbheap import _native
from gdbheap.allocators.line_ids import LineId, PartId
from gdbheap.allocators.recognised import OtherAllocator
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
"""The name of the list of blocks with a mapping of their own, and their kind in the map."""


class State(Enum):
    """The state of the bytes of a ledger line, for a reader who does not know the allocator."""

    FREE = "free"
    TOP = "top"
    """Free memory at the end of a heap, where the heap grows."""
    RESERVED = "reserved"
    """Address space in which no block has ever been."""
    OVERHEAD = "overhead"
    USED = "used"


@dataclass(frozen=True)
class LedgerLine:
    """A line of the ledger: its id, its parent's id, the title that people read, and the state of its bytes.

    ``state`` is None where the states of the child lines apply. A ``detail`` line is shown only when more is asked
    for."""

    id: LineId
    parent: LineId
    title: str
    state: State | None
    detail: bool = False


@dataclass(frozen=True)
class Piece:
    """Address space [start, end) of one owner.

    ``owner`` is the id of a ledger line. It is None where each block inside decides whose its bytes are."""

    start: int
    end: int
    owner: LineId | None


@dataclass(frozen=True)
class Block:
    """A block: the program's pointer, its size (with the header where there is one), its state, and its free list.

    ``mappings`` is above 1 where the kernel split a mapping inside the block, because madvise or mprotect was called
    for a part of it. ``asked``: the bytes that the program asked for; for an aligned block of mimalloc, with the bytes
    before the program's pointer."""

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
class Drawn:
    """An area for the map: [start, end), its name, and its kind as in JSON."""

    start: int
    end: int
    name: str
    kind: str
    arena: int | None = None


@dataclass(frozen=True)
class Kept:
    """Free resident bytes that cannot be returned now, with the reason; ``why`` continues a sentence after "stays"."""

    id: str
    bytes: int
    why: str


class Asked(NamedTuple):
    """Which blocks to list, and in which order.

    Listed are blocks of ``least`` to ``largest`` bytes (sizes as in ``used_sizes``). ``used``: blocks in use, otherwise
    free blocks. ``cached``: of these the blocks in thread caches, otherwise all others. ``arena``: (index of the
    allocator among several, number of its arena), or None for all arenas. The first ``most`` blocks by ``order`` are
    given: "size" (largest first), "address" or "arena"."""

    least: int
    largest: int
    used: bool
    cached: bool
    arena: tuple[int, int] | None
    order: str
    most: int


@dataclass(frozen=True)
class SizeClassUse:
    """One size of blocks: its groups, its blocks, and what packing them would free."""

    size: int
    groups: int
    used_count: int
    free_count: int
    asked: int | None = None
    spare: int | None = None
    freed: int | None = None

    @classmethod
    def from_older(cls, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the row of a snapshot of format 1 with today's keys."""
        return renamed_keys(content, {"used": "used_count", "free": "free_count"})


@dataclass(frozen=True)
class Looked:
    """How much ``check`` walked, by kind: "regions", "chunks", "pools", "pages", "slabs", "spans".

    ``unexplained``: bytes that the walk could not read as blocks."""

    counts: dict[str, int]
    unexplained: int = 0


@dataclass(frozen=True)
class ExtentArena:
    """An arena of an allocator that is not the C library's; for mimalloc, a heap."""

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
        """Return the row of a snapshot of format 1 with today's keys."""
        return renamed_keys(content, {"retained": "given_back"})


@dataclass(frozen=True)
class FreeCache:
    """A cache of free blocks of an allocator without arenas.

    ``kind`` is "central" (the free lists of spans), "transfer" or "thread"."""

    allocator: str
    module: str
    kind: str
    address: int | None
    blocks: int
    bytes: int


@dataclass
class WalkedBlocks:
    """The blocks of all allocators, as they are passed to the native half. Where several stores know an address, the
    first one wins.

    ``own``: stores that only an interpreter uses, by the kind of block that its objects lie in; ``replacing``: its
    objects lie in no other stores; ``general``: stores for every content, by what their blocks are called; ``single``:
    stores whose blocks are whole mappings."""

    own: dict[str, _native.Store] = field(default_factory=dict)
    replacing: bool = False
    general: dict[str, _native.Store] = field(default_factory=dict)
    single: list[_native.Store] = field(default_factory=list)

    @property
    def stores(self) -> list[_native.Store]:
        """All stores; those that only an interpreter uses come first."""
        return [*self.own.values(), *self.general.values(), *self.single]


A = TypeVar("A", bound="Allocator")


class Surroundings(Protocol):
    """The rest of the target, as an allocator sees it. Each part is read when it is first asked for."""

    target: Target
    facts: Facts

    def allocator(self, kind: type[A]) -> A:
        """Return another allocator of this target. Raises NotAPython or Unsupported."""

    @property
    def other_allocator(self) -> OtherAllocator | None:
        """The allocator that is present next to the C library's, or instead of it, and is not walked; None if there is
        none."""

    def taken(self) -> Ranges:
        """Return the ranges of .bss, of allocators and of thread stacks that lie in no block, ascending."""

    def outside(self, ranges: Ranges, of: type[Allocator]) -> Ranges:
        """Return the parts of ``ranges`` that are no stack and belong to no allocator that is looked for before
        ``of``."""

    def anonymous(self, writable: bool = True) -> Ranges:
        """Return the private anonymous memory: writable memory only, or all of it if ``writable`` is False."""

    def labelled(self, label: str) -> Progress:
        """Return a progress callback for long work, shown under the name ``label``."""

    def note(self, id: RemarkId, **values: Any) -> None:
        """Add a remark that belongs to every answer; ``values`` fill in its sentence."""

    def note_others(self, idle: bool) -> None:
        """Warn, next to a list of the C library's blocks, that the blocks of other allocators are not walked.

        ``idle``: the C library's allocator holds nothing."""


class Purpose(Enum):
    """The purpose of a setting: return unused memory sooner, keep less in caches, or have fewer arenas."""

    UNUSED = "unused"
    CACHES = "caches"
    ARENAS = "arenas"


@dataclass(frozen=True)
class Caching:
    """Free blocks in caches.

    ``caches`` is the number of thread caches, ``blocks`` the free blocks in these and in shared caches, ``shared`` the
    bytes in shared caches, ``ranges`` the addresses of all these blocks."""

    caches: int
    blocks: int
    shared: int
    ranges: Ranges


class Allocator(ABC):
    """One allocator of one target; it must not outlive its surroundings.

    The constructor locates the allocator, and raises NotAPython, NotInUse or Unsupported if it is absent. A method that
    an allocator does not override means that it lacks the feature.

    ``name``: its name in JSON, and the first part of its lines' ids. ``title``: its line in the ledger. ``replaces``:
    the allocator that it replaces where it is present. ``walks``: its name in ``recognised.py`` if its blocks are
    walked, so that it does not count as an unwalked allocator. ``shown_idle``: its lines are shown with zeros where the
    target has none of it. ``why_holes_stay``: a sentence. ``groups``: the words for one and for several groups of its
    pins. ``emptied``: what becomes of such a group without its blocks."""

    name: ClassVar[LineId]
    title: ClassVar[str]
    replaces: ClassVar[type[Allocator] | None] = None
    walks: ClassVar[str | None] = None
    lines: ClassVar[tuple[LedgerLine, ...]]
    shown_idle: ClassVar[bool] = True
    why_holes_stay: ClassVar[str]
    groups: ClassVar[tuple[str, str]]
    emptied: ClassVar[str] = "would go"

    def __init__(self, around: Surroundings) -> None:
        # A weak reference: a cycle would keep the target's files open until the collector runs.
        self._around: Surroundings = proxy(around)
        self.target: Target = around.target

    @property
    def warnings(self) -> Sequence[str]:
        """Sentences that a reader of any answer must know."""
        return ()

    @property
    def idle(self) -> bool:
        """Whether the allocator holds nothing: it was never called, or another allocator replaces it."""
        return False

    @property
    @abstractmethod
    def damage(self) -> list[Damage]:
        """The inconsistencies that the walks so far have met."""

    @property
    def interpreter(self) -> LoadedObject | None:
        """The loaded object of the interpreter that the allocator serves; None if the allocator does not show it."""
        return None

    @property
    def is_free_threaded(self) -> bool:
        """Whether the allocator proves that the interpreter was built without a global lock."""
        return False

    # Memory and its owners.

    @abstractmethod
    def ranges(self) -> Ranges:
        """Return all address space of the allocator, ascending, including what it has only reserved."""

    def single_blocks(self) -> Ranges:
        """Return the mappings outside ``ranges`` that hold one block each, ascending. They are found last of all."""
        return []

    def of_others(self) -> Ranges:
        """Return the parts of ``ranges`` that somebody else got from the system, ascending."""
        return []

    def books(self) -> Ranges:
        """Return the allocator's own records in static data, ascending. They point to blocks whether in use or free."""
        return []

    def leaves(self, ranges: Ranges) -> Ranges:
        """Return the parts of ``ranges`` that are not the allocator's, by what is known before its blocks are
        listed."""
        return subtract(ranges, self.ranges())

    @abstractmethod
    def pieces(self) -> Iterable[Piece]:
        """Return the allocator's address space as pieces; no byte is in two pieces."""

    @abstractmethod
    def sweep(self, sweep: _native.Sweep, start: int, number: Callable[[LineId], int]) -> int:
        """Add the blocks of the piece without an owner that begins at ``start`` to ``sweep``, and return the end of the
        piece.

        ``number`` maps the id of a ledger line to the owner's number."""

    def all_lines(self) -> Iterator[LedgerLine]:
        """Yield the allocator's ledger lines in this target, including those of single arenas."""
        yield from self.lines

    def drawn(self) -> Iterable[Drawn]:
        """Return the areas that the map shows for this allocator."""
        return (Drawn(start, end, self.title, self.name) for start, end in self.ranges())

    # Blocks.

    @abstractmethod
    def find(self, address: int) -> Block | None:
        """Return the block, in use or free, that holds ``address``; None if there is none."""

    def own_part(self, address: int) -> str | None:
        """Describe an address in no block that is the allocator's own; None for any other address."""
        return None

    def structures(self) -> dict[int, str]:
        """Return the purpose of each block that the allocator made for itself, by the block's address."""
        return {}

    @abstractmethod
    def used_sizes(self) -> list[tuple[int, int]]:
        """Return (size, number of blocks in use) for each size of block."""

    def free_sizes(self) -> list[tuple[int, int]]:
        """Return (size, number of free blocks), where free blocks have sizes of their own."""
        return []

    def extent_arenas(self) -> list[ExtentArena]:
        """Return the arenas of an allocator that allocates from extents."""
        return []

    def free_caches(self) -> list[FreeCache]:
        """Return the caches of free blocks, for an allocator without arenas; an empty list if they are not known."""
        return []

    def owners(self) -> list[str]:
        """Return the modules that bring one allocator of this kind each, if there are several; otherwise an empty
        list."""
        return []

    def size_classes(self, root: int | None = None) -> list[SizeClassUse]:
        """Return the sizes of blocks, ascending, if blocks lie in groups of equal size.

        ``root`` is an index into ``owners``; None means all of them."""
        return []

    def packing(self) -> _native.Packing | None:
        """Return what would be freed if the blocks in use were moved into as few groups of equal blocks as they need.

        None where blocks do not lie in such groups."""
        return None

    # Settings that the program can be started with.

    def owner_at(self, address: int) -> str | None:
        """Return the module of the allocator that ``address`` belongs to; None if only one is possible, or if
        unknown."""
        return None

    def variables(self) -> list[str]:
        """Return the environment variables from which the allocator reads the settings that ``remedy`` names."""
        return []

    def remedy(self, purpose: Purpose, owner: str | None) -> dict[str, str]:
        """Return the variables and values that serve ``purpose``, for the allocator of the module ``owner``; may be
        empty."""
        return {}

    def caching(self) -> Caching | None:
        """Return what the thread caches hold; None if the allocator has no caches that are known."""
        return None

    @property
    def tells_asked(self) -> bool:
        """Whether ``find`` gives the number of bytes that the program asked for."""
        return False

    def largest_used(self, least: int, most: int) -> list[tuple[int, int]]:
        """Return (the program's pointer, size) of the ``most`` largest blocks in use, largest first.

        Blocks smaller than ``least`` bytes are left out. Sizes are as in ``used_sizes``."""
        return []

    def first_used(self, least: int, largest: int, most: int) -> list[tuple[int, int]]:
        """Return (the program's pointer, size) of the first ``most`` blocks in use of ``least`` to ``largest`` bytes.

        Addresses ascend; sizes are as in ``used_sizes``. The list is empty where blocks cannot be listed by address."""
        return []

    def list_blocks(self, asked: Asked) -> BlockList | None:
        """Return the number of the blocks asked for, their bytes, and the first of them; None where blocks are not
        listed so."""
        return None

    @abstractmethod
    def give(self, blocks: WalkedBlocks) -> None:
        """Add the allocator's blocks to those that the native half gets."""

    # Holes, pins, and free memory that stays.

    @abstractmethod
    def holes(self, minimum: int) -> Iterable[HoleRow]:
        """Return the maximal runs of free memory of at least ``minimum`` bytes."""

    @abstractmethod
    def pins(self, kept: Ranges, minimum: int, most: int) -> PinSums:
        """Return the first ``most`` groups of blocks that pin ``minimum`` bytes or more beyond their own.

        ``kept``: memory that the kernel cannot take back."""

    @abstractmethod
    def members(self, row: PinRow) -> list[Member]:
        """Return the blocks of a group of pins."""

    def returnable(self) -> int | None:
        """Return the bytes that a call of the program would give back now; None if there is no such call, or if
        unknown."""
        return None

    @abstractmethod
    def kept(self, free: int, whole: int) -> list[Kept]:
        """Return why free resident bytes stay beyond what is returnable.

        ``free`` is the number of free resident bytes, ``whole`` those of them in completely free pages."""

    # State, damage and checks.

    @abstractmethod
    def check(self) -> Looked:
        """Walk everything, and add what is inconsistent to ``damage``."""


class StoreAllocator(Allocator):
    """An allocator whose blocks all lie in groups of equal blocks, in a native store.

    ``parts`` maps the native names of the parts of a piece to ledger lines."""

    parts: ClassVar[dict[PartId, LineId]]

    @property
    @abstractmethod
    def store(self) -> _native.Pools | _native.Mimalloc | _native.Jemalloc | _native.Tcmalloc | _native.Mallocng:
        """The native store of the allocator's blocks."""

    def sweep(self, sweep: _native.Sweep, start: int, number: Callable[[LineId], int]) -> int:
        """Add the parts of the piece at ``start`` to ``sweep``, and return where the piece ends."""
        owners: dict[str, int] = {part: number(line) for part, line in self.parts.items()}
        return sweep.add_blocks(self.target.space, self.store, start, owners)

    def used_sizes(self) -> list[tuple[int, int]]:
        """Return (size, number of blocks in use) for each size of a group's blocks."""
        return [(row.block_size, row.used) for row in self.store.classes()]

    def free_sizes(self) -> list[tuple[int, int]]:
        """Return (size, number of free blocks) by the groups that have room for them, handed out before or not."""
        return [(row.block_size, row.free) for row in self.store.classes()]

    def packed_classes(
        self, packing: _native.Packing, classes: list[_native.SizeClass], asked: dict[int, int] | None, root: int | None
    ) -> list[SizeClassUse]:
        """Return the sizes of blocks with what packing would free.

        ``asked``: the bytes that the program asked for, by size, or None if unknown. ``root``: the index of one of
        several allocators, or None for all."""
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

    def pins(self, kept: Ranges, minimum: int, most: int) -> PinSums:
        """Return groups of blocks, each in memory that is returned or reused once the last of these blocks is freed."""
        return _native.pins(self.target.machine, self.store, self.target.pages, kept, [], minimum, most)


class ListingAllocator(Allocator):
    """An allocator whose native store lists blocks in use by size, and holes."""

    @property
    @abstractmethod
    def store(self) -> _native.Mimalloc | _native.Jemalloc | _native.Tcmalloc | _native.Mallocng | _native.Oldmalloc:
        """The native store of the allocator's blocks."""

    def largest_used(self, least: int, most: int) -> list[tuple[int, int]]:
        """Return (pointer, size) of the largest blocks in use, of all arenas."""
        return [(row.address, row.size) for row in self.store.largest_used(least, most)]

    def first_used(self, least: int, largest: int, most: int) -> list[tuple[int, int]]:
        """Return (pointer, size) of the first blocks in use by address, of all arenas."""
        return [(row.address, row.size) for row in self.store.first_used(least, largest, most)]

    def list_blocks(self, asked: Asked) -> BlockList:
        """Return the blocks that are asked for, of all arenas or of one."""
        return self.store.list_blocks(asked)

    def holes(self, minimum: int) -> Iterable[HoleRow]:
        """Return the holes in memory that the allocator has from the kernel.

        Memory that was never used, or is only reserved, is not a hole."""
        return self.store.holes(max(minimum, 1))
