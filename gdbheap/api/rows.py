"""The records that a heap's questions return, with the names that users rely on.

Sizes are in bytes; an address is the one that malloc returned; None means unknown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from gdbheap.dataclass import dataclass

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
    """The kind of a block: ``kind`` in one word, such as "object" or "items", ``what`` in a few words."""

    kind: str
    what: str


class Knows(Protocol):
    """The questions about a record that its heap can answer.

    After the heap was closed, each method raises ValueError.
    """

    def kinds(self, blocks: Iterable[tuple[int, int]]) -> Mapping[int, Kind]:
        """Return the kinds of blocks in use, by address. ``blocks``: (address, size in bytes) of each block."""

    def owner_of(self, address: int) -> Owner | None:
        """Return the owner of the block at an address; None if the block is not in use."""

    def way(self, address: int) -> str | None:
        """Return the path from a root to an address; None if no root reaches it."""

    def retained_by(self, address: int) -> int:
        """Return the bytes that would be freed with the object at an address."""

    def referrers_of(self, address: int, top: int | None) -> Table[Referrer]:
        """Return the objects and other memory that point to the object at an address. ``top``: the most rows, None for
        all.
        """

    def object_at(self, address: int) -> Object:
        """Return the Python object whose block contains an address, or the block itself. Raises UsageError if no block
        in use does.
        """


class BlockDescriptions:
    """Descriptions of the used blocks of one list. All blocks are described together, on first use."""

    def __init__(self, heap: Knows, blocks: Iterable[tuple[int, int]]) -> None:
        self._heap, self._blocks = heap, blocks
        self._found: Mapping[int, Kind] | None = None

    def kind(self, address: int) -> Kind | None:
        """Return the kind of one of the blocks; None if the block is not in use."""
        if self._found is None:
            self._found = self._heap.kinds(self._blocks)
        return self._found.get(address)


@dataclass(frozen=True)
class Owner:
    """The owner of a block: an object with ``address`` and ``type``. ``what``: the owner's use of the block.

    ``what`` is "object" if the block contains the object itself. ``address`` and ``type`` are None if no Python object
    owns the block; ``what`` then says what is known.
    """

    address: int | None
    type: str | None
    what: str


@dataclass(frozen=True)
class Block:
    """A block of an allocator: [address, end), ``size`` bytes including a header if it has one.

    ``state``: "used", "mmapped" (used, with a mapping of its own), "free" or "tcache" (in a thread's cache); for glibc
    also "fast", "top" and "fencepost". ``arena``: the number of its arena, None if it has no arena."""

    derived: ClassVar[dict[str, str]] = {"end": "int", "kind": "str", "what": "str"}
    address: int
    size: int
    state: str
    allocator: str
    arena: int | None
    _heap: Knows = field(repr=False, compare=False)
    _described: BlockDescriptions = field(repr=False, compare=False)

    @property
    def end(self) -> int:
        """The address after the block's last byte."""
        return self.address + self.size

    @property
    def kind(self) -> str | None:
        """The kind of the block, in a word; None if the block is not in use.

        The words: "object"; for a buffer its owner's use of it, such as "items"; "reached" (from a library's data);
        "structure" (of an allocator); or "unknown".
        """
        found = self._described.kind(self.address)
        return None if found is None else found.kind

    @property
    def what(self) -> str | None:
        """A few words that say what the block is; None if the block is not in use."""
        found = self._described.kind(self.address)
        return None if found is None else found.what

    @property
    def owner(self) -> Owner | None:
        """The owner of the block; None if the block is not in use."""
        return self._heap.owner_of(self.address)

    def path(self) -> str | None:
        """Return how the program reaches the block, as a Python expression or as text; None if no root reaches it.

        Reads all references, once for a heap.
        """
        return self._heap.way(self.address)


@dataclass(frozen=True)
class Neighbour:
    """A block next to a hole: its address, its size, and a description."""

    address: int
    size: int
    what: str


@dataclass(frozen=True)
class Hole:
    """A hole: a maximal run of free bytes in an arena. Its memory is not returned to the kernel.

    ``resident``: the bytes of its whole pages that are resident; ``before``, ``after``: the blocks next to it, which
    pin it; None if there is no such block."""

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
    """A Python object, or a used block without one.

    ``size``: the bytes of its block; ``text``: a bounded repr, None if there is no object."""

    address: int
    type: str
    size: int
    text: str | None
    _heap: Knows = field(repr=False, compare=False)

    def referrers(self, top: int | None = None) -> Table[Referrer]:
        """Return the objects and other memory that point to the object, or the first ``top`` of them. Certain
        references come first.

        Reads all references, once for a heap.
        """
        return self._heap.referrers_of(self.address, top)

    def path(self) -> str | None:
        """Return how the program reaches the object, as a Python expression or as text; None if no root reaches it."""
        return self._heap.way(self.address)

    @property
    def retained(self) -> int:
        """The bytes that would be freed with the object. Reads all references, once for a heap."""
        return self._heap.retained_by(self.address)

    @property
    def owner(self) -> Owner | None:
        """The owner of the object's block; None if no owner is known."""
        return self._heap.owner_of(self.address)


@dataclass(frozen=True)
class Referrer:
    """An object, a frame or other memory that points to an object.

    ``edge``: the attribute, key or field that has the pointer; ``certain``: whether the pointer is in a known field,
    rather than a word that only looks like an address.
    """

    address: int
    type: str
    edge: str
    certain: bool
    _heap: Knows = field(repr=False, compare=False)

    @property
    def object(self) -> Object:
        """The object that has the reference. Raises UsageError if the reference is not in a block in use."""
        return self._heap.object_at(self.address)


@dataclass(frozen=True)
class Holder:
    """A holder of memory in use.

    ``bytes``: the bytes of the blocks that it holds.
    ``resident``: the resident bytes among them.
    ``share``: their share of RSS, from 0 to 1.
    ``path``: the variable, module, class, thread or memory, as a person would write it.
    ``kind``: the kind of the holder.
    ``what``: the type of the holder, or the content of most of its memory.
    ``count``: the number of its items, or of its blocks.
    """

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
    """A finding: about ``bytes`` bytes of memory that could be freed, or that a change would save.

    ``text``: a description of the memory.
    ``advice``: what to do.
    ``commands``: command lines to paste.
    ``doubtful``: the memory may be intended, or the finding is a guess.
    """

    id: str
    bytes: int
    text: str
    advice: str
    commands: list[str]
    doubtful: bool


@dataclass(frozen=True)
class TypeRow:
    """All objects of a type, or all blocks of a kind in a program without Python.

    ``own``: the bytes of the objects' own blocks.
    ``buffers``: the bytes of the blocks that the objects own.
    ``bytes``: the sum of these two.
    """

    type: str
    count: int
    own: int
    buffers: int
    bytes: int


@dataclass(frozen=True)
class Retained:
    """An object, or all objects of a type or a module.

    ``own``: the bytes of the objects themselves.
    ``retained``: the bytes that would be freed with them.
    ``path``: how an object is reached.
    ``address``: None for all objects of a type.
    """

    address: int | None
    type: str
    count: int
    own: int
    retained: int
    path: str | None
