"""What an allocator says of its memory, whichever it is: all answers are made of this.

The sizes are bytes, the addresses those that the program sees. ``finding.py`` names the allocators there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Protocol, TypeVar

from gdbheap import _native
from gdbheap.layout.facts import Facts
from gdbheap.target.elf import LoadedObject
from gdbheap.target.ranges import Ranges
from gdbheap.target.target import Damage, Target

Progress = Callable[[int, int], object]
BlockRow = tuple[int, int, str]
"""Address, size and state of a block beside a hole."""
PinRow = tuple[int, int, int, int, int]
"""Start and end of a group of pages, its blocks, their bytes, and what would be free without them."""
Member = tuple[int, int, bool]
"""Address and size of a block, and whether it is in use (or only cached)."""


class State(Enum):
    """What the bytes of a line of the ledger are, to a reader who does not know the allocator."""

    USED = "used"
    FREE = "free"
    RESERVED = "reserved"
    """Address space that no block was ever in."""
    OVERHEAD = "overhead"


@dataclass(frozen=True)
class LedgerLine:
    """A line of the ledger: its id and its parent's, what people read, and the state of its bytes (None: it is a sum).

    ``detail``: it is shown only where more was asked for."""

    id: str
    parent: str
    title: str
    state: State | None
    detail: bool = False


@dataclass(frozen=True)
class Piece:
    """Address space [start, end) of one owner, the id of a line; None where the blocks inside say whose bytes are."""

    start: int
    end: int
    owner: str | None


@dataclass(frozen=True)
class Block:
    """A block: malloc's pointer, its size (with the header where there is one), its state, and the list it is on.
    ``end``: after its last byte; ``mappings``: in how many it lies: the kernel parts one where madvise or mprotect was
    called for a piece of it."""

    address: int
    size: int
    state: str
    allocator: str
    arena: int | None
    list: str | None
    end: int
    mappings: int = 1


@dataclass(frozen=True)
class HoleRow:
    """A hole [start, end), what the allocator would return for its first block, and the blocks before and after it."""

    start: int
    end: int
    address: int
    arena: int | None
    before: BlockRow | None
    after: BlockRow | None


@dataclass(frozen=True)
class Drawn:
    """A stretch for the map: [start, end), its name, and its kind, which decides on its colours and its row."""

    start: int
    end: int
    name: str
    kind: str
    arena: int | None = None


@dataclass(frozen=True)
class PinSums:
    """The groups of blocks that keep the most, and over all groups: how many, their blocks, bytes, and what is kept."""

    rows: list[PinRow]
    totals: tuple[int, int, int, int]


@dataclass(frozen=True)
class Kept:
    """Free resident bytes that stay, by why: the id of a reason and the bytes."""

    id: str
    bytes: int


@dataclass(frozen=True)
class Looked:
    """How much ``check`` looked at, by what it is: "regions", "chunks", "pools", "pages"; ``unexplained``: bytes that
    the walk could not read as blocks."""

    counts: dict[str, int]
    unexplained: int = 0


A = TypeVar("A", bound="Allocator")


class Surroundings(Protocol):
    """What an allocator is told of the rest of the target. Its parts are read when they are first asked for."""

    target: Target
    facts: Facts

    def allocator(self, kind: type[A]) -> A:
        """Another allocator of this target. Raises NotAPython, or Unsupported."""

    def ranges_of_others(self, than: Allocator) -> Ranges:
        """What stacks and the other allocators have, ascending."""

    def outside(self, ranges: Ranges) -> Ranges:
        """The parts of ``ranges`` that are no stack, and that the C library's malloc does not own as far as is known."""

    def anonymous(self, writable: bool = True) -> Ranges:
        """Private anonymous memory, what may not be written too if not ``writable``."""

    @property
    def stack_ranges_of_their_own(self) -> Ranges:
        """The stacks that lie in no allocator's block."""

    def labelled(self, label: str) -> Progress:
        """Progress of long work under a name."""

    def note(self, warning: str) -> None:
        """A warning that belongs to every answer."""


class Allocator(ABC):
    """One allocator of one target. What it lacks it leaves as it is here.

    ``name``: as in JSON, and the first part of its lines' ids; ``title``: its line in the ledger; ``shown_idle``: its
    lines are there with zeros where it is not in use; ``why_holes_stay``: a sentence; ``groups``: what one and several
    of its pins are; ``emptied``: what becomes of such a group without its blocks."""

    name: ClassVar[str]
    title: ClassVar[str]
    lines: ClassVar[tuple[LedgerLine, ...]]
    shown_idle: ClassVar[bool] = True
    why_holes_stay: ClassVar[str]
    groups: ClassVar[tuple[str, str]]
    emptied: ClassVar[str] = "would go back"

    damage: list[Damage]

    @property
    def warnings(self) -> Sequence[str]:
        """What a reader of any answer must know."""
        return ()

    @property
    def interpreter(self) -> LoadedObject | None:
        """The loaded object of the interpreter that it serves; None where it serves none by itself."""
        return None

    @property
    def is_free_threaded(self) -> bool:
        """Whether it proves that the interpreter was built to run without its lock."""
        return False

    # Whose bytes.

    @abstractmethod
    def ranges(self) -> Ranges:
        """All address space that is its own, ascending, what it has only reserved included."""

    @abstractmethod
    def pieces(self) -> Iterable[Piece]:
        """Its address space, each part once."""

    @abstractmethod
    def sweep(self, sweep: _native.Sweep, start: int, rank: Callable[[str], int]) -> int:
        """Adds the blocks of the piece without an owner that begins at ``start``; returns where it ends. ``rank``
        gives the number of the line with an id."""

    def detail_lines(self) -> Iterable[LedgerLine]:
        """Lines beyond ``lines`` that depend on the target, as those of single arenas."""
        return ()

    def drawn(self) -> Iterable[Drawn]:
        """What the map shows of it."""
        return (Drawn(start, end, self.title, self.name) for start, end in self.ranges())

    # Blocks.

    @abstractmethod
    def find(self, address: int) -> Block | None:
        """The block, used or free, that holds ``address``."""

    def own_part(self, address: int) -> str | None:
        """What its own an address is that is in no block, in words; None for what is not its own."""
        return None

    def structures(self) -> dict[int, str]:
        """What its own blocks are for, by their address."""
        return {}

    @abstractmethod
    def used_sizes(self) -> list[tuple[int, int]]:
        """(size, how many are in use) of its blocks."""

    # Holes and what pins them.

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

    # Its own account.

    @abstractmethod
    def check(self) -> Looked:
        """Walk everything; what is wrong is added to ``damage``."""
