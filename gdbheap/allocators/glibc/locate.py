"""Find ``main_arena``, ``mp_`` and the thread caches of glibc's malloc without symbols, by their shape.

- ``main_arena`` has 127 bins, each the head of a circular list. No other data has that many list heads in a row. Its
  field ``next`` begins a circular list of all arenas, which also shows which of the known layouts applies.
- ``mp_`` (``struct malloc_par``) lies within a few pages of ``main_arena``; the values of its fields limit each other.
- A thread's cache is an arena chunk of one exact size. A pointer to the cache lies just below the thread pointer. The
  counts of the cache are the lengths of its lists.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from itertools import takewhile
from operator import itemgetter
from typing import Any

from gdbheap import _native
from gdbheap.allocators.confirming import confirm
from gdbheap.allocators.recognised import no_glibc
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault, Unsupported
from gdbheap.layout.facts import Facts
from gdbheap.layout.shipped_tables import variants
from gdbheap.machines.machine import Machine
from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.ranges import Ranges, WordTest, holds, joined
from gdbheap.targets.target import Damage, Target, Thread

FORMS_RING = "the layout with which the arenas' next pointers form a ring"
CONNECTS = "the layout with which next pointers connect the arenas, some of which are damaged or absent"
BINS = 127
MIN_SCORE = 10
# Programs do not set thresholds below 4 KiB in practice.
MIN_THRESHOLD, LARGEST_THRESHOLD, LARGEST_TRIM = 4 << 10, 1 << 30, (1 << 40) - 1
PAR_BYTES = 144
MAX_DATA = 64 << 20
MAX_BROKEN_ENDS = 4
MAX_ARENAS = 65536
MP_DISTANCE = 8192
TLS_BYTES = 4 << 10
DEFAULT_TOP_PAD = 131072
DEFAULT_MMAPS_MAX = 65536
DEFAULT_ARENA_TEST = 8
SMALL_TCACHE_BINS = 64
MAX_TCACHE_BINS = 76
MAX_TCACHE_COUNT = 65535
# The most threads that may, at one moment, have counted a new mmapped chunk but not yet its bytes.
MAX_TORN = 8
# At most one in this many lists of a cache may be damaged. If more look damaged, the memory is not a cache.
MAX_DAMAGED = 4
FAST_BINS = 10
LARGEST_LOCK, LARGEST_FLAGS = 2, 7
# The sizes of struct heap_info: up to glibc 2.34, and in later versions.
HEAP_INFO_SIZES = (0x20, 0x30)


@dataclass(frozen=True)
class MallocState:
    """``struct malloc_state`` of one arena: its address, the layout that fits, and the fields that gdbheap uses."""

    address: int
    layout: dict[str, Any]
    lock: int
    flags: int
    fast: list[int]
    top: int
    next: int
    attached_threads: int
    system_mem: int

    @property
    def noncontiguous(self) -> bool:
        """Whether NONCONTIGUOUS_BIT is set: ``sbrk`` has failed at least once, and extents come from mmap."""
        return bool(self.flags & 2)


@dataclass(frozen=True)
class MallocPar:
    """glibc's ``mp_``: its address, the layout that fits, and the fields that gdbheap uses.

    ``dynamic``: mmap_threshold and trim_threshold were not set, and rise when an mmapped chunk is freed. ``torn``: the
    counts of mmapped chunks disagree, probably because a thread was stopped while it changed them.
    """

    address: int
    layout: dict[str, Any]
    torn: bool
    trim_threshold: int
    top_pad: int
    mmap_threshold: int
    arena_test: int
    arena_max: int
    n_mmaps: int
    n_mmaps_max: int
    mmapped_mem: int
    sbrk_base: int
    thp_pagesize: int
    hp_pagesize: int
    tcache_bins: int
    tcache_count: int
    dynamic: bool


@dataclass(frozen=True)
class Tcache:
    """The cache of one thread. ``tid``: the thread's id. ``address``: the address of the cache.

    ``lists``: the free lists of the cache, each as (index of the list, address of its first entry, number of entries).
    ``damage``: the inconsistent data in the cache.
    """

    tid: int
    address: int
    lists: list[tuple[int, int, int]]
    damage: list[Damage]


def read_state(target: Target, address: int, layout: dict[str, Any]) -> MallocState:
    """Return the state of the arena at ``address``, read with ``layout``. Raises Fault."""
    raw = target.space.read(address, layout["size"])

    def word(offset: int) -> int:
        return target.machine.word_of(raw, offset)

    lock, flags = target.machine.structure("II").unpack_from(raw, 0)
    fast_at = layout["fastbinsY"]
    fast = [] if fast_at is None else [word(fast_at + target.machine.word * index) for index in range(FAST_BINS)]
    attached = 0 if layout["attached_threads"] is None else word(layout["attached_threads"])
    return MallocState(
        address, layout, lock, flags, fast, word(layout["top"]), word(layout["next"]), attached,
        word(layout["system_mem"]),
    )  # fmt: skip


def ring(target: Target, address: int, layout: dict[str, Any]) -> tuple[list[MallocState], bool]:
    """Return the arenas that follow each other by ``next``, beginning with the one at ``address``.

    Also return whether the last one points back to the first."""
    states: list[MallocState] = []
    seen: set[int] = set()
    at = address
    while at not in seen and len(seen) < MAX_ARENAS:
        seen.add(at)
        try:
            states.append(read_state(target, at, layout))
        except Fault:
            break
        at = states[-1].next
    return states, at == address


def libc_first(target: Target) -> list[LoadedObject]:
    """Return the loaded objects, those named like glibc first. In a static program, the program itself contains
    glibc."""
    return sorted(target.objects, key=lambda loaded: "libc.so" not in loaded.path and "libc-2" not in loaded.path)


def find_main_arena(target: Target, facts: Facts) -> tuple[list[MallocState], LoadedObject]:
    """Return all arenas, ``main_arena`` first, and the loaded object whose data holds ``main_arena``.

    If arenas other than ``main_arena`` are damaged, only the arenas that can be identified are returned. Raises
    Unsupported if ``main_arena`` is not found."""
    whole = _fitting_ring(target)
    found = whole or _damaged_ring(target) or _cut_ring(target)
    if found:
        (main, *_), loaded = found
        confirmed = confirm(loaded, "main_arena", main.address)
        facts.add("main_arena", main.address, "the shape of its bins and its ring of arenas", confirmed)
        facts.add("malloc_state", f"as since glibc {main.layout['since']}", FORMS_RING if whole else CONNECTS)
        return found
    for loaded in libc_first(target):
        unused = _find_unused(target, loaded)
        if unused is not None:
            confirmed = confirm(loaded, "main_arena", unused.address)
            facts.add("main_arena", unused.address, "a single arena, which is still empty", confirmed)
            facts.add("malloc_state", f"as since glibc {unused.layout['since']}", FORMS_RING)
            return [unused], loaded
    raise Unsupported(no_glibc(target))


def _find_unused(target: Target, loaded: LoadedObject) -> MallocState | None:
    """Return ``main_arena`` in its state before the first malloc, or None.

    All its bytes are then zero, except for ``next``, which points to the arena itself, and the count of one attached
    thread. A different structure may also point to itself; ``main_arena`` has an ``mp_`` near it.
    """
    layouts: dict[int, list[dict[str, Any]]] = {}
    for layout in variants("glibc", "malloc_state"):
        layouts.setdefault(layout["next"], []).append(layout)
    for start, end in loaded.writable_ranges():
        raw = target.space.read_available(start, min(end - start, MAX_DATA))
        for index, pointer in enumerate(target.machine.words_of(raw)):
            distance = start + target.machine.word * index - pointer
            for layout in layouts.get(distance, ()):
                if _is_unused(target.machine, raw, pointer - start, layout):
                    state = read_state(target, pointer, layout)
                    if any(_score(target, par, state) >= MIN_SCORE for par in _par_candidates(target, state, loaded)):
                        return state
    return None


def _is_unused(machine: Machine, raw: bytes, offset: int, layout: dict[str, Any]) -> bool:
    if offset < 0 or offset + layout["size"] > len(raw):
        return False
    words = list(machine.words_of(raw[offset : offset + layout["size"]]))
    words[layout["next"] // machine.word] = 0
    attached = layout["attached_threads"]
    return (attached is None or words.pop(attached // machine.word) == 1) and not any(words)


def _candidates(target: Target) -> Iterator[tuple[LoadedObject, int]]:
    """Yield the addresses where the bins of an arena may begin, each with the loaded object whose data holds them."""
    # The first bins may be damaged, and list heads of other structures may precede them.
    shifts = sorted(range(-MAX_BROKEN_ENDS, MAX_BROKEN_ENDS + 1), key=abs)
    for loaded in libc_first(target):
        for start, end in loaded.writable_ranges():
            for run in _native.find_list_heads(target.space, start, end, BINS - MAX_BROKEN_ENDS):
                yield from ((loaded, run.address + 16 * shift) for shift in shifts)


def _rings(target: Target) -> Iterator[tuple[list[MallocState], bool, LoadedObject]]:
    """Yield (arenas, whether the last one points back to the first, loaded object) for every possible circular list of
    arenas. The loaded object is the one whose data holds the first arena.
    """
    for loaded, bins in _candidates(target):
        for layout in variants("glibc", "malloc_state"):
            states, closed = ring(target, bins - layout["bins"], layout)
            if states:
                yield states, closed, loaded


def _fitting_ring(target: Target) -> tuple[list[MallocState], LoadedObject] | None:
    for states, closed, loaded in _rings(target):
        if closed and all(_is_plausible(target, state) for state in states):
            return states, loaded
    return None


def _damaged_ring(target: Target) -> tuple[list[MallocState], LoadedObject] | None:
    """Return the longest list of arenas in which some arenas may be damaged, or None. A circular list is preferred to
    any other list.

    A list must meet three conditions. Each arena except the first lies in a heap whose header points to it. The list is
    circular, or all its arenas are sound. The first arena (``main_arena``) is sound, or all later arenas are."""
    found: list[tuple[tuple[bool, int], list[MallocState], LoadedObject]] = []
    for states, closed, loaded in _rings(target):
        others = list(takewhile(lambda state: _has_heap(target, state), states[1:]))
        sound = [_is_plausible(target, state) for state in (states[0], *others)]
        if others and (closed or all(sound)) and (sound[0] or all(sound[1:])):
            found.append(((closed, len(others)), [states[0], *others], loaded))
    return max(found, key=itemgetter(0))[1:] if found else None


def _cut_ring(target: Target) -> tuple[list[MallocState], LoadedObject] | None:
    """Return sound arenas whose list is cut: the last one points to memory that a truncated core lacks. None if there
    is no such list."""
    for states, _closed, loaded in _rings(target) if target.missing else ():
        if holds(target.missing, states[-1].next) and all(_is_plausible(target, state) for state in states):
            return states, loaded
    return None


def _has_heap(target: Target, state: MallocState) -> bool:
    """Return whether a ``heap_info`` lies right before the arena; its first field is the arena's address."""
    with suppress(Fault):
        return state.address in (target.space.word(state.address - size) for size in HEAP_INFO_SIZES)
    return False


