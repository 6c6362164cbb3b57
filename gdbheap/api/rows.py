"""What a heap is asked for: small records with the names that users rely on. Sizes are in bytes, addresses are what
malloc returned; what is not known is None."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from gdbheap.api.table import Table

__all__ = [
    "Block",
    "Finding",
    "Holder",
    "Hole",
    "Kind",
    "Knows",
    "Neighbour",
    "Object",
    "Owner",
    "Referrer",
    "Retained",
    "TypeRow",
]


@dataclass(frozen=True)
class Kind:
    """What a block is: ``kind`` in one word, such as "object" or "items", ``what`` in a few."""

    kind: str
    what: str


class Knows(Protocol):
    """The heap that a record is of. Each method raises ValueError once that is closed."""

    def kinds(self, blocks: Iterable[tuple[int, int]]) -> Mapping[int, Kind]:
        """What the used blocks (address, size) are, by address."""

    def owner_of(self, address: int) -> Owner | None:
        """Who owns the block."""

    def way(self, address: int) -> str | None:
        """The path from a root."""

    def retained_by(self, address: int) -> int:
        """The bytes that would be freed with the object."""

    def referrers_of(self, address: int, top: int | None) -> Table[Referrer]:
        """Who points to the object."""

    def object_at(self, address: int) -> Object:
        """The object there."""


class Described:
    """The kinds of the used blocks of one list: found together, when the first of them is asked for."""

    def __init__(self, heap: Knows, blocks: Iterable[tuple[int, int]]) -> None:
        self._heap, self._blocks = heap, blocks
        self._found: Mapping[int, Kind] | None = None

    def kind(self, address: int) -> Kind | None:
        """Of one of them; None of one that is not in use."""
        if self._found is None:
            self._found = self._heap.kinds(self._blocks)
        return self._found.get(address)


@dataclass(frozen=True)
class Owner:
    """Who owns a block: an object by its ``address`` and ``type``, and ``what`` the block is to it ("object" where it
    is in the block itself). Both are None where no object of Python does, and ``what`` says what is known."""

    address: int | None
    type: str | None
    what: str


@dataclass(frozen=True)
class Block:
    """A block of an allocator: [address, end), ``size`` bytes with the header where there is one. ``state``: "used",
    "mmapped" (used, with a mapping of its own), "free" or "tcache" (in a thread's cache), for glibc also "fast", "top"
    and "fencepost". ``arena``: its number, None where there is none."""

    derived: ClassVar[dict[str, str]] = {"end": "int", "kind": "str", "what": "str"}
    address: int
    size: int
    state: str
    allocator: str
    arena: int | None
    _heap: Knows = field(repr=False, compare=False)
    _described: Described = field(repr=False, compare=False)

    @property
    def end(self) -> int:
        """The address behind its last byte."""
        return self.address + self.size

    @property
    def kind(self) -> str | None:
        """What it is, in a word: "object", what a buffer is to its owner ("items"), "reached" (from data of a library),
        "structure" (of an allocator) or "unknown"; None for a block that is not in use."""
        found = self._described.kind(self.address)
        return None if found is None else found.kind

    @property
    def what(self) -> str | None:
        """What it is, in a few words; None for a block that is not in use."""
        found = self._described.kind(self.address)
        return None if found is None else found.what

    @property
    def owner(self) -> Owner | None:
        """Who owns it; None for a block that is not in use."""
        return self._heap.owner_of(self.address)

    def path(self) -> str | None:
        """How the program reaches it: an expression of Python's, else words; None where no root reaches it. Reads all
        references, once for a heap."""
        return self._heap.way(self.address)


@dataclass(frozen=True)
class Neighbour:
    """A block beside a hole: its address, its size and what it is, in words."""

    address: int
    size: int
    what: str


@dataclass(frozen=True)
class Hole:
    """Free memory that is not given back: a maximal run of free bytes within an arena. ``resident``: of its whole
    pages; ``before`` and ``after``: the blocks that pin it, None at an end."""

    within: ClassVar[dict[str, type[Any]]] = {"before": Neighbour, "after": Neighbour}
    address: int
    size: int
    resident: int | None
    arena: int | None
    allocator: str
    before: Neighbour | None
    after: Neighbour | None


@dataclass(frozen=True)
class Object:
    """An object of Python, or, where there is none, a used block. ``size``: of its block; ``text``: a bounded repr,
    None where there is none."""

    address: int
    type: str
    size: int
    text: str | None
    _heap: Knows = field(repr=False, compare=False)

    def referrers(self, top: int | None = None) -> Table[Referrer]:
        """Who points to it, the certain ones first; the first ``top``. Reads all references, once for a heap."""
        return self._heap.referrers_of(self.address, top)

    def path(self) -> str | None:
        """How the program reaches it: an expression of Python's, else words; None where no root reaches it."""
        return self._heap.way(self.address)

    @property
    def retained(self) -> int:
        """The bytes that would be freed if it went."""
        return self._heap.retained_by(self.address)

    @property
    def owner(self) -> Owner | None:
        """Who owns its block."""
        return self._heap.owner_of(self.address)


@dataclass(frozen=True)
class Referrer:
    """Who points to an object: an object, a frame or memory. ``edge``: by what; ``certain``: whether a field of its
    type says so, and not only a word that looks like an address."""

    address: int
    type: str
    edge: str
    certain: bool
    _heap: Knows = field(repr=False, compare=False)

    @property
    def object(self) -> Object:
        """The one who points. Raises UsageError where that is no block in use."""
        return self._heap.object_at(self.address)


@dataclass(frozen=True)
class Holder:
    """Who holds memory that is in use: ``bytes`` of blocks, ``resident`` of them, and the ``share`` of RSS that this
    is. ``path``: the variable, module, class, thread or memory, as a person would write it; ``what``: its type, or what
    most of it is; ``count``: its items, or its blocks; ``kind``: what ``path`` names."""

    bytes: int
    resident: int | None
    share: float | None
    path: str
    what: str | None
    count: int | None
    kind: str
    address: int | None = None


@dataclass(frozen=True)
class Finding:
    """What could be given back or avoided: about ``bytes``, its ``text`` and ``advice``, and command lines to paste.
    ``doubtful``: it may be intended, or a guess."""

    id: str
    bytes: int
    text: str
    advice: str
    commands: list[str]
    doubtful: bool


@dataclass(frozen=True)
class TypeRow:
    """All objects of a type, or blocks of one kind where a program has no Python: how many, ``own``: the bytes of their
    blocks, ``buffers``: what they own apart from these, ``bytes``: both."""

    type: str
    count: int
    own: int
    buffers: int
    bytes: int


@dataclass(frozen=True)
class Retained:
    """An object, all of a type or a module: ``own`` bytes, and ``retained``: what would be freed with it. ``path``: how
    an object is reached; ``address``: None for all of a type."""

    address: int | None
    type: str
    count: int
    own: int
    retained: int
    path: str | None
