"""Finding glibc's malloc without symbols: ``main_arena``, ``mp_`` and the thread caches, by their shape.

- ``main_arena`` has 127 bins, each the head of a circular list. No other data has that many in a row. Its ``next``
  ring leads through all arenas back to itself, which also tells which of the known layouts it is.
- ``mp_`` (``struct malloc_par``) lies within a few pages of it; its fields bound each other.
- A thread's cache is an arena chunk of one exact size, referred to from just below the thread pointer; its counts are
  the lengths of its lists.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gdbheap import _native
from gdbheap.allocators.glibc_untouched import find_untouched
from gdbheap.allocators.other import no_glibc
from gdbheap.errors import Fault, Unsupported
from gdbheap.layout.facts import Facts
from gdbheap.layout.tables import variants
from gdbheap.target.elf import LoadedObject
from gdbheap.target.target import Target, Thread

BINS = 127
MOST_BROKEN_ENDS = 4
MOST_ARENAS = 65536
MP_DISTANCE = 8192
PAGE = 4096
TLS_BYTES = 4096
DEFAULT_TOP_PAD = 131072
MOST_TCACHE_COUNT = 65535
FAST_BINS = 10


@dataclass(frozen=True)
class MallocState:
    """``struct malloc_state`` of one arena, as read: its address, the layout that fits, and the fields used."""

    address: int
    layout: dict[str, Any]
    lock: int
    flags: int
    fast: list[int]
    top: int
    next: int
    system_mem: int

    @property
    def noncontiguous(self) -> bool:
        """NONCONTIGUOUS_BIT: ``sbrk`` has failed once, and extents come from mmap."""
        return bool(self.flags & 2)


@dataclass(frozen=True)
class MallocPar:
    """``mp_`` as read: its address, the layout that fits and the fields used."""

    address: int
    layout: dict[str, Any]
    trim_threshold: int
    top_pad: int
    mmap_threshold: int
    arena_max: int
    n_mmaps: int
    mmapped_mem: int
    sbrk_base: int
    hp_pagesize: int
    tcache_count: int


@dataclass(frozen=True)
class Tcache:
    """A thread's cache: who owns it, where it is, and its lists as (first entry, entries)."""

    tid: int
    address: int
    lists: list[tuple[int, int]]


def read_state(target: Target, address: int, layout: dict[str, Any]) -> MallocState:
    """The arena at ``address``. Raises Fault."""
    raw = target.space.read(address, layout["size"])

    def word(offset: int) -> int:
        return int(struct.unpack_from("<Q", raw, offset)[0])

    lock, flags = struct.unpack_from("<II", raw, 0)
    fast_at = layout["fastbinsY"]
    fast = [] if fast_at is None else [word(fast_at + 8 * index) for index in range(FAST_BINS)]
    return MallocState(
        address, layout, lock, flags, fast, word(layout["top"]), word(layout["next"]), word(layout["system_mem"])
    )


def ring(target: Target, address: int, layout: dict[str, Any]) -> list[MallocState] | None:
    """All arenas from the one at ``address`` along ``next`` until it closes; None when it does not."""
    states: list[MallocState] = []
    seen: set[int] = set()
    at = address
    while at not in seen and len(seen) < MOST_ARENAS:
        seen.add(at)
        try:
            states.append(read_state(target, at, layout))
        except Fault:
            return None
        at = states[-1].next
    return states if at == address else None


def libc_first(target: Target) -> list[LoadedObject]:
    """The loaded objects, those named like glibc first; a static program is its own libc."""
    return sorted(target.objects, key=lambda loaded: "libc.so" not in loaded.path and "libc-2" not in loaded.path)


def find_main_arena(target: Target, facts: Facts) -> tuple[list[MallocState], LoadedObject]:
    """All arenas, ``main_arena`` first, and the object whose data it lies in. Raises Unsupported."""
    for loaded in libc_first(target):
        for start, end in loaded.writable_ranges():
            for bins, _count in _native.find_list_heads(target.space, start, end, BINS - MOST_BROKEN_ENDS):
                # The first bins may be damaged, and other list heads may stand before them.
                shifts = sorted(range(-MOST_BROKEN_ENDS, MOST_BROKEN_ENDS + 1), key=abs)
                states = next(filter(None, (_fitting_ring(target, bins + 16 * shift) for shift in shifts)), None)
                if states:
                    confirmed = confirm(loaded, "main_arena", states[0].address)
                    facts.add(
                        "main_arena", states[0].address, "the shape of its bins and its ring of arenas", confirmed
                    )
                    facts.add(
                        "malloc_state", f"as since glibc {states[0].layout['since']}", "which layout closes the ring"
                    )
                    return states, loaded
    return _untouched_arena(target, facts)