def _is_plausible(target: Target, state: MallocState) -> bool:
    """Return whether the fields of an arena have possible values.

    glibc up to 2.22 has the arena's size in bytes (a page or more) in the field in which later versions count the
    attached threads."""
    initial = state.address + state.layout["bins"] - 16
    page = target.machine.page
    sane_top = state.top == initial or (state.top % 16 == 0 and state.top > page)
    few_threads = state.attached_threads < max(page, len(target.threads) + 1)
    return sane_top and state.lock <= LARGEST_LOCK and state.flags <= LARGEST_FLAGS and few_threads


def find_mp(target: Target, main: MallocState, loaded: LoadedObject, facts: Facts) -> MallocPar:
    """Return the ``mp_`` with the best score of all addresses near ``main_arena``. Raises Unsupported if none fits."""
    candidates = ((_score(target, par, main), par) for par in _par_candidates(target, main, loaded))
    score, best = max(candidates, key=lambda pair: pair[0], default=(0, None))
    if best is None or score < MIN_SCORE:
        raise Unsupported(
            "gdbheap cannot find glibc's settings (mp_): no place near main_arena fits a known struct malloc_par"
        )
    facts.add(
        "mp_", best.address, f"its fields agree with each other ({score} points)", confirm(loaded, "mp_", best.address)
    )
    facts.add("malloc_par", f"as since glibc {best.layout['since']}", "the layout with the best score")
    return best


