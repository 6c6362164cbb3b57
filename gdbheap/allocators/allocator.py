"""What an allocator says of its memory, whichever it is: all answers are made of this.

Sizes are bytes, addresses those that the program sees. ``finding.py`` names the allocators there are.
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
"""The list, and in the map the kind, of blocks with a mapping of their own."""


class State(Enum):
    """What the bytes of a line of the ledger are, to a reader who does not know the allocator."""

    FREE = "free"
    TOP = "top"
    """Free at the end of a heap that grows there."""
    RESERVED = "reserved"
    """Address space that no block was ever in."""
    OVERHEAD = "overhead"
    USED = "used"


@dataclass(frozen=True)
class LedgerLine:
    """A line of the ledger: its id and its parent's, what people read, and the state of its bytes (None: its children
    say).

    ``detail``: it is shown only where more was asked for."""

    id: LineId
    parent: LineId
    title: str
    state: State | None
    detail: bool = False


@dataclass(frozen=True)
class Piece:
    """Address space [start, end) of one owner, the id of a line; None where the blocks inside say whose bytes are."""

    start: int
    end: int
    owner: LineId | None


@dataclass(frozen=True)
class Block:
    """A block: the program's pointer, its size (with the header where there is one), its state, and the list it is
    on. It lies in several mappings where the kernel split one, as madvise or mprotect was called for a part of it.
    ``asked``: of an aligned block of mimalloc's with what lies before the program's pointer."""

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
    """A stretch for the map: [start, end), its name, and its kind, as in JSON."""

    start: int
    end: int
    name: str
    kind: str
    arena: int | None = None


@dataclass(frozen=True)
class Kept:
    """Free resident bytes that stay, by why; the reason follows "stays"."""

    id: str
    bytes: int
    why: str


class Asked(NamedTuple):
    """Which blocks are meant: of ``least`` to ``largest`` bytes (as in ``used_sizes``), in use if ``used``, else free
    ones, and of these those that threads' caches have if ``cached``, else all others; of one ``arena``, by the place of
    its allocator among several and its number, or of all. And which of them are shown: the first ``most`` in an
    ``order`` (size: the largest first, address, arena)."""

    least: int
    largest: int
    used: bool
    cached: bool
    arena: tuple[int, int] | None
    order: str
    most: int


@dataclass(frozen=True)
class SizeClassUse:
    """One size of blocks, with what the allocator needs for each."""

    size: int
    groups: int
    used_count: int
    free_count: int
    asked: int | None = None
    spare: int | None = None
    freed: int | None = None

    @classmethod
    def from_older(cls, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Of a file of format 1."""
        return renamed_keys(content, {"used": "used_count", "free": "free_count"})


@dataclass(frozen=True)
class Looked:
    """How much ``check`` looked at, by what it is: "regions", "chunks", "pools", "pages", "slabs", "spans";
    ``unexplained``: bytes that the walk could not read as blocks."""

    counts: dict[str, int]
    unexplained: int = 0


@dataclass(frozen=True)
class ExtentArena:
    """An arena of an allocator that is no C library's; of mimalloc a heap."""

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
        """Of a file of format 1."""
        return renamed_keys(content, {"retained": "given_back"})


@dataclass(frozen=True)
class FreeCache:
    """A place where free blocks of an allocator wait that has no arenas: "central" (in the lists of spans),
    "transfer" or "thread"."""

    allocator: str
    module: str
    kind: str
    address: int | None
    blocks: int
    bytes: int


@dataclass
class WalkedBlocks:
    """What the native half is told of the blocks of all allocators. Where several know an address the first one has it.

    ``own``: those that only an interpreter asks, by the name of what its objects lie in; ``replacing``: they lie in no
    others; ``general``: those that everybody asks, by what
    their blocks are called; ``single``: those that hand out mappings."""

    own: dict[str, _native.Store] = field(default_factory=dict)
    replacing: bool = False
    general: dict[str, _native.Store] = field(default_factory=dict)
    single: list[_native.Store] = field(default_factory=list)

    @property
    def stores(self) -> list[_native.Store]:
        """All of them, those first that only an interpreter asks."""
        return [*self.own.values(), *self.general.values(), *self.single]


A = TypeVar("A", bound="Allocator")


class Surroundings(Protocol):
    """What an allocator is told of the rest of the target. Its parts are read when they are first asked for."""

    target: Target
    facts: Facts

    def allocator(self, kind: type[A]) -> A:
        """Another allocator of this target. Raises NotAPython, or Unsupported."""

    @property
    def other_allocator(self) -> OtherAllocator | None:
        """The allocator that is there beside the C library's, or in its place, and is not walked."""

    def taken(self) -> Ranges:
        """What .bss, the allocators and those stacks have that lie in no block, ascending."""

    def outside(self, ranges: Ranges, of: type[Allocator]) -> Ranges:
        """The parts of ranges that are no stack, and not known to be that of an allocator looked for before ``of``."""

    def anonymous(self, writable: bool = True) -> Ranges:
        """Private anonymous memory, what may not be written too if not ``writable``."""

    def labelled(self, label: str) -> Progress:
        """Progress of long work under a name."""

    def note(self, id: RemarkId, **values: Any) -> None:
        """A remark that belongs to every answer; ``values`` are what its sentence needs."""

    def note_others(self, idle: bool) -> None:
        """Warn of allocators whose blocks are not walked, as the C library's are listed, which holds nothing if
        ``idle``."""