def _untouched_arena(target: Target, facts: Facts) -> tuple[list[MallocState], LoadedObject]:
    """``main_arena`` of a glibc whose malloc nobody has called. Raises Unsupported."""
    for loaded in libc_first(target):
        found = find_untouched(target, loaded)
        if found is not None:
            address, layout = found
            confirmed = confirm(loaded, "main_arena", address)
            facts.add("main_arena", address, "its initial value: a ring of one arena, and zeros", confirmed)
            facts.add("malloc_state", f"as since glibc {layout['since']}", "the distance of next from the arena")
            return [read_state(target, address, layout)], loaded
    raise Unsupported(no_glibc(target))


def confirm(loaded: LoadedObject, name: str, address: int) -> str | None:
    """``symbol`` when the object's own symbols name the same address; None when they know nothing of it."""
    known = loaded.symbol(name)
    if known is None:
        return None
    return "symbol" if known == address else f"the symbol says {known:#x}"


def _fitting_ring(target: Target, bins: int) -> list[MallocState] | None:
    for layout in variants("glibc", "malloc_state"):
        states = ring(target, bins - layout["bins"], layout)
        if states and all(_is_plausible(state) for state in states):
            return states
    return None


def _is_plausible(state: MallocState) -> bool:
    initial = state.address + state.layout["bins"] - 16
    sane_top = state.top == initial or (state.top % 16 == 0 and state.top > PAGE)
    return sane_top and state.lock <= 2 and state.flags < 8 and state.system_mem % 16 == 0


def find_mp(target: Target, main: MallocState, loaded: LoadedObject, facts: Facts) -> MallocPar:
    """``mp_``: the best scoring place near ``main_arena``. Raises Unsupported."""
    candidates = ((_score(par, main), par) for par in _par_candidates(target, main, loaded))
    score, best = max(candidates, key=lambda pair: pair[0], default=(0, None))
    if best is None or score < 10:
        raise Unsupported("glibc's mp_ was not found near main_arena: no place fits any known struct malloc_par")
    facts.add(
        "mp_", best.address, f"its fields bound each other ({score} points)", confirm(loaded, "mp_", best.address)
    )
    facts.add("malloc_par", f"as since glibc {best.layout['since']}", "which layout scores best")
    return best


def _par_candidates(target: Target, main: MallocState, loaded: LoadedObject) -> Iterator[MallocPar]:
    for start, end in loaded.writable_ranges():
        low, high = max(start, main.address - MP_DISTANCE), min(end, main.address + MP_DISTANCE)
        raw = target.space.read_available(low, max(0, high - low))
        for offset in range(0, len(raw) - 144 + 1, 8):
            for layout in variants("glibc", "malloc_par"):
                par = _parse_par(raw, offset, low + offset, layout)
                if par is not None:
                    yield par


def _parse_par(raw: bytes, offset: int, address: int, layout: dict[str, Any]) -> MallocPar | None:
    n_mmaps, n_max, max_n = struct.unpack_from("<iii", raw, offset + layout["n_mmaps"])
    if not 0 <= n_mmaps <= max_n or n_max < 0:
        return None

    def word(at: int | None) -> int:
        return 0 if at is None else int(struct.unpack_from("<Q", raw, offset + at)[0])

    mapped, most_mapped = word(layout["mmapped_mem"]), word(layout["mmapped_mem"] + 8)
    if mapped > most_mapped or mapped % PAGE or (n_mmaps == 0) != (mapped == 0):
        return None
    if (max_n == 0) != (most_mapped == 0) or word(layout["tcache_count"]) > MOST_TCACHE_COUNT:
        return None
    return MallocPar(
        address, layout, word(0), word(8), word(16), word(32), n_mmaps, mapped,
        word(layout["sbrk_base"]), word(layout["hp_pagesize"]), word(layout["tcache_count"]),
    )  # fmt: skip