def _par_candidates(target: Target, main: MallocState, loaded: LoadedObject) -> Iterator[MallocPar]:
    # glibc 2.43 removed the fast bins and also changed malloc_par, for the last time so far.
    has_fast = main.layout["fastbinsY"] is not None
    layouts = [layout for layout in variants("glibc", "malloc_par") if layout["fast_bins"] == has_fast]
    for start, end in loaded.writable_ranges():
        low, high = max(start, main.address - MP_DISTANCE), min(end, main.address + MP_DISTANCE)
        raw = target.space.read_available(low, max(0, high - low))
        likely = [
            (offset, number) for number, layout in enumerate(layouts) for offset in _likely(target.machine, raw, layout)
        ]
        for offset, number in sorted(likely):
            par = _parse_par(target.machine, raw, offset, low + offset, layouts[number])
            if par is not None:
                yield par


def _likely(machine: Machine, raw: bytes, layout: dict[str, Any]) -> set[int]:
    """Return the offsets at which at least one field of ``mp_`` has its usual value. No other offset reaches
    ``MIN_SCORE``."""
    every = machine.address_end - 1
    usual = [
        WordTest(0, every, MIN_THRESHOLD, LARGEST_TRIM),
        WordTest(0, every, every, every),
        WordTest(8, every, DEFAULT_TOP_PAD, DEFAULT_TOP_PAD),
        WordTest(16, every, MIN_THRESHOLD, LARGEST_THRESHOLD),
        WordTest(24, every, DEFAULT_ARENA_TEST, DEFAULT_ARENA_TEST),
        WordTest(layout["n_mmaps"] + 4, 0xFFFFFFFF, DEFAULT_MMAPS_MAX, DEFAULT_MMAPS_MAX),
    ]
    if layout["tcache_bins"] is not None:
        usual.append(WordTest(layout["tcache_bins"], every, SMALL_TCACHE_BINS, SMALL_TCACHE_BINS))
    places = {place for test in usual for place in _native.find_places(raw, [test])}
    return {place for place in places if place <= len(raw) - PAR_BYTES}


