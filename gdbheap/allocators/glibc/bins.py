"""glibc's bins in a stopped process: the contents of each bin, and the bin of each free chunk.

Each of bins 2 to 63 holds chunks of one size. Each of bins 64 to 126 holds chunks of a range of sizes (glibc's
``largebin_index_64``, unchanged since 2.17). Bin 1, the unsorted bin, holds the chunks that were freed last and the
remainders of split chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Protocol

from gdbheap import _native
from gdbheap.allocators.glibc.arenas import Glibc
from gdbheap.dataclass import dataclass
from gdbheap.targets.target import Damage

UNSORTED, FIRST_LARGE = 1, 64
LISTS = ("fast", "tcache")
KINDS = ("unsorted", "small", "large")
_LEAST_SIZES = _native.least_sizes()


@dataclass(frozen=True)
class BinRow:
    """The contents of one bin of an arena. ``name`` is from ``bin_name``; ``bytes`` include the chunks' headers."""

    arena: int
    number: int
    name: str
    chunks: int
    bytes: int


def bin_name(number: int) -> str | None:
    """Return the name of a bin: "unsorted", or "small 0x40" or "large 0x400", where the number is the bin's least size.

    None for number 0, which is not a bin.
    """
    if number <= UNSORTED:
        return "unsorted" if number == UNSORTED else None
    return f"{'small' if number < FIRST_LARGE else 'large'} {_LEAST_SIZES[number]:#x}"


class BinReader:
    """The bins of all arenas. The constructor follows their links, and may raise KeyboardInterrupt."""

    def __init__(
        self,
        space: _native.Space,
        glibc: Glibc,
        chunks: _native.Chunks,
        progress: Callable[[int, int], object] | None = None,
    ) -> None:
        # In an arena that was never used, the bins are zeros, not lists.
        heads = [state.address + state.layout["bins"] if state.system_mem else 0 for state in glibc.arenas]
        self._native = _native.follow_bins(space, chunks, heads, progress)
        self.damage = list(map(Damage.of, self._native.damage))

    @cached_property
    def rows(self) -> list[BinRow]:
        """The bins that are not empty, by arena and number. A row with number 0 counts the free chunks that are in no
        bin."""
        return [
            BinRow(row.arena, row.bin, bin_name(row.bin) or "in no bin", row.chunks, row.bytes)
            for row in self._native.rows()
        ]

    def by_kind(self, arena: int) -> dict[str, tuple[int, int]]:
        """Return (number of chunks, bytes) in an arena's unsorted, small and large bins, by kind."""
        sums = dict.fromkeys(KINDS, (0, 0))
        for row in self.rows:
            kind = row.name.split()[0]
            if row.arena == arena and kind in sums:
                sums[kind] = (sums[kind][0] + row.chunks, sums[kind][1] + row.bytes)
        return sums

    def names_of(self, chunks: Sequence[int]) -> list[str | None]:
        """Return the name of the bin of each free chunk; None for a chunk in no bin. ``chunks``: addresses of
        headers."""
        return [None if number is None else bin_name(number) for number in self._native.find_many(chunks)]


class ChunkRow(Protocol):
    """A chunk; ``address`` is the address of its header."""

    @property
    def address(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def state(self) -> str: ...


def list_names(chunks: Sequence[ChunkRow], bins: Callable[[], BinReader]) -> list[str | None]:
    """Return the name of the free list of each chunk: a bin's name, "fast 0x20", "tcache 0x30", or None.

    ``bins``: a function that returns the bins; it is called only if a chunk may be in a bin.
    """
    free = [chunk.address for chunk in chunks if chunk.state == "free"]
    named = dict(zip(free, bins().names_of(free))) if free else {}
    return [f"{row.state} {row.size:#x}" if row.state in LISTS else named.get(row.address) for row in chunks]
