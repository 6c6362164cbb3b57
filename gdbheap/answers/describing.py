"""What a used block is, in a few words: the object in it, the object that owns it, or what its bytes look like."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from gdbheap.errors import Fault
from gdbheap.heap import Heap

LOOK = 64


def describe_blocks(heap: Heap, blocks: Sequence[tuple[int, int]]) -> dict[int, str]:
    """A few words for each used block (user address, size), by user address."""
    words = _structures(heap)
    objects = heap.objects_or_none
    unknown = [block for block in dict.fromkeys(blocks) if block[0] not in words]
    if objects is not None and unknown:
        for (address, _size), found in zip(unknown, objects.objects_in(unknown)):
            if found is not None:
                words[address] = found.type if found.alive else f"{found.type} on a free list"
        rest = [address for address, _size in unknown if address not in words]
        for address, owner in objects.owners_of(rest, heap.classifying).items():
            if owner is not None:
                words[address] = f"{owner.role} of {owner.type} at {owner.address:#x}"
    return {address: words.get(address) or f"unknown ({looks_like(heap, address, size)})" for address, size in blocks}


def _structures(heap: Heap) -> dict[int, str]:
    """Blocks of the allocators themselves."""
    known = {tcache.address: f"thread cache of thread {tcache.tid}" for tcache in heap.glibc.tcaches}
    python = heap.python_or_none
    if python is not None:
        known[python.table] = "pymalloc's table of arenas"
    return known


def looks_like(heap: Heap, address: int, size: int) -> str:
    """What the first bytes of a block look like: zeros, text, pointers or data."""
    try:
        raw = heap.target.space.read(address, max(8, min(LOOK, size - 16)))
    except Fault:
        return "absent bytes"
    if not any(raw):
        return "zeros"
    text = raw.split(b"\0")[0]
    if len(text) >= 8 and all(32 <= byte < 127 or byte in (9, 10, 13) or byte >= 128 for byte in text):
        return "text"
    words = struct.unpack(f"<{len(raw) // 8}Q", raw[: len(raw) // 8 * 8])
    pointers = sum(1 for word in words if word > 4096 and heap.target.mappings.find(word) is not None)
    return "pointers" if pointers * 2 >= len(words) else "data"