def _parse_par(machine: Machine, raw: bytes, offset: int, address: int, layout: dict[str, Any]) -> MallocPar | None:
    n_mmaps, n_max, max_n, no_dynamic = machine.structure("iiii").unpack_from(raw, offset + layout["n_mmaps"])
    if not 0 <= n_mmaps <= max_n + MAX_TORN or n_max < 0:
        return None

    unpack = machine.structure("P").unpack_from

    def word(at: int | None) -> int:
        return 0 if at is None else int(unpack(raw, offset + at)[0])

    mapped, most_mapped = word(layout["mmapped_mem"]), word(layout["mmapped_mem"] + 8)
    page, whole = machine.page, layout["mmapped_unit"] is None
    least, unit = n_mmaps * page, page if whole else layout["mmapped_unit"]
    if mapped % unit or mapped < least - MAX_TORN * page or word(layout["tcache_count"]) > MAX_TCACHE_COUNT:
        return None
    torn = mapped > most_mapped or n_mmaps > max_n or (max_n == 0) != (most_mapped == 0) or mapped < least
    torn |= n_mmaps == 0 and mapped > 0 and whole
    return MallocPar(
        address, layout, torn, word(0), word(8), word(16), word(24), word(32), n_mmaps, n_max, mapped,
        word(layout["sbrk_base"]), word(layout["thp_pagesize"]), word(layout["hp_pagesize"]),
        word(layout["tcache_bins"]), word(layout["tcache_count"]), not no_dynamic,
    )  # fmt: skip


def _score(target: Target, par: MallocPar, main: MallocState) -> int:
    """Return how well the words at an address fit ``mp_``; a larger number is better.

    A ``sbrk_base`` that fits the program's break counts most. Fields that have their default values count too: programs
    rarely change all of them.
    """
    points = (6 if _is_first_break(target, par, main) else 0) - (1 if par.torn else 0)
    points += 3 if par.top_pad == DEFAULT_TOP_PAD else 0
    points += 2 if MIN_THRESHOLD <= par.mmap_threshold <= LARGEST_THRESHOLD else 0
    # trim_threshold must look like a size, not like an address, or have all bits set, which means "never trim".
    never = target.machine.address_end - 1
    points += 2 if MIN_THRESHOLD <= par.trim_threshold <= LARGEST_TRIM or par.trim_threshold == never else 0
    points += 3 if par.arena_test == DEFAULT_ARENA_TEST else 0
    points += 1 if par.arena_max < 1 << 20 else -4
    has_cache = par.layout["tcache_count"] is not None
    points += 2 if has_cache and par.tcache_count in (7, 16) else 0
    points += 2 if has_cache and par.tcache_bins == SMALL_TCACHE_BINS else 0
    points -= 4 if has_cache and not 0 < par.tcache_bins <= MAX_TCACHE_BINS else 0
    points += 3 if par.n_mmaps_max == DEFAULT_MMAPS_MAX else 0
    points -= 2 if par.n_mmaps_max < par.n_mmaps else 0
    return points


def _is_first_break(target: Target, par: MallocPar, main: MallocState) -> bool:
    """Return whether ``sbrk_base`` can be the first byte of the main arena.

    It must lie below the top chunk. If the arena is noncontiguous, it may lie anywhere."""
    if not main.system_mem:
        return par.sbrk_base == 0
    mapping = target.mappings.find(par.sbrk_base)
    below = par.sbrk_base <= main.top or main.noncontiguous
    return below and mapping is not None and mapping.writable and mapping.anonymous


