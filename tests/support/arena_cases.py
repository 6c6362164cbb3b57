"""Programs with known arenas, and the figures of their own malloc_stats()."""

from __future__ import annotations

import bisect
import random
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.library import chunks_at, heap_of
from support.programs import Running, c_program, running

ARENA = re.compile(r"^Arena (\d+):\nsystem bytes +=\s+(\d+)\nin use bytes +=\s+(\d+)$", re.MULTILINE)
TOTAL = re.compile(r"^Total \(incl\. mmap\):\nsystem bytes +=\s+(\d+)\nin use bytes +=\s+(\d+)$", re.MULTILINE)
HEAP = re.compile(r'<heap nr="(\d+)">(.*?)</heap>', re.DOTALL)
FAST = re.compile(r'^<total type="fast" count="\d+" size="(\d+)"/>$', re.MULTILINE)
MMAPPED = re.compile(r'^<total type="mmap" count="(\d+)" size="(\d+)"/>$', re.MULTILINE)
# Sizes of a chunk of a tcache, also if it kept a remainder too small for a chunk; 2.43 requests its size rounded up or
# not.
TCACHE_SIZES = {0x290, 0x2A0, 0x300, 0x310, 0x320}
# malloc_stats prints unsigned int.
WORD = 1 << 32


@dataclass(frozen=True)
class Case:
    """Arguments of tests/programs/recorder.c, and malloc's tunables."""

    threads: int
    operations: int = 60_000
    slots: int = 4000
    largest: int = 200_000
    mode: int = 0
    tunables: str = ""


SEVERAL_HEAPS = "glibc.malloc.arena_max=2:glibc.malloc.mmap_threshold=1000000"
CASES = {
    "1 thread": Case(1, 200_000, 20_000),
    "8 threads": Case(8),
    "8 threads, 2 arenas": Case(8, tunables="glibc.malloc.arena_max=2"),
    "arenas of several heaps": Case(8, 20_000, 2500, 400_000, tunables=SEVERAL_HEAPS),
    "no tcache": Case(4, tunables="glibc.malloc.tcache_count=0"),
    "large tcache": Case(2, tunables="glibc.malloc.tcache_count=60"),
    "foreign sbrk": Case(1, 100_000, mode=1),
    "foreign sbrk, 3 threads": Case(3, mode=1),
    "blocked break": Case(1, 100_000, 8000, mode=2),
    "blocked break, 3 threads": Case(3, mode=2),
    "many mmapped chunks": Case(2, tunables="glibc.malloc.mmap_threshold=20000"),
    "many aligned mmapped chunks": Case(2, mode=4, tunables="glibc.malloc.mmap_threshold=20000"),
    "transparent huge pages": Case(2, 30_000, tunables="glibc.malloc.hugetlb=1"),
    "huge pages": Case(2, 30_000, tunables="glibc.malloc.hugetlb=2"),
    "huge pages, 5 threads": Case(5, 30_000, tunables="glibc.malloc.hugetlb=2"),
    "a few blocks": Case(1, 60, 10),
    "malloc never called": Case(1, 0, 1),
}


def recorder(case: Case, rng: random.Random, directory: Path) -> Any:
    """Start recorder.c; its table is ``directory``/table."""
    arguments = (case.threads, rng.getrandbits(30), case.operations, case.slots, case.largest, case.mode)
    return running(c_program("recorder", *arguments, directory / "table"), directory, {"GLIBC_TUNABLES": case.tunables})


def malloc_stats(text: str) -> dict[str, Any]:
    """Return what malloc_stats() printed: {"arenas": {index: (system, in use)}, "total": (system, in use)}."""
    total = TOTAL.search(text)
    assert total, text
    arenas = {int(index): (int(system), int(in_use)) for index, system, in_use in ARENA.findall(text)}
    return {"arenas": arenas, "total": (int(total[1]), int(total[2]))}


def as_malloc_stats(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of ``heap arenas`` in the same shape and width."""
    arenas = {row["index"]: (row["system"] % WORD, row["in_use"] % WORD) for row in answer["rows"]}
    assert len(arenas) == len(answer["rows"])
    return {"arenas": arenas, "total": (answer["total"]["system"] % WORD, answer["total"]["in_use"] % WORD)}


def check_figures(answer: dict[str, Any], target: Running) -> None:
    """Compare with the target's output; each arena's parts must add up to it."""
    assert as_malloc_stats(answer) == malloc_stats(target.stderr)
    # Since 2.43 there are no fast bins, and malloc_info() reports none.
    fast = {int(index): sum(map(int, FAST.findall(body))) for index, body in HEAP.findall(target.stderr)}
    assert {row["index"]: row["fast"] for row in answer["rows"]} == fast
    mmapped = MMAPPED.findall(target.stderr)[-1]
    assert (answer["mmapped_chunks"]["count"], answer["mmapped_chunks"]["bytes"]) == tuple(map(int, mmapped))
    assert answer["damage"] == []


def check_counts(answer: dict[str, Any], case: Case, table: Table, tcaches: int | None = None, cached: int = 0) -> None:
    """Check that the used chunks are the recorded ones, each thread's tcache, and the dtv of each thread except the
    first.

    ``cached`` mmapped chunks, which ``mp_`` still counts, are in the threads' caches.
    """
    used = sum(row["used_count"] for row in answer["rows"]) + answer["mmapped_chunks"]["count"] - cached
    caches = case.threads if tcaches is None else tcaches
    own = caches + (case.threads - 1) if case.operations else 0
    assert used == len(table.live) + own, f"{used} used chunks, {len(table.live)} live pointers and {own} of glibc's"


class Table:
    """The table of recorder.c: the live pointers, and freed ones that no later block overlaps."""

    def __init__(self, path: Path) -> None:
        records = list(struct.iter_unpack("<4Q", path.read_bytes()))
        self.live = {pointer: usable for pointer, usable, _, live in records if live}
        self._starts = sorted(self.live)
        freed = {pointer for pointer, _, _, live in records if not live}
        self.freed = sorted(pointer for pointer in freed if not self._inside_live(pointer))

    def _inside_live(self, pointer: int) -> bool:
        """Return whether a live block's chunk covers it; a chunk begins 16 bytes before the block's pointer."""
        before = bisect.bisect_right(self._starts, pointer + 16) - 1
        return before >= 0 and pointer < self._starts[before] + self.live[self._starts[before]]


def check_states(target: str, table: Table, threads: int) -> None:
    """Check all pointers of a pid or a core at once, through the library."""
    live, freed = sorted(table.live), table.freed
    with heap_of(target) as heap:
        found, gone = chunks_at(heap, live), chunks_at(heap, freed)
    assert [wrong for wrong in zip(live, found) if not is_live(*wrong, table.live[wrong[0]])] == []
    wrong = {chunk: size for chunk, size, state in gone if state in ("used", "mmapped")}
    # A thread that started late may have its tcache in memory that another thread had freed.
    assert set(wrong.values()) <= TCACHE_SIZES and len(wrong) <= threads, wrong


def is_live(pointer: int, found: tuple[int, int, str | None], usable: int) -> bool:
    """Return whether the chunk found begins 16 bytes before the pointer, with the size of malloc_usable_size().

    Since 2.43 that is 8 bytes less for an mmapped chunk; sizes are multiples of 16, so only one of the two fits.
    """
    chunk, size, state = found
    fitting = {("used", usable + 8), ("mmapped", usable + 16), ("mmapped", usable + 24)}
    return chunk == pointer - 16 and (state, size) in fitting
