"""glibc's bins at one stop: how much is in each, and which of them a free chunk is in.

Bins 2 to 63 hold chunks of one size each, 64 to 126 a range of sizes (glibc's ``largebin_index_64``, the same in every
version from 2.17 on); a chunk that was freed last, or is left of one that was cut, waits in bin 1, the unsorted one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from gdbheap import _native
from gdbheap.allocators.glibc.arenas import Glibc
from gdbheap.targets.target import Damage

UNSORTED, FIRST_LARGE = 1, 64
LISTS = ("fast", "tcache")
KINDS = ("unsorted", "small", "large")
_LEAST_SIZES = _native.least_sizes()


@dataclass(frozen=True)
class BinRow:
    """What is in one bin of an arena: ``name`` is as of ``bin_name``; ``bytes`` are the chunks', headers included."""

    arena: int
    number: int
    name: str
    chunks: int
    bytes: int


def bin_name(number: int) -> str | None:
    """``unsorted``, ``small 0x40``, ``large 0x400`` (by the least size), None for 0, which is no bin."""
    if number <= UNSORTED:
        return "unsorted" if number == UNSORTED else None
    return f"{'small' if number < FIRST_LARGE else 'large'} {_LEAST_SIZES[number]:#x}"


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
        self.damage = list(map(Damage.of, self._native.damage))

    @cached_property
    def rows(self) -> list[BinRow]:
        """The bins that hold anything, by arena and number; number 0 are free chunks that are in none."""
        return [
            BinRow(row.arena, row.bin, bin_name(row.bin) or "in no bin", row.chunks, row.bytes)
            for row in self._native.rows()
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


class ChunkRow(Protocol):
    """A chunk by the address of its header."""

    @property
    def address(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def state(self) -> str: ...


def list_names(chunks: Sequence[ChunkRow], bins: Callable[[], Bins]) -> list[str | None]:
    """The free list that each chunk is on: a bin's name, ``fast 0x20``, ``tcache 0x30``, or None.

    ``bins`` is asked for the bins only where a chunk may be in one.
    """
    free = [chunk.address for chunk in chunks if chunk.state == "free"]
    named = dict(zip(free, bins().names_of(free))) if free else {}
    return [f"{row.state} {row.size:#x}" if row.state in LISTS else named.get(row.address) for row in chunks]
