"""What is at this address, and who owns it?"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gdbheap.allocators.glibc.arenas import HEADER
from gdbheap.allocators.library_memory import held_at
from gdbheap.answers.describing import describe_blocks
from gdbheap.answers.partition import main_runtime
from gdbheap.answers.ways import ways
from gdbheap.errors import GdbheapError, UsageError
from gdbheap.heap import Heap
from gdbheap.target.mappings import Mapping


@dataclass(frozen=True)
class AtMapping:
    """The mapping that holds the address; ``owner`` says whose memory it is there."""

    start: int
    end: int
    perms: str
    name: str
    owner: str


@dataclass(frozen=True)
class Block:
    """The block that holds the address: malloc's pointer, size with its header, its state, and the list it is on.
    ``end``: after its last byte; ``mappings``: in how many it lies: the kernel parts one where madvise or mprotect was
    called for a piece of it."""

    address: int
    size: int
    state: str
    allocator: str
    arena: int | None
    list: str | None
    end: int = 0
    mappings: int = 1


@dataclass(frozen=True)
class Object:
    """The Python object in the block: ``size`` is the block's, ``text`` a bounded repr or None."""

    address: int
    type: str
    size: int
    text: str | None


@dataclass(frozen=True)
class Owner:
    """The object that owns the block, and what the block is to it; or a description without an address."""

    address: int | None
    type: str | None
    what: str


@dataclass(frozen=True)
class At:
    """The answer of ``heap at``; ``path``: how a root leads there, as Python or in words, where that was asked for."""

    mapping: AtMapping
    block: Block | None
    object: Object | None
    owner: Owner | None
    path: str | None = None


def at(heap: Heap, address: int, path: bool = False) -> At:
    """What is at ``address``. Raises UsageError when no mapping holds it."""
    mapping = heap.target.mappings.find(address)
    if mapping is None:
        raise UsageError(f"{address:#x} is in no mapping of this target: check the address")
    block = _in_mappings(heap, find_block(heap, address))
    found = _object(heap, block, address) if block is not None and block.state == "used" else None
    owner = _owner(heap, block) if block is not None and block.state == "used" and found is None else None
    whose = AtMapping(mapping.start, mapping.end, mapping.perms, mapping.name, _whose(heap, address, block))
    return At(whose, block, found, owner, ways(heap, [address]).get(address) if path else None)


def find_block(heap: Heap, address: int) -> Block | None:
    """The allocator's block at ``address``: pymalloc's and mimalloc's first, their arenas lie inside nobody else's."""
    python = heap.python_or_none
    row = python.pools.find(heap.target.space, address) if python else None
    if python is not None and row is not None:
        arena = next((a.number for a in python.arenas if 0 <= address - a.address < (python.arena_size or 0)), None)
        return Block(row[0], row[1], row[2], "pymalloc", arena, None)
    found = heap.mimalloc.blocks.find(heap.target.space, address) if heap.mimalloc else None
    if found is not None:
        return Block(found[0], found[1], found[2], "mimalloc", None, found[3])
    try:
        found_chunk = _glibc_block(heap, address)
    except GdbheapError:
        found_chunk = None
    return found_chunk or _claimed_block(heap, address)


def _claimed_block(heap: Heap, address: int) -> Block | None:
    """What Python's objects say lies in memory of an allocator that is not walked."""
    other = heap.other_allocator
    objects = heap.objects_or_none if other is not None else None
    found = objects.layout.claimed.find(address) if objects is not None and objects.layout.claimed else None
    return Block(*found, "used", other.kind.name, None, None) if found and other is not None else None


def _in_mappings(heap: Heap, block: Block | None) -> Block | None:
    """The block with its end and the number of mappings that it lies in."""
    if block is None:
        return None
    start = block.address - HEADER if block.allocator == "glibc" else block.address
    at, end, count = start, start + block.size, 0
    while at < end and (mapping := heap.target.mappings.find(at)) is not None:
        at, count = mapping.end, count + 1
    return replace(block, end=end, mappings=max(count, 1))


def _glibc_block(heap: Heap, address: int) -> Block | None:
    # A chunk reaches eight bytes into the next header, but not beyond its heap.
    found = heap.chunks.find_many([address])[0] if _arena_own(heap, address) is None else None
    if found is not None:
        chunk, size, state = found
        (name,) = heap.lists_of([found])
        return Block(chunk + HEADER, size, state, "glibc", heap.chunks.arena_of(chunk), name)
    mapped = heap.mapped_at(address)
    if mapped is None:
        return None
    size = mapped.end - mapped.chunk
    state = "tcache" if mapped.cached else "used"
    (held,) = heap.lists_of([(mapped.chunk, size, state)])
    return Block(mapped.chunk + HEADER, size, state, "glibc", None, held or "mmapped")


def _object(heap: Heap, block: Block, address: int) -> Object | None:
    objects = heap.objects_or_none
    found = objects.object_at(block.address, block.size, address) if objects else None
    if objects is None or found is None:
        return None
    name = found.type if found.alive else f"{found.type} (on a free list)"
    return Object(found.address, name, block.size, objects.text(found))


def _owner(heap: Heap, block: Block) -> Owner | None:
    objects = heap.objects_or_none
    owner = objects.owners_of([block.address], heap.classifying)[block.address] if objects else None
    if owner is not None and owner.type is not None:
        return Owner(owner.address, owner.type, owner.role)
    return Owner(None, None, describe_blocks(heap, [(block.address, block.size)])[block.address])


def _whose(heap: Heap, address: int, block: Block | None) -> str:
    """Whose memory an address is, in words."""
    if block is not None and block.allocator == "mimalloc":
        return "mimalloc"
    if block is not None:
        return (
            f"{block.allocator} arena {block.arena}" if block.arena is not None else f"{block.allocator} {block.list}"
        )
    if heap.mimalloc is not None and any(start <= address < end for start, end in heap.mimalloc.reserved()):
        return "reserve of mimalloc"
    arena = _arena_own(heap, address)
    if arena is not None:
        return arena
    stack = next((stack for stack in heap.stacks if stack.start <= address < stack.end), None)
    if stack is not None:
        return f"stack of thread {stack.tid}"
    loaded = heap.target.object_of(address)
    if loaded is not None:
        return loaded.path
    mapping = heap.target.mappings.find(address)
    return "other" if mapping is None else _whose_mapping(heap, mapping, address)


def _whose_mapping(heap: Heap, mapping: Mapping, address: int) -> str:
    if mapping.is_kernels:
        return f"the kernel's {mapping.path.strip('[]')}"
    if not mapping.private:
        return "shared memory"
    other = heap.other_allocator if heap.target.refusal is None else None
    if other is not None and other.owns(mapping):
        return other.title
    runtime = main_runtime(heap)
    if runtime is not None and runtime.owns(mapping):
        return runtime.title
    held = held_at(heap.held, address) if heap.target.refusal is None and mapping.anonymous else None
    return "other" if held is None else f"other, led to from {held.name}"


def _arena_own(heap: Heap, address: int) -> str | None:
    """What an address in a thread's heap is that lies before the heap's chunks or behind them; None elsewhere."""
    try:
        found = heap.glibc.heap_at(address)
    except GdbheapError:
        return None
    if found is None or found.chunks <= address < found.end:
        return None
    return f"header of arena {found.arena}'s heap" if address < found.chunks else f"reserve of arena {found.arena}"
