"""Random heaps in an address space, and the truth about them.

The layout follows malloc.c: chunks tile each stretch from its first to its top chunk or its fenceposts; two binned
chunks are never neighbours, and none precedes top; chunks in fast bins and thread caches look in use.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from images.layouts import Glibc
from images.memory import AARCH64, PAGE, PT_LOAD, TYPE_SHARED, X86_64, Memory, elf_header

SHAPES = ("sbrk", "foreign sbrk", "blocked sbrk", "no sbrk", "threads only")
FREE_STATES = ("free", "fast", "tcache")
HEAP_MAX = 64 << 20
MIB = 1 << 20
PREV_INUSE, IS_MMAPPED, NON_MAIN = 1, 2, 4
NONCONTIGUOUS = 2
LARGEST_FAST, LARGEST_CACHED = 0x80, 0x410
BREAK, HEAPS, MAPS = 0x5555_5600_0000, 0x7F10_0000_0000, 0x7F40_0000_0000
STACKS, LIBC, MAIN_STACK = 0x7F50_0000_0000, 0x7F60_0000_0000, 0x7FFC_0000_0000
LIBC_PATH = "/usr/lib/x86_64-linux-gnu/libc.so.6"
HUGE_PATH = "/anon_hugepage (deleted)"


@dataclass
class Chunk:
    """A block of an arena: its header's address, its size, its state in the words of ``heap check``."""

    address: int
    size: int
    state: str
    arena: int

    @property
    def end(self) -> int:
        """Return the end address."""
        return self.address + self.size


@dataclass
class Arena:
    """An arena: its address, ``system_mem``, and its stretches, each with all its blocks in order."""

    address: int
    system: int = 0
    top: int = 0
    stretches: list[list[Chunk]] = field(default_factory=list)

    @property
    def chunks(self) -> Iterator[Chunk]:
        """Yield all blocks."""
        return (chunk for stretch in self.stretches for chunk in stretch)

    def bytes(self, *states: str) -> int:
        """Return the bytes of all blocks in one of the states."""
        return sum(chunk.size for chunk in self.chunks if chunk.state in states)

    def count(self, *states: str) -> int:
        """Return the number of blocks in one of the states."""
        return sum(chunk.state in states for chunk in self.chunks)


@dataclass
class Mapped:
    """An mmapped chunk: the start of its mapping, its header, the bytes mapped."""

    base: int
    chunk: int
    size: int


@dataclass
class Cache:
    """A thread's cache: the address after its chunk's header, and the entries of each list."""

    tid: int
    address: int
    lists: dict[int, list[int]] = field(default_factory=dict)


