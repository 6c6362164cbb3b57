"""Describe what lies at an address, and what owns it."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING

from gdbheap import _native
from gdbheap.allocators.allocator import MMAPPED, Block
from gdbheap.allocators.library_memory import held_at
from gdbheap.answers.accounting.describing import describe_blocks, may_be_buffer, variable_of
from gdbheap.answers.accounting.partition import main_runtime
from gdbheap.answers.accounting.paths import ways
from gdbheap.answers.accounting.traced import traced
from gdbheap.answers.arrays import InArray, array_at
from gdbheap.contents.python.arrays.arrow import MODULE as OF_ARROW
from gdbheap.contents.python.arrays.ndarrays import KIND as NDARRAY
from gdbheap.contents.python.arrays.polars import HOLDERS as OF_POLARS
from gdbheap.contents.python.objects.owned import REACHED, ROLES
from gdbheap.dataclass import dataclass
from gdbheap.errors import UsageError
from gdbheap.graph.mapped import MappedMemory
from gdbheap.heap import Heap
from gdbheap.targets.mappings import Mapping

if TYPE_CHECKING:
    from gdbheap.stacks import AllocatingCall

# At most this many of the blocks to which a block points are listed.
MAX_REFERRED = 100
MMAP = "mmap()"

__all__ = ["At", "AtMapping", "Block", "Object", "Owner", "Referred", "at", "find_block"]


@dataclass(frozen=True)
class AtMapping:
    """The mapping that contains the address. ``whose``: the owner of the memory at the address, as text."""

    start: int
    end: int
    perms: str
    name: str
    whose: str
    huge: int = 0


@dataclass(frozen=True)
class Object:
    """The Python object in the block. ``size``: the bytes of the block. ``text``: a shortened repr, or None."""

    address: int
    type: str
    size: int
    text: str | None


@dataclass(frozen=True)
class Owner:
    """The object that owns the block, and in ``what`` the object's use of the block.

    If no object owns the block, only ``what`` is set, with a description of the block.
    """

    address: int | None
    type: str | None
    what: str


@dataclass(frozen=True)
class Referred:
    """A block in use to which a pointer in the described block points."""

    address: int
    size: int
    what: str


@dataclass(frozen=True)
class Allocated:
    """The line of Python code that allocated the block, and the size that it asked for, as tracemalloc recorded
    them."""

    file: str
    line: int
    asked: int


@dataclass(frozen=True)
class At:
    """The answer of ``heap at``. ``variable``: the library's static variable that points to the block, or None."""

    mapping: AtMapping
    block: Block | None
    object: Object | None
    owner: Owner | None
    path: str | None = None
    made: AllocatingCall | None = None
    refers: list[Referred] = field(default_factory=list)
    refers_to: int = 0
    allocated_at: Allocated | None = None
    array: InArray | None = None
    variable: str | None = None


def at(heap: Heap, address: int, path: bool = False) -> At:
    """Return what lies at ``address``. Raises UsageError if no mapping contains it.

    ``path``: add the path from a root to the block.
    """
    mapping = heap.target.mappings.find(address)
    if mapping is None:
        raise UsageError(f"{address:#x} is in no mapping of this target: check the address")
    mapped = heap.python.mapped_at(address)
    if mapped is not None:
        return _in_mapped(heap, mapping, mapped, ways(heap, [address]).get(address) if path else None)
    block = _in_mappings(heap, find_block(heap, address))
    found = _object(heap, block, address) if block is not None and block.state == "used" else None
    is_other = block is not None and block.state == "used" and found is None
    owner = _owner(heap, block) if block is not None and is_other else None
    variable = _variable(heap, block) if block is not None and is_other else None
    whose = _mapping(heap, mapping, _whose(heap, address, block))
    way = ways(heap, [address]).get(address) if path else None
    refers, count = _refers(heap, block, found) if block is not None and block.state == "used" else ([], 0)
    traced = _allocated(heap, block) if block is not None and block.state == "used" else None
    inside = None
    if found is None and _may_be_values(block, owner):
        inside = array_at(heap, address, _around(heap, mapping, block))
        owner = _of_array(owner, inside)
    return At(whose, block, found, owner, way, None, refers, count, traced, inside, variable)


def _in_mapped(heap: Heap, mapping: Mapping, mapped: MappedMemory, path: str | None) -> At:
    """Return the answer for an address inside memory that an object mapped.

    The whole mapped memory counts as one block, and its bytes are not read.
    """
    whose = _mapping(heap, mapping, _whose_mapping(heap, mapping, mapped.address))
    block = _in_mappings(heap, Block(mapped.address, mapped.size, "used", MMAP, None, None, mapped.end))
    holder = heap.block_at(mapped.block)
    found = None if holder is None else _object(heap, holder, mapped.block)
    what = "mapped memory, shared with other processes that map it" if mapped.shared else "mapped memory"
    if found is not None:
        return At(whose, block, None, Owner(found.address, found.type, what), path)
    owner = None if holder is None else _owner(heap, holder)
    return At(whose, block, None, None if owner is None else replace(owner, what=f"{what} ({owner.what})"), path)


def _mapping(heap: Heap, mapping: Mapping, owner: str) -> AtMapping:
    huge = sum(size for start, end, size in heap.target.huge_mapped if mapping.start <= start and end <= mapping.end)
    return AtMapping(mapping.start, mapping.end, mapping.perms, mapping.name, owner, huge)