def find_tcaches(target: Target, par: MallocPar, is_arena: ArenaTest) -> list[Tcache]:
    """Return the cache of every thread that has one. The size of a cache's own chunk shows which layout applies.

    ``tcache`` is a thread-local variable, so it lies at the same distance from every thread pointer. Each word that
    looks like a pointer to a cache is a vote for its distance from the thread pointer. The distance with the most votes
    is used. Damaged caches at that distance are returned too.
    """
    if par.layout["tcache_count"] is None:
        return []
    found: dict[int, list[Tcache]] = {}
    for thread in target.threads:
        for distance, cache in _tcaches_of(target, thread, par, is_arena):
            found.setdefault(distance, []).append(cache)
    if not found:
        return []
    return list({cache.address: cache for cache in max(found.values(), key=_weight)}.values())


def _weight(caches: list[Tcache]) -> tuple[int, int, int]:
    sound = [cache for cache in caches if not cache.damage]
    return len(caches), sum(len(cache.lists) for cache in caches), len(sound)


class ArenaTest:
    """A test whether an address can lie in a chunk of an arena: in the main heap or in a thread's heap."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = joined(sorted(ranges))
        self._starts = [start for start, _end in self._ranges]

    def __call__(self, address: int) -> bool:
        index = bisect_right(self._starts, address) - 1
        return index >= 0 and address < self._ranges[index][1]


def _tcaches_of(target: Target, thread: Thread, par: MallocPar, is_arena: ArenaTest) -> Iterator[tuple[int, Tcache]]:
    """Yield (distance from the thread pointer, cache) for every word of a thread's static thread-local data that may
    point to its cache."""
    machine = target.machine
    start, end = machine.storage.data(thread.thread_pointer, TLS_BYTES)
    mapping = target.mappings.find(end - machine.word if machine.storage.data_below else start)
    if mapping is None:
        return
    start, end = max(start, mapping.start), min(end, mapping.end)
    raw = target.space.read_available(start, end - start)
    for index, pointer in enumerate(machine.words_of(raw)):
        if pointer % 16 == 0 and is_arena(pointer):
            cache = _read_tcache(target, thread, pointer, par)
            if cache is not None:
                yield thread.thread_pointer - start - machine.word * index, cache


def _read_tcache(target: Target, thread: Thread, address: int, par: MallocPar) -> Tcache | None:
    try:
        size = target.space.word(address - target.machine.word) & ~7
        for layout in variants("glibc", "tcache_perthread_struct"):
            # The cache's chunk may be larger than the request: it keeps a remainder that is too small for a chunk of
            # its own, and 2.43 may round the request up twice.
            if layout["chunk"] <= size <= layout["largest_chunk"]:
                return _parse_tcache(target, thread, address, layout, par.tcache_count)
    except Fault:
        return None
    return None


def _parse_tcache(target: Target, thread: Thread, address: int, layout: dict[str, Any], capacity: int) -> Tcache | None:
    """Return the cache at ``address``. Raises Fault.

    Return None if more than one in MAX_DAMAGED of its lists is damaged, or if the process has no caches.
    """
    if layout["remaining"] and not capacity:
        return None  # since 2.43 such a process has no caches
    number, machine = layout["counts"], target.machine
    raw = target.space.read(address, layout["entries"] + machine.word * number)
    counts = machine.structure(f"{number}{'H' if layout['count_size'] == 2 else 'B'}").unpack_from(raw, 0)
    entries = machine.words_of(raw[layout["entries"] :])
    if layout["remaining"]:
        # glibc 2.42 and later store how many slots of a list are still empty, instead of how many are in use.
        counts = tuple(capacity - left for left in counts)
    lists: list[tuple[int, int, int]] = []
    torn: list[Damage] = []
    faults: list[Damage] = []
    for index, (count, entry) in enumerate(zip(counts, entries)):
        readable = not entry or _is_entry(target, entry)
        fits = readable and 0 <= count <= capacity and (count == 0) == (entry == 0)
        # A thread that was stopped inside malloc may have changed an entry, but not yet its count.
        half = readable and not fits and count == (0 if entry else 1)
        if entry and (fits or half):
            lists.append((index, entry, max(count, 1)))
        if not fits:
            found = Damage(
                address + layout["entries"] + machine.word * index,
                "list of a thread cache",
                f"a chunk and a count from 1 to {capacity}, or no chunk and a count of 0",
                f"{entry:#x} and a count of {count}",
            )
            (torn if half else faults).append(found)
    if len(faults + torn) > number // MAX_DAMAGED:
        return None
    return Tcache(thread.tid, address, lists, faults + torn if faults or len(torn) > 1 else [])


def _is_entry(target: Target, entry: int) -> bool:
    mapping = target.mappings.find(entry) if entry % 16 == 0 else None
    return mapping is not None and mapping.writable