class Purpose(Enum):
    """What a setting is for: that what is unused goes back soon, that caches hold less, that there are fewer arenas."""

    UNUSED = "unused"
    CACHES = "caches"
    ARENAS = "arenas"


@dataclass(frozen=True)
class Caching:
    """The ``caches`` of threads, the free ``blocks`` that wait in them and in those that threads share, the bytes of
    the latter (``shared``), and where all of them are."""

    caches: int
    blocks: int
    shared: int
    ranges: Ranges


class Allocator(ABC):
    """One allocator of one target, for as long as its surroundings are there. Construction locates it, and raises
    NotAPython, NotInUse or Unsupported where it is not there. What it lacks it leaves as it is here.

    ``name``: as in JSON, and the first part of its lines' ids; ``title``: its line in the ledger; ``replaces``: the
    allocator whose place it takes where it is there; ``walks``: the name in ``recognised.py`` of those whose blocks it
    knows, which then are no others; ``shown_idle``: its lines are there with zeros where the target
    has none; ``why_holes_stay``: a sentence; ``groups``: what one and several of its pins are; ``emptied``: what
    becomes of such a group without its blocks."""

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
        # A weak reference: with a strong one the two would hold the target's files open until the collector runs.
        self._around: Surroundings = proxy(around)
        self.target: Target = around.target

    @property
    def warnings(self) -> Sequence[str]:
        """What a reader of any answer must know."""
        return ()

    @property
    def idle(self) -> bool:
        """Whether it holds nothing: it was never called, or another takes its place."""
        return False

    @property
    @abstractmethod
    def damage(self) -> list[Damage]:
        """What is not as it must be, of what was looked at so far."""

    @property
    def interpreter(self) -> LoadedObject | None:
        """The loaded object of the interpreter that it serves; None where it does not tell."""
        return None

    @property
    def is_free_threaded(self) -> bool:
        """Whether it proves that the interpreter was built to run without its lock."""
        return False

    # Whose bytes.

    @abstractmethod
    def ranges(self) -> Ranges:
        """All address space that is its own, ascending, what it has only reserved included."""

    def single_blocks(self) -> Ranges:
        """The mappings beside ``ranges`` that hold one of its blocks each, ascending: they are found last of all."""
        return []

    def of_others(self) -> Ranges:
        """Return what of ``ranges`` somebody else got from the system, ascending."""
        return []

    def books(self) -> Ranges:
        """Return its own records in static data, ascending: they point to blocks whether these are in use or not."""
        return []

    def leaves(self, ranges: Ranges) -> Ranges:
        """The parts of ranges that are not its own, by what is known before its blocks are listed."""
        return subtract(ranges, self.ranges())

    @abstractmethod
    def pieces(self) -> Iterable[Piece]:
        """Its address space, each part once."""

    @abstractmethod
    def sweep(self, sweep: _native.Sweep, start: int, number: Callable[[LineId], int]) -> int:
        """Adds the blocks of the piece without an owner that begins at ``start``; returns where it ends. ``number``
        tells the owner's number by the id of its line."""

    def all_lines(self) -> Iterator[LedgerLine]:
        """Its lines in this target, with those of single arenas."""
        yield from self.lines

    def drawn(self) -> Iterable[Drawn]:
        """What the map shows of it."""
        return (Drawn(start, end, self.title, self.name) for start, end in self.ranges())

    # Blocks.

    @abstractmethod
    def find(self, address: int) -> Block | None:
        """The block, used or free, that holds ``address``."""

    def own_part(self, address: int) -> str | None:
        """What an address in no block is that is the allocator's own, in words; None for what is not."""
        return None

    def structures(self) -> dict[int, str]:
        """What blocks are for that it made for itself, by their address."""
        return {}

    @abstractmethod
    def used_sizes(self) -> list[tuple[int, int]]:
        """(size, how many are in use) of its blocks."""

    def free_sizes(self) -> list[tuple[int, int]]:
        """(size, how many are free) of its blocks, where free ones have sizes of their own."""
        return []

    def extent_arenas(self) -> list[ExtentArena]:
        """Its arenas, where they hand out blocks of extents."""
        return []

    def free_caches(self) -> list[FreeCache]:
        """Where its free blocks wait, where it has no arenas and that is known."""
        return []

    def owners(self) -> list[str]:
        """The modules that bring one each, where there are several; none where only one can be, or is."""
        return []

    def size_classes(self, root: int | None = None) -> list[SizeClassUse]:
        """Its sizes of blocks, ascending, where it has groups of equal ones; of all, or of that of ``owners`` at a
        place."""
        return []

    def packing(self) -> _native.Packing | None:
        """What would go if the blocks in use of groups of equal ones were moved into as few groups as they need; None
        where they do not lie in such groups."""
        return None

    # What its program may be told when it is started.

    def owner_at(self, address: int) -> str | None:
        """The module that brings the allocator which has an address; None where only one can, or nobody knows."""
        return None

    def variables(self) -> list[str]:
        """The variables that it reads its settings from, of those that ``remedy`` names."""
        return []

    def remedy(self, purpose: Purpose, owner: str | None) -> dict[str, str]:
        """Variables and their values for a purpose, of the allocator that the module ``owner`` brings; none where there
        are none."""
        return {}

    def caching(self) -> Caching | None:
        """What its threads' caches have; None where it has none that are known."""
        return None

    @property
    def tells_asked(self) -> bool:
        """Whether ``find`` tells what was asked for."""
        return False

    def largest_used(self, least: int, most: int) -> list[tuple[int, int]]:
        """(the program's pointer, size as in ``used_sizes``) of its ``most`` largest blocks in use, from ``least``
        bytes on, largest first."""
        return []

    def first_used(self, least: int, largest: int, most: int) -> list[tuple[int, int]]:
        """(the program's pointer, size as in ``used_sizes``) of its first ``most`` blocks in use of ``least`` to
        ``largest`` bytes, ascending; none where they are not listed so."""
        return []

    def list_blocks(self, asked: Asked) -> BlockList | None:
        """How many blocks are meant, their bytes, and the first of them. None where they are not listed so."""
        return None

    @abstractmethod
    def give(self, blocks: WalkedBlocks) -> None:
        """Adds its own to what the native half is told."""

    # Holes, what pins them, and what is free and stays.

    @abstractmethod
    def holes(self, minimum: int) -> Iterable[HoleRow]:
        """The maximal runs of at least ``minimum`` bytes that nobody holds."""

    @abstractmethod
    def pins(self, kept: Ranges, minimum: int, most: int) -> PinSums:
        """Groups of blocks that keep ``minimum`` bytes or more beyond their own, the first ``most``; of ``kept`` the
        kernel takes nothing back."""

    @abstractmethod
    def members(self, row: PinRow) -> list[Member]:
        """The blocks of a group."""

    def returnable(self) -> int | None:
        """Bytes that a call of the program would give back now; None where it has no such call, or nobody knows."""
        return None

    @abstractmethod
    def kept(self, free: int, whole: int) -> list[Kept]:
        """Why its ``free`` resident bytes stay beyond what is returnable; ``whole``: of them, in free pages."""

    # Its own account.

    @abstractmethod
    def check(self) -> Looked:
        """Walk everything; what is wrong is added to ``damage``."""


