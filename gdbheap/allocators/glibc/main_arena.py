"""Find the memory of the main arena: one stretch that begins at the first break, or several if ``sbrk`` has failed.

No list contains the extents of a noncontiguous arena. gdbheap finds each extent by a walk over its chunks, which must
end at the top chunk or at two fenceposts. ``system_mem`` counts the bytes of all extents, and so shows whether all of
them were found."""

from __future__ import annotations

from typing import Callable

from gdbheap import _native
from gdbheap.allocators.glibc.locate import MallocPar, MallocState
from gdbheap.errors import Fault
from gdbheap.targets.ranges import Ranges, joined, subtract
from gdbheap.targets.target import Target

ALIGNMENT = 16
# The most bytes after an extent in which the next extent is searched at every possible address of a chunk. Other code
# may have got the memory between the two extents from sbrk.
FOREIGN = 1 << 20

Report = Callable[[int, str, str, str], None]


class MainExtents:
    """Finds the stretches of the main arena. ``reserves``: the address space of thread heaps, which is not searched."""

    def __init__(self, target: Target, main: MallocState, par: MallocPar, reserves: Ranges, report: Report) -> None:
        self._target, self._main, self._par = target, main, par
        self._reserves, self._report = sorted(reserves), report
        self._start = (par.sbrk_base + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT

    @property
    def misalignment(self) -> int:
        """The bytes of the arena before its first chunk. The break may be unaligned if other code has moved it."""
        return self._start - self._par.sbrk_base

    def find(self) -> Ranges:
        """Return (start, end) of each stretch, ascending, and report damage."""
        return self._scattered() if self._main.noncontiguous else self._contiguous()

    def _contiguous(self) -> Ranges:
        """Return the only stretch of a contiguous arena, up to the end that follows from ``system_mem``.

        If that end is impossible, the stretch ends with the top chunk. The result is empty if the top chunk cannot be
        read.
        """
        start, limit = self._start, self._run_end(self._start)
        by_books = self._par.sbrk_base + self._main.system_mem
        if not start <= self._main.top < limit and start < by_books <= limit:
            return [(start, by_books)]
        try:
            end = self._main.top + (self._target.space.word(self._main.top + 8) & ~7)
        except Fault:
            found = f"none at {self._main.top:#x}"
            self._report(self._main.address, "top chunk of the main arena", "bytes that can be read", found)
            return []
        end = by_books if self._main.top < by_books <= limit else end
        if not start <= self._main.top < end <= limit:
            self._report(self._main.top, "size of the top chunk", f"an end of at most {limit:#x}", f"{end:#x}")
        return [(start, min(end, limit))] if start < min(end, limit) else []

    def _run_end(self, address: int) -> int:
        """Return the end of the writable anonymous memory at ``address``, which may be several adjacent mappings."""
        end = address
        mapping = self._target.mappings.find(end)
        while mapping is not None and mapping.writable and mapping.anonymous:
            end = mapping.end
            mapping = self._target.mappings.find(end)
        return end

    def _scattered(self) -> Ranges:
        mappings = self._target.mappings
        candidates = joined([(m.start, m.end) for m in mappings if m.anonymous and m.private and m.writable])
        break_run = [(self._start, self._run_end(self._start))]
        space, top = self._target.space, self._main.top
        of_break = _native.find_extents(space, subtract(break_run, self._reserves), top, FOREIGN)
        rest = subtract(candidates, sorted(self._reserves + break_run))
        found = sorted(of_break + _native.find_extents(space, rest, top, 0))
        missing = self._main.system_mem - self.misalignment - sum(end - start for start, end in found)
        if not missing:
            return found
        searched = subtract(candidates, sorted(self._reserves + found))
        return (
            self._completed(searched, found, missing)
            or self._bridged(of_break, found, missing)
            or self._topped(found, missing)
            or found
        )

    def _bridged(self, of_break: Ranges, found: Ranges, missing: int) -> Ranges | None:
        """Join the main arena's first ranges below the program break until their gaps add up to ``missing`` bytes.

        Return all ranges of the arena; None if the gaps never add up to ``missing``. ``missing``: the bytes that
        ``system_mem`` counts but that lie in no range, because other code got them from ``sbrk`` while the arena was
        contiguous. ``found``: all ranges that were found. ``of_break``: the ranges in ``found`` below the program
        break.
        """
        for before, (start, end) in zip(of_break, of_break[1:]):
            missing -= start - before[1]
            if missing == 0 and not before[0] <= self._main.top < before[1]:
                return sorted([(of_break[0][0], end)] + [one for one in found if not of_break[0][0] <= one[0] < end])
        return None

    def _completed(self, searched: Ranges, found: Ranges, missing: int) -> Ranges | None:
        """Return ``found`` with one more stretch, or with one longer stretch, so that all bytes add up to
        ``system_mem``.

        A damaged chunk may have hidden the start or the end of that stretch. Return None if no stretch explains the
        missing bytes.
        """
        if missing < 0:
            return None
        hidden = self._fenced(searched, missing)
        if len(hidden) == 1:
            return sorted(found + hidden)
        for place, (start, end) in enumerate(found):
            low = found[place - 1][1] if place else 0
            whole = self._fenced([(start - missing, end)], end - start + missing) if start - missing >= low else []
            if whole:
                return found[:place] + whole + found[place + 1 :]
        return None

    def _fenced(self, ranges: Ranges, size: int) -> Ranges:
        return _native.find_fenced(self._target.space, ranges, size, self._main.top)

    def _topped(self, found: Ranges, missing: int) -> Ranges | None:
        """Return ``found`` with the top chunk's stretch extended to the end that follows from ``system_mem``.

        This applies if the size of the top chunk is damaged. Return None if the memory does not reach to that end.
        """
        for place, (start, end) in enumerate(found):
            if start <= self._main.top < end:
                high = found[place + 1][0] if place + 1 < len(found) else self._run_end(start)
                if self._main.top < end + missing <= high:
                    return found[:place] + [(start, end + missing)] + found[place + 1 :]
        return None
