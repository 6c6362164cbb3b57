"""pymalloc of CPython: every pool in use, found without arenas, usedpools or symbols.

A pool starts at a multiple of its size (16 KiB since 3.10, 4 KiB before) in anonymous memory; its header must be
consistent (Objects/obmalloc.c): ref.count@0 freeblock@8 arenaindex@32 szidx@36 nextoffset@40 maxnextoffset@44, blocks
of 16 * (szidx + 1) from 48.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from support import kernel

from reference.memory import Memory

POOL, OLD_POOL, HEADER = 16 * 1024, 4 * 1024, 48


@dataclass(frozen=True)
class Pool:
    """One pool; ``used`` and ``free`` are addresses of blocks; blocks that were never allocated count as free."""

    address: int
    size: int
    used: frozenset[int]
    free: frozenset[int]


def pools(pid: int, pool_size: int = POOL) -> Iterator[Pool]:
    """Yield every pool that holds at least one block."""
    memory = Memory(pid)
    for mapped in kernel.maps(pid):
        if mapped.perms == "rw-p" and not mapped.path:
            for address in range(-(-mapped.start // pool_size) * pool_size, mapped.end - pool_size + 1, pool_size):
                pool = _pool(memory, address, pool_size)
                if pool is not None:
                    yield pool
    memory.close()


def _pool(memory: Memory, address: int, pool_size: int) -> Pool | None:
    used, freeblock, _, _, _, szidx, carved, last = struct.unpack("<I4xQQQIIII", memory.read(address, HEADER))
    size = 16 * (szidx + 1)
    if szidx > 31 or not used or last != pool_size - size or carved < HEADER + size or (carved - HEADER) % size:
        return None
    blocks = range(address + HEADER, address + pool_size - size + 1, size)
    handed_out = frozenset(block for block in blocks if block < address + carved)
    free = _chain(memory, freeblock, handed_out)
    if free is None or len(handed_out) - len(free) != used:
        return None
    return Pool(address, size, handed_out - free, frozenset(blocks) - handed_out | free)


def _chain(memory: Memory, block: int, allowed: frozenset[int]) -> frozenset[int] | None:
    found: set[int] = set()
    while block:
        if block not in allowed or block in found:
            return None
        found.add(block)
        block = memory.word(block)
    return frozenset(found)
