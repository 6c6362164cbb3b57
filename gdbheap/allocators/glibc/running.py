"""Read glibc's malloc in a running process with short reads. malloc's data was located before, while the process was
stopped for a short time.

Words are read twice. An arena's free lists are trusted if two walks through them agree and the arena has not changed in
between. Everything that is in no list and not in the top chunk then counts as in use, as in ``malloc_info``."""

from __future__ import annotations

from typing import NamedTuple

from gdbheap import _native
from gdbheap.allocators.glibc.arenas import SMALLEST_CHUNK, Glibc
from gdbheap.allocators.glibc.locate import MAX_ARENAS
from gdbheap.allocators.glibc.mutation import malloc_range
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault
from gdbheap.machines.machine import Machine
from gdbheap.targets.ranges import Ranges

__all__ = ["ArenaNow", "MmappedNow", "RunningMalloc", "StateLayout"]

TRIES = 3
# The most chunks of a list that are followed. malloc becomes slow long before a list has that many.
MAX_LISTED = 1 << 20


class StateLayout(NamedTuple):
    """The offsets in bytes of fields in ``struct malloc_state``, as the native code expects them."""

    top: int
    bins: int
    next: int
    system_mem: int
    max_system_mem: int
    fastbins: int | None
    size: int


class ArenaNow(NamedTuple):
    """One arena of a running process; sizes in bytes, headers included.

    ``top`` is None if the arena has no top chunk. ``trim``: the most bytes that ``malloc_trim(0)`` can return (whole
    pages, resident or not). ``in_use`` and ``trim`` are None if the lists were not followed, or if they changed
    meanwhile (``doubtful``)."""

    address: int
    system: int
    peak: int
    top: int | None
    in_use: int | None
    trim: int | None
    doubtful: bool


@dataclass(frozen=True)
class MmappedNow:
    """The counts of mmapped chunks in ``mp_``, and ``peak``, the most bytes that mmapped chunks ever had together.

    ``doubtful``: the counts changed while they were read."""

    count: int
    bytes: int
    peak: int
    doubtful: bool


@dataclass(frozen=True)
class RunningMalloc:
    """The addresses of malloc's data in a process: ``main_arena`` and ``mp_``, with their layouts, and malloc's code.

    ``code`` is empty if it is unknown."""

    main: int
    layout: StateLayout
    par: int
    par_mmaps: int
    par_mapped: int
    code: Ranges
    machine: Machine

    @classmethod
    def of(cls, glibc: Glibc, machine: Machine) -> RunningMalloc:
        """Return an instance with the addresses that were found while the process was stopped."""
        state, par = glibc.main, glibc.par
        names = ("top", "bins", "next", "system_mem", "max_system_mem", "fastbinsY", "size")
        layout = StateLayout(*(state.layout[name] for name in names))
        place = malloc_range(glibc.libc)
        code = [] if place is None else [place]
        return cls(state.address, layout, par.address, par.layout["n_mmaps"], par.layout["mmapped_mem"], code, machine)

    def arenas(self, space: _native.Space, with_lists: bool, trusted: bool = True) -> tuple[list[ArenaNow], bool]:
        """Return the arenas in the order of their circular list, and whether the last one points back to the first.

        ``with_lists``: follow the free lists too. ``trusted``: False if even two equal reads of the lists prove
        nothing, because a thread is stopped inside malloc.
        """
        found: list[ArenaNow] = []
        at, seen = self.main, set[int]()
        while at and at not in seen and len(seen) < MAX_ARENAS:
            seen.add(at)
            arena = self._look(space, at, with_lists)
            if arena is None:
                return found, False
            found.append(self._arena(at, arena, with_lists, trusted))
            at = arena.next
        return found, at == self.main

    def _look(self, space: _native.Space, address: int, with_lists: bool) -> _native.RunningArena | None:
        """Read the arena at ``address``; None if it cannot be read, or if it claims more bytes than there are
        addresses.

        ``with_lists``: repeat the read, up to TRIES times, until the arena does not change during the read."""
        for _ in range(TRIES):
            found = _native.look_at_arena(space, address, self.layout, MAX_LISTED if with_lists else 0)
            if found is None or not with_lists or found.listed is not None:
                break
        is_believed = found is not None and max(found.system, found.peak, found.top or 0) < self.machine.kernel_start
        return found if is_believed else None

    def _arena(self, address: int, found: _native.RunningArena, with_lists: bool, trusted: bool) -> ArenaNow:
        listed = found.listed if trusted else None
        if listed is None:
            return ArenaNow(address, found.system, found.peak, found.top, None, None, with_lists)
        in_use = found.system - listed.bytes - (found.top or 0)
        trim = listed.whole + (self._of_top(found) if address == self.main else 0)
        return ArenaNow(address, found.system, found.peak, found.top, in_use, trim, False)

    def _of_top(self, found: _native.RunningArena) -> int:
        """Return how many bytes of the main arena's top chunk glibc's ``systrim`` would return to the kernel.

        ``malloc_trim`` returns nothing from the top chunks of other arenas.
        """
        beyond = (found.top or 0) - SMALLEST_CHUNK - 1
        return 0 if found.noncontiguous else max(0, self.machine.page_down(beyond))

    def mmapped(self, space: _native.Space) -> MmappedNow | None:
        """Return the counts of mmapped chunks; None if they cannot be read."""
        try:
            last = self._mmapped(space)
            for _ in range(TRIES):
                before, last = last, self._mmapped(space)
                if before == last:
                    break
        except Fault:
            return None
        return MmappedNow(*last, before != last) if max(last) < self.machine.kernel_start else None

    def _mmapped(self, space: _native.Space) -> tuple[int, int, int]:
        word = self.machine.word
        raw = space.read(self.par + self.par_mapped, 2 * word)
        mapped, peak = self.machine.words_of(raw)
        return space.u32(self.par + self.par_mmaps), mapped, peak

    def is_inside(self, program_counters: list[int]) -> bool:
        """Return whether a thread at one of these program counters may have left malloc's lists half changed."""
        return any(start <= at < end for start, end in self.code for at in program_counters)
