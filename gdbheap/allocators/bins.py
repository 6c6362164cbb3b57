"""glibc's bins at one stop: how much is in each, and which of them a free chunk is in.

Bins 2 to 63 hold chunks of one size each, 64 to 126 a range of sizes (glibc's ``largebin_index_64``, the same in every
version from 2.17 on); a chunk that was freed last, or is left of one that was cut, waits in bin 1, the unsorted one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from gdbheap import _native
from gdbheap.allocators.glibc import Glibc
from gdbheap.target.target import Damage

UNSORTED, FIRST_LARGE, GRAIN = 1, 64, 16
LISTS = ("fast", "tcache")
KINDS = ("unsorted", "small", "large")
# Of each group of large bins: the last bin, what the bin is counted from, the shift of a size, the least size.
GROUPS = (
    (96, 48, 6, 0x400),
    (111, 91, 9, 0xC40),
    (120, 110, 12, 0x2A00),
    (123, 119, 15, 0xB000),
    (126, 124, 18, 0x28000),
)


@dataclass(frozen=True)
class BinRow:
    """What is in one bin of an arena: ``name`` is as of ``bin_name``; ``bytes`` are the chunks', headers included."""

    arena: int
    number: int
    name: str
    chunks: int
    bytes: int


def least_size(number: int) -> int:
    """The size of the smallest chunk that is sorted into a bin, 0 for the unsorted one."""
    if number < FIRST_LARGE:
        return 0 if number <= UNSORTED else number * GRAIN
    return next(max(least, number - first << shift) for last, first, shift, least in GROUPS if number <= last)


def bin_name(number: int) -> str | None:
    """``unsorted``, ``small 0x40``, ``large 0x400`` (by the least size), None for 0, which is no bin."""
    if number <= UNSORTED:
        return "unsorted" if number == UNSORTED else None
    return f"{'small' if number < FIRST_LARGE else 'large'} {least_size(number):#x}"


class Bins:
    """The bins of all arenas. Following them happens at construction, which may raise KeyboardInterrupt."""

    def __init__(
        self,
        space: _native.Space,
        glibc: Glibc,
        chunks: _native.Chunks,
        progress: Callable[[int, int], object] | None = None,
    ) -> None:
        # The bins of an arena that nobody has used yet are zeros, not rings.
        heads = [state.address + state.layout["bins"] if state.system_mem else 0 for state in glibc.arenas]
        self._native = _native.follow_bins(space, chunks, heads, progress)
        self.damage = [Damage(*row) for row in self._native.damage]

    @cached_property
    def rows(self) -> list[BinRow]:
        """The bins that hold anything, by arena and number; number 0 are free chunks that are in none."""
        return [
            BinRow(arena, number, bin_name(number) or "in no bin", count, size)
            for arena, number, count, size in self._native.rows()
        ]

    def by_kind(self, arena: int) -> dict[str, tuple[int, int]]:
        """(chunks, bytes) of an arena's unsorted, small and large bins."""
        sums = dict.fromkeys(KINDS, (0, 0))
        for row in self.rows:
            kind = row.name.split()[0]
            if row.arena == arena and kind in sums:
                sums[kind] = (sums[kind][0] + row.chunks, sums[kind][1] + row.bytes)
        return sums

    def names_of(self, chunks: Sequence[int]) -> list[str | None]:
        """The bin's name for each free chunk (by its header's address); None for what is in no bin."""
        return [None if number is None else bin_name(number) for number in self._native.find_many(chunks)]


def list_names(chunks: Sequence[tuple[int, int, str]], bins: Callable[[], Bins]) -> list[str | None]:
    """The free list that each chunk (header, size, state) is on: a bin's name, ``fast 0x20``, ``tcache 0x30``, or None.

    ``bins`` is asked for the bins only where a chunk may be in one.
    """
    free = [chunk for chunk, _size, state in chunks if state == "free"]
    named = dict(zip(free, bins().names_of(free))) if free else {}
    return [f"{state} {size:#x}" if state in LISTS else named.get(chunk) for chunk, size, state in chunks]
