"""Describe a block in use in a few words: the object in it, the object that owns it, or what its bytes look like."""

from __future__ import annotations

from collections.abc import Sequence

from gdbheap import _native
from gdbheap.contents.cxx.kinds import CxxKind, class_names
from gdbheap.contents.python.names.library_variables import variable_above
from gdbheap.contents.python.objects.census import BlockObject, Owner
from gdbheap.contents.python.objects.roots import INTERPRETER, THREADS
from gdbheap.dataclass import dataclass
from gdbheap.graph.roots import variable_at
from gdbheap.heap import Heap

# The size of the header before an object that the collector tracks; it begins with a link (pycore_gc.h, PyGC_Head).
GC_HEAD = 16
PLAIN_LOOKS = ("zeros", "text", "pointers", "data", "absent bytes")
OBJECT, SPARE, REACHED, STRUCTURE, UNKNOWN, CACHED = (
    "object", "object on a free list", "reached", "structure", "unknown", "cached",
)  # fmt: skip


@dataclass(frozen=True)
class BlockKind:
    """The kind of a block. Blocks with the same kind of contents have equal kinds.

    ``role``: one of these texts. "object". "object on a free list". The owner's use of the block, such as "items".
    "reached": data of a library points to it. "structure": an allocator's own. "cached": free, in a thread's cache.
    "unknown". ``type``: the type of the object or of the owner. ``library``: the library whose data points to the
    block, or "threads". ``look``: a description of its bytes."""

    role: str
    type: str | None = None
    library: str | None = None
    look: str | None = None

    def text(self, owner: int | None = None) -> str:
        """Return the kind in a few words, with the owner's address if it is given."""
        place = "" if owner is None else f" at {owner:#x}"
        if self.role == OBJECT:
            return str(self.type)
        if self.role == SPARE:
            return f"{self.type} on a free list"
        if self.role == REACHED:
            return f"reached from {self.library}{place}"
        if self.role == UNKNOWN and self.look in PLAIN_LOOKS:
            return f"unknown ({self.look})"
        return str(self.look) if self.look is not None else f"{self.role} of {self.type}{place}"


@dataclass(frozen=True)
class BlockDescription:
    """The kind of a block, and the address of its owner.

    The owner is an object, or a pointer to the block in a library's data. ``variable``: the static variable that
    contains this pointer, or None if no symbol names it.
    """

    kind: BlockKind
    owner: int | None = None
    variable: str | None = None

    def __str__(self) -> str:
        return self.kind.text(self.owner) if self.variable is None else f"{self.kind.role} from {self.variable}"


def describe_blocks(heap: Heap, blocks: Sequence[tuple[int, int]], draws: bool = True) -> dict[int, BlockDescription]:
    """Return a description of each block in use, by the program's pointer to the block.

    ``blocks``: (program's pointer, size) of each block. ``draws``: build the graph of references if needed to find
    owners.
    """
    found = _structures(heap)
    objects = heap.python.objects_or_none
    unknown = [block for block in dict.fromkeys(blocks) if block[0] not in found]
    if objects is not None and unknown:
        held = {address: one for (address, _size), one in zip(unknown, objects.objects_in(unknown)) if one is not None}
        for address, one in held.items():
            found[address] = BlockDescription(BlockKind(OBJECT if one.alive else SPARE, one.type))
        others = [at for at, _size in unknown if at not in held or may_be_buffer(heap, at, held[at])]
        owners = heap.python.owners_of(others, draws)
        reached = [address for address, owner in owners.items() if owner is not None and owner.type is None]
        # The known kind of a block says more about it than the library that points to it.
        named = {address for address, kind in zip(reached, _kinds(heap, reached)) if kind is not None}
        found.update(
            (address, _owned(heap, address, owner))
            for address, owner in owners.items()
            if owner is not None and address not in named
        )
    rest = [block for block in unknown if block[0] not in found]
    for (address, _size), look in zip(rest, looks(heap, rest)):
        found[address] = BlockDescription(BlockKind(UNKNOWN, look=look))
    return {address: found[address] for address, _size in blocks}


def may_be_buffer(heap: Heap, start: int, found: BlockObject) -> bool:
    """Return whether the block at ``start`` may be an object's buffer, although it looks like the object ``found``.

    If so, the block's owner must be searched first. A buffer that begins with a zero word and a class pointer looks
    like an object on a free list. A buffer that begins with a pointer and a class pointer looks like a live object. A
    live object that the collector tracks has a valid link of the collector before it. Text that overwrote a freed
    object lacks such a link.
    """
    word, find = heap.target.space.word, heap.target.mappings.find
    if not found.alive or find(word(found.address)) is not None:
        return True
    # The collector keeps flags in the two lowest bits of its links.
    link = word(found.address - GC_HEAD) if found.address - GC_HEAD >= start else 0
    return link != 0 and find(link & ~3) is None


def looks(heap: Heap, blocks: Sequence[tuple[int, int]]) -> list[str]:
    """Return a description of the bytes of each block (program's pointer, size).

    It is one of PLAIN_LOOKS, a C++ object with its class, or a kind from ``heap.known_structures``.
    """
    found = _native.look_at(heap.target.space, blocks, heap.target.mappings.ranges())
    addresses = [address for address, _size in blocks]
    return [look if kind is None else kind.text for look, kind in zip(found, _kinds(heap, addresses))]


def _kinds(heap: Heap, addresses: list[int]) -> list[CxxKind | None]:
    structures = heap.known_structures
    if structures is not None:
        return structures.kinds_at(addresses)
    names = class_names(heap.target, addresses)
    return [None if name is None else CxxKind("object", name) for name in names]


def _owned(heap: Heap, block: int, owner: Owner) -> BlockDescription:
    if owner.type is None:
        return BlockDescription(BlockKind(REACHED, library=owner.role), owner.address, variable_of(heap, block, owner))
    return BlockDescription(BlockKind(owner.role, owner.type), owner.address)


def variable_of(heap: Heap, block: int, owner: Owner | None) -> str | None:
    """Return the static variable of a library from which a block is reached, with the library's name.

    ``block``: the program's pointer to the block. None if the block has another owner, or if no symbol names the
    variable. Several variables may point to the block. If the graph of references was built, it decides which one is
    named, as in other answers."""
    if owner is None or owner.type is not None or owner.role in (INTERPRETER, THREADS):
        return None
    if heap.python.has("references"):
        references = heap.python.references
        number = references.graph.find(block)
        above = None if number is None else variable_above(references, number)
        if above is not None:
            return above.name
    found = variable_at(heap.target, owner.address)
    return None if found is None else found[0]


def _structures(heap: Heap) -> dict[int, BlockDescription]:
    """Return descriptions of the blocks that the allocators use for their own data, by address."""
    return {
        address: BlockDescription(BlockKind(STRUCTURE, look=what))
        for allocator in heap.allocators
        for address, what in allocator.structures().items()
    }