def _around(heap: Heap, mapping: Mapping, block: Block | None) -> tuple[int, int]:
    """Return the range in which an array that contains the address may begin: the block or, without a block, the
    mappings around the address.

    Adjacent mappings before ``mapping`` are included, because the kernel may have split one mapping.
    """
    if block is not None:
        return block.address, block.end
    start = mapping.start
    while (before := heap.target.mappings.find(start - 1)) is not None:
        start = before.start
    return start, mapping.end


def _may_be_values(block: Block | None, owner: Owner | None) -> bool:
    """Return whether the block could hold an array's data.

    A block that an object of another type owns holds no array data. For such a block the slow listing of all arrays is
    skipped.
    """
    if block is not None and block.state != "used":
        return False
    kind = None if owner is None else owner.type
    return kind is None or kind in (NDARRAY, *OF_POLARS) or kind.startswith(OF_ARROW)


def _allocated(heap: Heap, block: Block) -> Allocated | None:
    """Return where the block was allocated according to tracemalloc; None if tracemalloc has no record of it."""
    found = None if heap.python.objects_or_none is None else traced(heap, block.address)
    return None if found is None else Allocated(*found.line, found.trace.size)


def _refers(heap: Heap, block: Block, held: Object | None) -> tuple[list[Referred], int]:
    """Return the blocks in use to which pointers in the block point, at most MAX_REFERRED of them, and the number of
    all.

    If the block holds an object, pointers before the object are skipped."""
    heaps = _native.Heaps(heap.target.space, heap.walked.stores)
    start = block.address if held is None else held.address
    found = heaps.led_to(start, block.end, MAX_REFERRED)
    used = [row for row in found.rows if (inner := heap.block_at(row[0])) is not None and inner.state == "used"]
    what = describe_blocks(heap, used)
    rows = [Referred(address, size, str(what[address])) for address, size in used]
    return rows, found.count - len(found.rows) + len(rows)


def find_block(heap: Heap, address: int) -> Block | None:
    """Return the block that contains ``address``, from the innermost allocator that has one; None if there is none.

    In memory of an allocator that is not walked, return the block whose size follows from a Python object's own fields.
    """
    return heap.block_at(address) or _claimed_block(heap, address)


def _claimed_block(heap: Heap, address: int) -> Block | None:
    """Return the block at ``address`` whose size follows from a Python object's own fields, in memory of an allocator
    that is not walked. Return None if there is no such allocator or no such block.
    """
    other = heap.other_allocator
    objects = heap.python.objects_or_none if other is not None else None
    found = objects.claimed.find(address) if objects is not None and objects.claimed else None
    if not found or other is None:
        return None
    start, size = found
    return Block(start, size, "used", other.kind.name, None, None, start + size)


def _in_mappings(heap: Heap, block: Block | None) -> Block | None:
    """Return the block with the number of mappings that it spans; None if ``block`` is None."""
    if block is None:
        return None
    at, count = block.address, 0
    while at < block.end and (mapping := heap.target.mappings.find(at)) is not None:
        at, count = mapping.end, count + 1
    return replace(block, mappings=max(count, 1))


def _object(heap: Heap, block: Block, address: int) -> Object | None:
    objects = heap.python.objects_or_none
    found = objects.object_at(block.address, block.size, address) if objects else None
    if objects is None or found is None:
        return None
    may_be = may_be_buffer(heap, block.address, found)
    if may_be and heap.python.owners_of([block.address])[block.address] is not None:
        return None
    name = found.type if found.alive else f"{found.type} (on a free list)"
    return Object(found.address, name, block.size, objects.text(found))


def _owner(heap: Heap, block: Block) -> Owner | None:
    owner = heap.python.owners_of([block.address])[block.address] if heap.python.objects_or_none else None
    if owner is not None and owner.type is not None:
        return Owner(owner.address, owner.type, owner.role)
    return Owner(None, None, str(describe_blocks(heap, [(block.address, block.size)])[block.address]))


def _variable(heap: Heap, block: Block) -> str | None:
    owner = heap.python.owners_of([block.address])[block.address] if heap.python.objects_or_none else None
    return variable_of(heap, block.address, owner)


def _of_array(owner: Owner | None, inside: InArray | None) -> Owner | None:
    """Return the owner of a block: the Arrow table that contains the array ``inside``, if the owner is known only by
    reachability; otherwise ``owner``.

    By reachability, the owner is the first object found that points to the block; with Arrow this may be any function.
    The Arrow table is the better answer, because its own fields say where its columns lie.
    """
    if owner is None or inside is None or owner.what != ROLES[REACHED] or not inside.type.startswith(OF_ARROW):
        return owner
    return Owner(inside.address, inside.type, owner.what)


def _whose(heap: Heap, address: int, block: Block | None) -> str:
    """Return the owner of the memory at an address, as text."""
    if block is not None and block.arena is not None:
        return f"{block.allocator} arena {block.arena}"
    if block is not None:
        return f"{block.allocator} {block.list}" if block.list == MMAPPED else block.allocator
    own = [allocator.own_part(address) for allocator in reversed(heap.allocators)]
    if any(own):
        return next(part for part in own if part)
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
        return "shared memory" if heap.is_shared_memory(mapping) else "mapped file"
    other = heap.other_allocator if heap.target.refusal is None else None
    if other is not None and other.owns(mapping):
        return other.title
    runtime = main_runtime(heap)
    if runtime is not None and runtime.owns(mapping):
        return runtime.title
    held = held_at(heap.held, address) if heap.target.refusal is None and mapping.anonymous else None
    return "other" if held is None else f"other, reached from {held.name}"
