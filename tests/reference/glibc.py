"""glibc's malloc, 2.35 to 2.42 on x86-64: every chunk of the main arena's break and of the thread arenas.

malloc_state: fastbinsY@16 top@96 bins@112 next@2160 system_mem@2184, 2200 bytes (glibc 2.36, malloc/malloc.c).
heap_info: ar_ptr@0 prev@8 size@16, 48 bytes (malloc/arena.c). The main arena must be contiguous.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from support import kernel

from reference.memory import Memory

FASTBINS, TOP, BINS, NEXT, SYSTEM = 16, 96, 112, 2160, 2184
STATE_SIZE, HEAP_INFO_SIZE = 2200, 48
HEAP_MAX = 64 << 20
# A tcache carved from a free chunk keeps a remainder of 16 bytes that is too small for a chunk.
TCACHE_SIZES, TCACHE_BINS = (0x290, 0x2A0), 64


@dataclass
class Arena:
    """One arena's figures; ``chunks`` is {header: (size, state)}, state one of used, free, fast, tcache, top."""

    address: int
    system: int
    top: int
    chunks: dict[int, tuple[int, str]] = field(default_factory=dict)

    def bytes_of(self, state: str) -> int:
        """Return the sum of the sizes of the chunks in a state."""
        return sum(size for size, own in self.chunks.values() if own == state)

    def count_of(self, state: str) -> int:
        """Return how many chunks are in a state."""
        return sum(own == state for _, own in self.chunks.values())


class Walk:
    """All arenas of a process."""

    def __init__(self, pid: int) -> None:
        self.memory = Memory(pid)
        self.mappings = kernel.maps(pid)
        self.arenas = [self._arena(address) for address in self._ring(self._main_arena())]
        for arena in self.arenas:
            self._mark_fast(arena)
        self._mark_tcaches()
        self.memory.close()

    def _main_arena(self) -> int:
        ranges = [(m.start, m.end) for m in self.mappings if "/libc.so.6" in m.path and m.perms == "rw-p"]
        ranges += [(m.start, m.end) for m in self.mappings for _, end in ranges if m.start == end and not m.path]
        found = [a for start, end in ranges for a in range(start, end - STATE_SIZE, 8) if self._is_arena(a)]
        assert len(found) == 1, f"main_arena candidates: {found}"
        return found[0]

    def _is_arena(self, address: int) -> bool:
        """Return whether an arena is there: each of its 127 bins is a ring. The bin's head is a chunk that would begin
        16 bytes before it, with fd@16 and bk@24.
        """
        try:
            return all(self._is_ring(address + BINS - 16 + 16 * i) for i in range(127))
        except OSError:
            return False

    def _is_ring(self, chunk: int) -> bool:
        forward, back = self.memory.word(chunk + 16), self.memory.word(chunk + 24)
        if forward == back == chunk:
            return True
        if forward % 16 or back % 16 or not 4096 < forward < 1 << 47 or not 4096 < back < 1 << 47:
            return False
        return self.memory.word(forward + 24) == chunk == self.memory.word(back + 16)

    def _ring(self, first: int) -> list[int]:
        arenas = [first]
        while (address := self.memory.word(arenas[-1] + NEXT)) != first:
            arenas.append(address)
        return arenas

    def _arena(self, address: int) -> Arena:
        arena = Arena(address, self.memory.word(address + SYSTEM), self.memory.word(address + TOP))
        for start, end in self._extents(arena):
            arena.chunks.update(self._chunks(start, end, arena.top))
        return arena

    def _extents(self, arena: Arena) -> list[tuple[int, int]]:
        heap = arena.top & -HEAP_MAX
        if self.memory.word(heap) != arena.address if self._is_mapped(heap) else True:
            # With transparent huge pages the break is several mappings, side by side.
            parts = [m for m in self.mappings if m.path == "[heap]"]
            return [(parts[0].start, parts[-1].end)]
        return [*self._heaps(arena, heap)]

    def _is_mapped(self, address: int) -> bool:
        return any(m.start <= address < m.end and "r" in m.perms for m in self.mappings)

    def _heaps(self, arena: Arena, heap: int) -> Iterator[tuple[int, int]]:
        while heap:
            assert self.memory.word(heap) == arena.address
            first = heap + HEAP_INFO_SIZE
            if first == arena.address:
                first = (first + STATE_SIZE + 15) & ~15
            yield first, heap + self.memory.word(heap + 16)
            heap = self.memory.word(heap + 8)

    def _chunks(self, chunk: int, end: int, top: int) -> Iterator[tuple[int, tuple[int, str]]]:
        """Yield the chunks up to the top chunk or the fence posts (sizes 16 and 0) of a full heap."""
        while chunk < end:
            size = self.memory.word(chunk + 8) & ~7
            if chunk == top:
                yield chunk, (size, "top")
                return
            if size <= 16:
                return
            following = self.memory.word(chunk + size + 8)
            if size == 32 and following == 1 and self.memory.word(chunk + 8) == 32 | 1:
                return
            yield chunk, (size, "used" if following & 1 else "free")
            chunk += size
        raise AssertionError(f"the chunks do not end in a top or a fence before {end:#x}")

    def _mark_fast(self, arena: Arena) -> None:
        for i in range(10):
            chunk = self.memory.word(arena.address + FASTBINS + 8 * i)
            while chunk:
                arena.chunks[chunk] = (arena.chunks[chunk][0], "fast")
                chunk = self._unmangled(chunk + 16)

    def _unmangled(self, address: int) -> int:
        """Return the link at an address: since glibc 2.32 it is stored xored with its own address over 4096."""
        return self.memory.word(address) ^ address >> 12

    def _mark_tcaches(self) -> None:
        """Mark the used chunks of a tcache's size whose 64 lists are as long as their counts."""
        owner = {chunk: arena for arena in self.arenas for chunk in arena.chunks}
        for chunk, arena in owner.items():
            size, state = arena.chunks[chunk]
            if size in TCACHE_SIZES and state == "used":
                for member in self._tcache_members(chunk + 16, owner) or []:
                    home = owner[member].chunks
                    home[member] = (home[member][0], "tcache")

    def _tcache_members(self, address: int, owner: dict[int, Arena]) -> list[int] | None:
        members: list[int] = []
        for i in range(TCACHE_BINS):
            count = int.from_bytes(self.memory.read(address + 2 * i, 2), "little")
            entry = self.memory.word(address + 2 * TCACHE_BINS + 8 * i)
            for _ in range(count):
                size, state = owner[entry - 16].chunks[entry - 16] if entry - 16 in owner else (0, "")
                if (size, state) != (32 + 16 * i, "used"):
                    return None
                members.append(entry - 16)
                entry = self._unmangled(entry)
            if entry:
                return None
        return members