class Image:
    """A process with threads, arenas, heaps and mmapped chunks, all of one glibc.

    ``shape`` is one of SHAPES and selects the origin of the main arena's memory; "unused": malloc was never called.
    ``huge``: the size of the huge pages that malloc uses (glibc.malloc.hugetlb=2), else 0. ``large_caches``: lists of
    chunks up to 4 MiB (2.42 and later). ``lone_fenceposts``: the top of each full heap had 48 bytes, which became
    fenceposts of 32 and of 16 bytes. ``plain_contents``: no contents that look like chunks. ``most_heaps``: the maximum
    in a thread's arena. ``large_tops``: tops have some pages, all of them written. ``page``: the size of a page; the
    layout grows with it. ``machine``: its number in ELF headers; on aarch64 thread-local data is above the thread
    pointer, and struct pthread below.
    """

    def __init__(
        self,
        glibc: Glibc,
        rng: random.Random,
        shape: str = "sbrk",
        threads: int = 4,
        arenas: int = 3,
        huge: int = 0,
        large_caches: bool = False,
        lone_fenceposts: bool = False,
        plain_contents: bool = False,
        most_heaps: int = 3,
        large_tops: bool = False,
        page: int = PAGE,
        machine: int = X86_64,
    ) -> None:
        self.glibc, self.rng, self.shape, self.huge, self.large_caches = glibc, rng, shape, huge, large_caches
        self.lone_fenceposts, self.plain_contents, self.most_heaps = lone_fenceposts, plain_contents, most_heaps
        self.large_tops = large_tops
        self.memory, self.page, self.scale = Memory(page=page, machine=machine), page, page // PAGE
        self.relro, self.data_size = page, max(0x4000, page)
        self.mapped: list[Mapped] = []
        self.caches: list[Cache] = []
        self.main = LIBC + self.relro + 0x1000 + 32 * rng.randrange(16)
        self.mp = self.main - rng.choice((0x900, 0x920, 0x940, 0x9C0))
        self.fill = rng.choice((glibc.cache.fill, glibc.cache.fill, 2, 50)) if glibc.cache else 0
        self.arenas = [Arena(self.main)]
        self.sbrk_base = 0
        self.bins: dict[int, dict[int, list[Chunk]]] = {}
        self.fast: dict[int, dict[int, list[int]]] = {}
        self._cache_chunks: dict[int, list[int]] = {}
        self._cache_places: dict[int, list[int]] = {}
        self._map_libc()
        if shape == "unused":
            self._homes = [0]
            self._make_threads(1)
            self._write_unused()
            return
        self._plan_caches(threads, arenas)
        self._make_maps()
        for _ in range(1, arenas):
            self._make_thread_arena()
        self._make_threads(threads)
        self._link()

    def save(self, path: Path) -> Path:
        """Write the core."""
        return self.memory.save(path)

    @property
    def chunks(self) -> list[Chunk]:
        """Return all blocks of all arenas, ascending."""
        return sorted((chunk for arena in self.arenas for chunk in arena.chunks), key=lambda chunk: chunk.address)

    def holes(self) -> list[tuple[int, int]]:
        """Return (pointer, bytes) of the runs of free chunks, largest first."""
        runs: list[list[int]] = []
        for arena in self.arenas:
            for stretch in arena.stretches:
                before = None
                for chunk in stretch:
                    if chunk.state in FREE_STATES and before in FREE_STATES:
                        runs[-1][1] += chunk.size
                    elif chunk.state in FREE_STATES:
                        runs.append([chunk.address + 16, chunk.size])
                    before = chunk.state
        return sorted(((start, size) for start, size in runs), key=lambda run: (-run[1], run[0]))

    # libc, threads, and mappings.

    def _map_libc(self) -> None:
        memory, relro, size = self.memory, self.relro, self.data_size
        memory.map(LIBC, relro, LIBC_PATH, 0, 4)
        memory.map(LIBC + relro, size, LIBC_PATH, relro)
        memory.map(LIBC + relro + size, self.page)
        loads = ((4, 0, 0, relro, relro), (6, relro, relro, size, size + self.page))
        table = b"".join(
            struct.pack("<IIQQQQQQ", PT_LOAD, flags, offset, address, 0, stored, whole, self.page)
            for flags, offset, address, stored, whole in loads
        )
        memory.write(LIBC, elf_header(TYPE_SHARED, len(loads), memory.machine) + table)
        for address in range(LIBC + relro, LIBC + relro + size, 64):
            numbers = (0, 1, LIBC + self.rng.randrange(relro), self.rng.getrandbits(64), 131072, address)
            memory.put(address, *self.rng.choices(numbers, k=8))

    def _plan_caches(self, threads: int, arenas: int) -> None:
        """Plan each thread's cache as a chunk of its arena."""
        unused = self.shape == "threads only"
        self._homes = [self.rng.randrange(unused, arenas) for _ in range(threads)]
        for home in self._homes if self.glibc.cache else []:
            assert self.glibc.cache
            self._cache_chunks.setdefault(home, []).append(self.glibc.cache.chunk + self.rng.choice((0, 0, 16)))

    def _make_threads(self, count: int) -> None:
        memory, rng, page = self.memory, self.rng, self.page
        distance, tid = rng.choice((64, 72, 80, 96)), rng.randrange(2, 1 << 22)
        is_above = memory.machine == AARCH64
        side = 1 if is_above else -1
        memory.map(MAIN_STACK, 8 * page)
        memory.random_at = MAIN_STACK + 7 * page + 0x123
        memory.map(LIBC + 0x100000, 4 * page)
        for number in range(count):
            base = STACKS + number * (MIB + page)
            pointer = LIBC + 0x100000 + 2 * page + 0x740
            if number:
                memory.map(base, page, perms=0)
                memory.map(base + page, 4 * page)
                pointer = base + 4 * page + 0x6C0
                memory.put(pointer + (-0x2B0 if is_above else 0x690), base, 5 * page, page)
            sp = base + 2 * page if number else MAIN_STACK + 6 * page
            if is_above:
                memory.write(pointer - 0x670, struct.pack("<I", tid + number))
            else:
                memory.put(pointer, pointer)  # a thread's control block begins with its own address
            memory.threads.append((tid + number, pointer, sp))
            home = self._homes[number]
            memory.put(pointer + side * (distance - 16), self.arenas[home].address)
            for chunk in rng.sample(self.chunks, min(20, len(self.chunks))):
                memory.put(pointer + side * (256 + 8 * rng.randrange(200)), chunk.address + 16)
            if self._cache_places.get(home):
                cache = Cache(tid + number, self._cache_places[home].pop())
                memory.put(pointer + side * distance, cache.address)
                self.caches.append(cache)

    def _make_maps(self) -> None:
        """Make the main arena's memory, mmapped chunks and foreign memory, next to each other as the kernel does."""
        if self.shape in ("sbrk", "foreign sbrk", "blocked sbrk"):
            self._make_break()
        noncontiguous = self.shape in ("blocked sbrk", "no sbrk")
        extents = self.rng.randint(2, 4) if noncontiguous else 0
        kinds = ["extent"] * extents + ["mmapped", "aligned", "other"] * self.rng.randint(1, 3)
        self.rng.shuffle(kinds)
        order = iter(self.rng.sample(range(extents), extents))
        at, page = MAPS, self.huge or self.page
        sizes = [self._map_size(kind, page) for kind in kinds]
        # The kernel merges neighbours unless something separates them.
        cut = self.rng.randrange(1, len(sizes))
        for part in [[size] for size in sizes] if self.huge else [sizes[:cut], sizes[cut:]]:
            self.memory.map(at, sum(part), HUGE_PATH if self.huge else "")
            at += sum(part)
        at = MAPS
        for kind, size in zip(kinds, sizes):
            if kind == "extent":
                self._make_extent(at, at + size, is_last=next(order) == extents - 1)
            elif kind == "other":
                self.memory.write(at, self.rng.randbytes(min(size, 2 * self.page)))
            else:
                self._make_mapped(at, size, kind == "aligned")
            at += size
        self.memory.put(self.main, NONCONTIGUOUS << 32 if noncontiguous else 0)

    def _map_size(self, kind: str, page: int) -> int:
        if kind == "extent":
            return max(page, MIB) * self.rng.randint(1, 1 if self.huge else 2)
        return page * self.rng.randint(1, 1 if self.huge else 40)

    def _make_extent(self, start: int, end: int, is_last: bool) -> None:
        arena = self.arenas[0]
        self.sbrk_base = self.sbrk_base or start
        arena.system += end - start
        # Most of a mebibyte is one chunk, to save time.
        body = start + self.rng.randrange(0x4000, 0x20000, 16)
        arena.stretches.append(self._stretch(0, start, end, "top" if is_last else "fence", body))

    def _make_break(self) -> None:
        """Make [heap]: one stretch; foreign code may have called sbrk before malloc did, and in between."""
        arena, rng = self.arenas[0], self.rng
        self.sbrk_base = BREAK + rng.choice((0, 8, 0x450, 0x100))
        start = (self.sbrk_base + 15) // 16 * 16
        parts = {"sbrk": 1, "foreign sbrk": rng.randint(2, 4), "blocked sbrk": rng.randint(1, 3)}[self.shape]
        spans, at = [], start
        for _ in range(parts):
            end = (at + self.scale * rng.randrange(0x8000, 0x21000)) // self.page * self.page
            spans.append((at, end))
            at = (end + rng.randrange(1, 0x5000) + 15) // 16 * 16
        self.memory.map(BREAK, spans[-1][1] - BREAK)
        blocks: list[Chunk] = []
        for number, (low, high) in enumerate(spans):
            if blocks:
                foreign = Chunk(blocks[-1].end, low - blocks[-1].end, "foreign", 0)
                blocks.append(foreign)
                self.memory.write(foreign.address, rng.choice((bytes, rng.randbytes))(foreign.size))
            is_last = number == parts - 1 and self.shape != "blocked sbrk"
            blocks += self._stretch(0, low, high, "top" if is_last else "fence")
        arena.stretches.append(blocks)
        arena.system += spans[-1][1] - self.sbrk_base

    def _make_mapped(self, base: int, size: int, aligned: bool) -> None:
        """Make an mmapped chunk; memalign moves its header inside and leaves the old one unchanged."""
        outside = 16 if self.glibc.header_outside else 0
        huge = 1 if self.huge and self.glibc.header_outside else 0
        self.memory.put(base, huge, size - outside | IS_MMAPPED)
        chunk = base
        if aligned:
            alignment = self.rng.choice([a for a in (32, 64, 256, 4096, 65536) if a == 32 or 2 * a < size])
            chunk = (base + 16 + alignment - 1) // alignment * alignment - 16
            if chunk - base < 32:
                chunk += alignment
            self.memory.put(chunk, chunk - base | huge, size - outside - (chunk - base) | IS_MMAPPED)
        body = self.rng.choice((bytes, self.rng.randbytes))(min(base + size - chunk - 16, self.page))
        self.memory.write(chunk + 16, body)
        self.mapped.append(Mapped(base, chunk, size))

    def _make_thread_arena(self) -> None:
        """Make an arena of a thread: its heaps, from the first, which contains the arena itself, to the one with the
        top chunk.
        """
        index, rng, glibc = len(self.arenas), self.rng, self.glibc
        span = 4 * self.huge if self.huge else HEAP_MAX
        page = self.huge or self.page
        count = rng.randint(1 + self.lone_fenceposts, self.most_heaps)
        heaps = [HEAPS + span * (16 * index + slot) for slot in rng.sample(range(0, 16, 2), count)]
        arena = Arena(heaps[0] + glibc.heap_info)
        self.arenas.append(arena)
        previous = 0
        for number, heap in enumerate(heaps):
            size = page * (1 if self.huge else rng.randint(9, 40))
            before = 0 if self.huge else self.page * rng.choice((0, 1, 4))
            self.memory.map(heap - before, size + before, HUGE_PATH if self.huge else "")
            if before:
                self._make_mapped(heap - before, before, aligned=False)
            if span > size:
                self.memory.map(heap + size, span - size, perms=0)
            self.memory.put(heap, arena.address, previous, size, size)
            if glibc.heap_info == 48:
                self.memory.put(heap + 32, page)
            start = heap + glibc.heap_info + (0 if number else (glibc.state.size + 15) // 16 * 16)
            body = start + 0x10000 if self.huge else None
            is_last = number == len(heaps) - 1
            arena.stretches.append(self._stretch(index, start, heap + size, "top" if is_last else "heap", body))
            arena.system += size
            previous = heap

    # Chunks.

    def _stretch(self, arena: int, start: int, end: int, ending: str, body: int | None = None) -> list[Chunk]:
        """Return all blocks of [start, end). After ``body``, a single chunk takes the remaining bytes."""
        tail = self.rng.choice((0x20, 0x30, 0x40, 0x90, 0x400, 16 * self.rng.randrange(2, 0x300)))
        if ending == "heap" and (self.lone_fenceposts or tail == 0x30):
            tail = 0x30 if self.lone_fenceposts else 0x20
        if ending == "top" and self.large_tops:
            tail = 16 * self.rng.randrange(0x200, 0x600) * self.scale
        stop = end - tail
        blocks = list(self._body(arena, start, min(stop, body or stop)))
        if body and blocks[-1].end < stop:
            blocks.append(Chunk(blocks[-1].end, stop - blocks[-1].end, "used", arena))
        if blocks[-1].state == "free":
            blocks[-1].state = "used"
        if ending == "top":
            self.arenas[arena].top = stop
            blocks.append(Chunk(stop, tail, "top", arena))
            if self.large_tops:
                self.memory.write(stop + 16, self.rng.randbytes(tail - 16))
        else:
            blocks += self._ending(arena, stop, tail, ending)
        self._write_stretch(blocks, ending)
        return blocks

    def _ending(self, arena: int, at: int, tail: int, ending: str) -> list[Chunk]:
        """Return the chunks made from an old top of ``tail`` bytes: a freed one and fenceposts, or only those if it
        is too small."""
        old = tail - 0x20
        blocks = []
        if old >= 0x20:
            blocks.append(Chunk(at, old, self._free_state(old), arena))
        elif old == 0x10 and ending == "heap":
            return [Chunk(at, 0x20, "fencepost", arena), Chunk(at + 0x20, 0x10, "fencepost", arena)]
        elif old == 0x10:
            blocks.append(Chunk(at, 0x10, "fencepost", arena))
        posts = [Chunk(at + old + shift, 0x10, "fencepost", arena) for shift in (0, 0x10)]
        return blocks + posts

    def _free_state(self, size: int) -> str:
        largest = 4 * MIB if self.large_caches else LARGEST_CACHED
        if self.glibc.cache and size <= largest and self.rng.random() < 0.5:
            return "tcache"
        if self.glibc.state.fast is not None and size <= LARGEST_FAST:
            return "fast"
        return "free"

    def _body(self, arena: int, start: int, stop: int) -> Iterator[Chunk]:
        """Yield chunks that fill [start, stop), including the thread caches that are due here."""
        at, binned = start, False
        plan = self._plan(arena)
        while at < stop:
            size, state = next(plan)
            if stop - at - size < 0x20:
                size = stop - at
            if state == "cache":
                self._cache_places.setdefault(arena, []).append(at + 16)
            if state == "released":
                state = self._free_state(size)
            if state == "cache" or (state == "free" and binned):
                state = "used"
            binned = state == "free"
            yield Chunk(at, size, state, arena)
            at += size

    def _plan(self, arena: int) -> Iterator[tuple[int, str]]:
        """Yield (size, state) of chunks without end; "released": in any place of a freed chunk of its size."""
        for size in self._cache_chunks.pop(arena, []):
            yield 16 * self.rng.randrange(2, 0x20), "used"
            yield size, "cache"
        while True:
            largest = self.rng.choice((0x80, 0x80, 0x200, 0x500, 0x3000 * self.scale))
            state = self.rng.choices(("used", "free", "released"), (5, 2, 2))[0]
            yield 16 * self.rng.randrange(2, largest // 16 + 1), state

    def _write_stretch(self, blocks: list[Chunk], ending: str) -> None:
        """Write headers and contents. A used chunk's last word is at the place of the next one's prev_size."""
        memory, rng = self.memory, self.rng
        fills: list[Callable[[int], bytes]] = [bytes, rng.randbytes]
        if not self.plain_contents:
            fills.append(like_chunks)
        for before, chunk in pairwise([None, *blocks]):
            assert chunk is not None
            if chunk.state == "foreign":
                continue
            binned = before is not None and before.state == "free"
            flags = 0 if binned else PREV_INUSE
            if chunk.arena and chunk.state in ("used", "fast", "tcache"):
                flags |= NON_MAIN
            size = chunk.size
            if ending == "heap" and chunk is blocks[-1]:
                size = 0
            if binned:
                assert before
                memory.put(chunk.address, before.size)
            memory.put(chunk.address + 8, size | flags)
            if chunk.state in ("used", "fast", "tcache", "free"):
                body = chunk.size - (16 if chunk.state == "free" else 8)
                memory.write(chunk.address + 16, rng.choice(fills)(min(body, 0x2000)))

    # Lists.

    def _link(self) -> None:
        """Link bins, fast bins and thread caches; then write malloc_state and malloc_par."""
        self._link_caches()
        for arena in self.arenas:
            self._write_state(arena)
            self._link_bins(arena)
            self._link_fast(arena)
        self._write_par()

    def _hide(self, at: int, target: int) -> int:
        """Return the stored form, at ``at``, of a link to ``target``."""
        return at >> 12 ^ target if self.glibc.safe_linking else target

    def _link_caches(self) -> None:
        layout, key = self.glibc.cache, self.rng.getrandbits(64)
        self._share_out()
        for cache in self.caches:
            assert layout
            memory, counts = self.memory, [self.fill if layout.remaining else 0] * layout.bins
            memory.write(cache.address, bytes(layout.size))
            for index, entries in cache.lists.items():
                counts[index] += -len(entries) if layout.remaining else len(entries)
                memory.put(cache.address + layout.entries + 8 * index, entries[0])
                for entry, following in pairwise([*entries, 0]):
                    memory.put(entry, self._hide(entry, following))
                    if "key" in self.glibc.tags:
                        memory.put(entry + 8, cache.address)
                    if "random key" in self.glibc.tags:
                        memory.put(entry + 8, key)
            memory.write(cache.address, b"".join(count.to_bytes(layout.width, "little") for count in counts))

    def _share_out(self) -> None:
        """Assign the cached chunks to any thread's cache, as long as its list has room."""
        waiting = [chunk for arena in self.arenas for chunk in arena.chunks if chunk.state == "tcache"]
        if self.large_caches and self.glibc.header_outside:
            waiting += [Chunk(m.chunk, self.memory.word(m.chunk + 8) & ~7, "mmapped", -1) for m in self.mapped[::2]]
        self.rng.shuffle(waiting)
        # Lists of large chunks are in order of size.
        for chunk in sorted(waiting, key=lambda chunk: chunk.size):
            index = cache_index(chunk.size)
            caches = [cache for cache in self.caches if len(cache.lists.get(index, [])) < self.fill]
            if caches:
                self.rng.choice(caches).lists.setdefault(index, []).append(chunk.address + 16)
            elif chunk.state == "tcache":
                chunk.state = "used"

    def _write_state(self, arena: Arena) -> None:
        """Write the fields of malloc_state except its lists; ``next`` makes a ring of all arenas, the newest after
        main."""
        memory, layout, ring = self.memory, self.glibc.state, [self.arenas[0], *self.arenas[:0:-1]]
        following = ring[(ring.index(arena) + 1) % len(ring)]
        flags = memory.word(arena.address) if arena is self.arenas[0] else NONCONTIGUOUS << 32
        memory.write(arena.address, bytes(layout.size))
        memory.put(arena.address, flags)
        memory.put(arena.address + layout.top, arena.top or arena.address + layout.bins - 16)
        memory.put(arena.address + layout.next, following.address)
        memory.put(arena.address + layout.system_mem, arena.system, arena.system + 16 * self.page)
        if layout.attached is not None:
            memory.put(arena.address + layout.attached, self.rng.randrange(3))

    def _link_bins(self, arena: Arena) -> None:
        """Link each bin as a ring through its head. A bin has unsorted chunks, chunks of one size, or chunks of a range
        of sizes.
        """
        bins: dict[int, list[Chunk]] = {number: [] for number in range(1, 128)}
        for chunk in arena.chunks:
            if chunk.state == "free":
                bins[1 if self.rng.random() < 0.3 else bin_of(chunk.size)].append(chunk)
        binmap = 0
        for number, chunks in bins.items():
            head = arena.address + self.glibc.state.bins + 16 * (number - 1) - 16
            if number >= 64:
                chunks.sort(key=lambda chunk: -chunk.size)
                self._link_sizes(chunks)
            else:
                self.rng.shuffle(chunks)
            for one, other in pairwise([head, *(chunk.address for chunk in chunks), head]):
                self.memory.put(one + 16, other)
                self.memory.put(other + 24, one)
            binmap |= bool(chunks) << number
        self.memory.write(arena.address + self.glibc.state.binmap, binmap.to_bytes(16, "little"))
        self.bins[arena.address] = bins

    def _link_sizes(self, chunks: list[Chunk]) -> None:
        """Link the first chunks of neighbouring sizes in a large bin."""
        firsts = []
        for before, chunk in pairwise([None, *chunks]):
            assert chunk
            self.memory.put(chunk.address + 32, 0, 0)
            if before is None or before.size != chunk.size:
                firsts.append(chunk.address)
        for one, other in zip(firsts, firsts[1:] + firsts[:1]):
            self.memory.put(one + 32, other)
            self.memory.put(other + 40, one)

    def _link_fast(self, arena: Arena) -> None:
        lists: dict[int, list[int]] = {}
        self.fast[arena.address] = lists
        for chunk in arena.chunks:
            if chunk.state == "fast":
                lists.setdefault(chunk.size // 16 - 2, []).append(chunk.address)
        for index, chunks in lists.items():
            assert self.glibc.state.fast is not None
            self.rng.shuffle(chunks)
            self.memory.put(arena.address + self.glibc.state.fast + 8 * index, chunks[0])
            for chunk, following in pairwise([*chunks, 0]):
                self.memory.put(chunk + 16, self._hide(chunk + 16, following))

    def _write_unused(self) -> None:
        """Write main_arena and mp_ as before the first malloc: the ring of arenas exists, bins and top do not."""
        layout = self.glibc.state
        self.memory.write(self.main, bytes(layout.size))
        self.memory.put(self.main + layout.next, self.main)
        if layout.attached is not None:
            self.memory.put(self.main + layout.attached, 1)
        self._write_par()

    def _write_par(self) -> None:
        memory, rng, layout, mp = self.memory, self.rng, self.glibc.par, self.mp
        threshold = rng.choice((131072, 131072, 65536, 33554432))
        memory.write(mp, bytes(layout.size))
        memory.put(mp, 2 * threshold, rng.choice((131072, 131072, 0)), threshold, 8, rng.choice((0, 0, 4)))
        if layout.hp_pagesize is not None:
            memory.put(mp + layout.hp_pagesize, self.huge, 0x40000 | 21 << 26 if self.huge else 0)
        count, size = len(self.mapped), sum(mapped.size for mapped in self.mapped)
        maximum = count + rng.randrange(3) if self.shape != "unused" else 0
        memory.write(mp + layout.n_mmaps, struct.pack("<iiii", count, 65536, maximum, threshold != 131072))
        memory.put(mp + layout.mmapped_mem, size, size + self.page * (maximum - count))
        memory.put(mp + layout.sbrk_base, self.sbrk_base)
        if layout.tcache is not None:
            memory.put(mp + layout.tcache, 64, 4 * MIB if self.large_caches else LARGEST_CACHED + 1, self.fill)


def pairwise(items: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Return each item with the next one."""
    return zip(items, items[1:])


def like_chunks(size: int) -> bytes:
    """Return contents that look like consecutive small chunks."""
    return (0x21).to_bytes(8, "little") * (size // 8)


def cache_index(size: int) -> int:
    """Return the number of a cache's list for a chunk of this size: 16 apart, then by powers of two (2.42 and
    later)."""
    return size // 16 - 2 if size <= LARGEST_CACHED else 64 + size.bit_length() - LARGEST_CACHED.bit_length()


def bin_of(size: int) -> int:
    """Return the number of the bin for a free chunk of this size: 16 apart, then ever wider."""
    if size < 0x400:
        return size >> 4
    for shift, limit, base in ((6, 48, 48), (9, 20, 91), (12, 10, 110), (15, 4, 119), (18, 2, 124)):
        if size >> shift <= limit:
            return base + (size >> shift)
    return 126