class StoreAllocator(Allocator):
    """An allocator all of whose blocks lie in groups of equal ones in a native store. ``parts``: the lines of the
    ledger by the native names of the parts of its pieces."""

    parts: ClassVar[dict[PartId, LineId]]

    @property
    @abstractmethod
    def store(self) -> _native.Pools | _native.Mimalloc | _native.Jemalloc | _native.Tcmalloc | _native.Mallocng:
        """Its blocks."""

    def sweep(self, sweep: _native.Sweep, start: int, number: Callable[[LineId], int]) -> int:
        """The parts of the piece."""
        owners: dict[str, int] = {part: number(line) for part, line in self.parts.items()}
        return sweep.add_blocks(self.target.space, self.store, start, owners)

    def used_sizes(self) -> list[tuple[int, int]]:
        """By the sizes of the groups' blocks."""
        return [(row.block_size, row.used) for row in self.store.classes()]

    def free_sizes(self) -> list[tuple[int, int]]:
        """Those of the groups that have room for them, whether they were handed out before or not."""
        return [(row.block_size, row.free) for row in self.store.classes()]

    def packed_classes(
        self, packing: _native.Packing, classes: list[_native.SizeClass], asked: dict[int, int] | None, root: int | None
    ) -> list[SizeClassUse]:
        """Sizes of blocks with what packing would do; ``asked``: the bytes asked for, by size; ``root``: of which one
        of several, None for all."""
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
        """The blocks of what goes, or is empty, with the last of them."""
        return _native.pins(self.target.machine, self.store, self.target.pages, kept, [], minimum, most)


class ListingAllocator(Allocator):
    """An allocator whose native store lists its blocks in use by their sizes, and its holes."""

    @property
    @abstractmethod
    def store(self) -> _native.Mimalloc | _native.Jemalloc | _native.Tcmalloc | _native.Mallocng | _native.Oldmalloc:
        """Its blocks."""

    def largest_used(self, least: int, most: int) -> list[tuple[int, int]]:
        """Of all."""
        return [(row.address, row.size) for row in self.store.largest_used(least, most)]

    def first_used(self, least: int, largest: int, most: int) -> list[tuple[int, int]]:
        """Of all."""
        return [(row.address, row.size) for row in self.store.first_used(least, largest, most)]

    def list_blocks(self, asked: Asked) -> BlockList:
        """Of all, or of an arena."""
        return self.store.list_blocks(asked)

    def holes(self, minimum: int) -> Iterable[HoleRow]:
        """Inside of what it has from the kernel; what was never used, or is only reserved, is none."""
        return self.store.holes(max(minimum, 1))
