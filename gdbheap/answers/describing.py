"""What a used block is, in a few words: the object in it, the object that owns it, or what its bytes look like."""

from __future__ import annotations

from collections.abc import Sequence

from gdbheap import _native
from gdbheap.heap import Heap
from gdbheap.python.census import Owner
from gdbheap.python.classes import class_name

PLAIN_LOOKS = ("zeros", "text", "pointers", "data", "absent bytes")


def describe_blocks(heap: Heap, blocks: Sequence[tuple[int, int]]) -> dict[int, str]:
    """A few words for each used block (user address, size), by user address."""
    words = _structures(heap)
    objects = heap.objects_or_none
    unknown = [block for block in dict.fromkeys(blocks) if block[0] not in words]
    if objects is not None and unknown:
        for (address, _size), found in zip(unknown, objects.objects_in(unknown)):
            if found is not None:
                words[address] = found.type if found.alive else f"{found.type} on a free list"
        others = [address for address, _size in unknown if address not in words]
        for address, owner in objects.owners_of(others, heap.classifying).items():
            if owner is not None:
                words[address] = owner_text(owner)
    rest = [block for block in unknown if block[0] not in words]
    for (address, _size), look in zip(rest, looks(heap, rest)):
        words[address] = f"unknown ({look})" if look in PLAIN_LOOKS else look
    return {address: words[address] for address, _size in blocks}


def looks(heap: Heap, blocks: Sequence[tuple[int, int]]) -> list[str]:
    """What the bytes of each block (user address, size) look like: one of PLAIN_LOOKS, or a C++ object of a class."""
    found = _native.look_at(heap.target.space, blocks, heap.target.mappings.ranges())
    return [_look(heap, address, look) for (address, _size), look in zip(blocks, found)]


def _look(heap: Heap, address: int, look: str) -> str:
    name = class_name(heap.target, address) if look in ("pointers", "data") else None
    return look if name is None else f"C++ object of class {name}"


def owner_text(owner: Owner) -> str:
    """Like ``items of list at 0x…``, or ``reached from libcrypto.so.3 at 0x…``."""
    if owner.type is None:
        return f"reached from {owner.role} at {owner.address:#x}"
    return f"{owner.role} of {owner.type} at {owner.address:#x}"


def _structures(heap: Heap) -> dict[int, str]:
    """Blocks of the allocators themselves."""
    return {address: what for allocator in heap.allocators for address, what in allocator.structures().items()}