def _score(par: MallocPar, main: MallocState) -> int:
    """How much speaks for a place: the program's break first, then defaults that tunables rarely all change."""
    has_heap = main.system_mem > 0
    points = 6 if has_heap and 0 < par.sbrk_base <= main.top and par.sbrk_base % 16 == 0 else 0
    points += 6 if not has_heap and par.sbrk_base == 0 else 0
    points += 3 if par.top_pad == DEFAULT_TOP_PAD else 0
    points += 2 if PAGE <= par.mmap_threshold <= 1 << 30 else 0
    points += 2 if PAGE <= par.trim_threshold else 0
    points += 1 if par.arena_max < 1 << 20 else -4
    has_cache = par.layout["tcache_count"] is not None
    points += 2 if has_cache and par.tcache_count in (7, 16) else 0
    return points


def find_tcaches(target: Target, is_arena: ArenaTest) -> list[Tcache]:
    """The cache of every thread that has one; the layouts are told apart by the size of the cache's own chunk.

    ``tcache`` is a thread-local variable: it lies at the same distance below every thread pointer. So of all places
    that look like a pointer to a cache, the distance at which most threads have one is right.
    """
    found: dict[int, list[Tcache]] = {}
    for thread in target.threads:
        for distance, cache in _tcaches_below(target, thread, is_arena):
            found.setdefault(distance, []).append(cache)
    if not found:
        return []
    caches = max(found.values(), key=lambda caches: (len(caches), sum(len(cache.lists) for cache in caches)))
    return list({cache.address: cache for cache in caches}.values())


class ArenaTest:
    """Whether an address can be a chunk of an arena: inside the main heap or a thread's heap."""

    def __init__(self, ranges: list[tuple[int, int]]) -> None:
        self._ranges = ranges

    def __call__(self, address: int) -> bool:
        return any(start <= address < end for start, end in self._ranges)


def _tcaches_below(target: Target, thread: Thread, is_arena: ArenaTest) -> Iterator[tuple[int, Tcache]]:
    """(distance below the thread pointer, cache) of every pointer there that could be one to a cache."""
    mapping = target.mappings.find(thread.fs_base - 8)
    if mapping is None:
        return
    start = max(thread.fs_base - TLS_BYTES, mapping.start)
    raw = target.space.read_available(start, thread.fs_base - start)
    for index, (pointer,) in enumerate(struct.iter_unpack("<Q", raw[: len(raw) // 8 * 8])):
        if pointer % 16 == 0 and is_arena(pointer):
            lists = _read_tcache(target, pointer, is_arena)
            if lists is not None:
                yield thread.fs_base - start - 8 * index, Tcache(thread.tid, pointer, lists)


def _read_tcache(target: Target, address: int, is_arena: ArenaTest) -> list[tuple[int, int]] | None:
    try:
        size = target.space.u64(address - 8) & ~7
        for layout in variants("glibc", "tcache_perthread_struct"):
            # A remainder too small for a chunk of its own stays with the cache's.
            if layout["chunk"] in (size, size - 16):
                return _parse_tcache(target.space.read(address, size - 8), layout, is_arena)
    except Fault:
        return None
    return None


def _parse_tcache(raw: bytes, layout: dict[str, Any], is_arena: ArenaTest) -> list[tuple[int, int]] | None:
    count = layout["counts"]
    counts = struct.unpack_from(f"<{count}{'H' if layout['count_size'] == 2 else 'B'}", raw, 0)
    entries = struct.unpack_from(f"<{count}Q", raw, layout["entries"])
    if layout["remaining"]:
        # 2.42 and later count the free slots: the fullest list that is empty has them all.
        most = max(counts)
        counts = tuple(most - left for left in counts)
    if any(entry % 16 or not is_arena(entry) for entry in entries if entry):
        return None
    # A thread stopped inside malloc may have changed an entry and not its count yet, or the other way round.
    torn = sum((number == 0) != (entry == 0) for number, entry in zip(counts, entries))
    if torn > 1:
        return None
    return [(entry, max(number, 1)) for entry, number in zip(entries, counts) if entry]
