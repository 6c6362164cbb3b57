"""Holes that large buffers left inside arenas, because malloc no longer gives large buffers mappings of their own."""

from __future__ import annotations

from collections import defaultdict

from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import Evidence, Figures, Finding, FindingClaim
from gdbheap.findings.settings import MMAP_THRESHOLD
from gdbheap.findings.thresholds import DEFAULT_THRESHOLD, MMAP, OWN, origin_in
from gdbheap.machines.machine import Machine
from gdbheap.targets.ranges import Ranges
from gdbheap.targets.target import Target

# Used chunks of more than 128 KiB must have at least this percentage of the bytes of the holes in their arena.
MIN_PERCENT_USED = 25


# A hole keeps the headers of the free chunks that were merged into it. They are searched in PLACES
# pages. CHAIN: how many headers in a row prove that the chunks were small, of at most SMALL bytes.
PLACES, CHAIN, SMALL = 3, 4, 512
GRAIN, FLAGS = 16, 7


@dataclass(frozen=True)
class LargeChunks(Figures):
    """Large holes inside arenas. ``holes``: the number of holes of 128 KiB or more.

    ``used_chunks``: the number of larger chunks in use in the same arenas; ``used``: their bytes. ``origin``: how
    ``mmap_threshold`` got its value (see ``thresholds``)."""

    ids = ("large-chunks",)
    holes: int
    used_chunks: int
    used: int
    mmap_threshold: int
    origin: str


def find(evidence: Evidence) -> list[FindingClaim]:
    """Return a list with a finding about the resident pages of holes of 128 KiB or more, except holes that small blocks
    left.

    A hole counts only if its arena has enough chunks in use of more than 128 KiB. They must have at least a quarter of
    the bytes of the holes' pages. Otherwise the holes are taken for the remains of small blocks that other threads
    freed. The list is empty if the finding's bytes are unknown or too few."""
    glibc = evidence.glibc
    if glibc is None or not evidence.large_holes:
        return []
    used = glibc.used_by_arena(DEFAULT_THRESHOLD + 1)
    by_arena = defaultdict[int, Ranges](list)
    for hole in evidence.large_holes:
        arena = glibc.chunks.arena_of(hole[0])
        if arena in used and not _is_of_small_blocks(evidence.heap.target, *hole):
            by_arena[arena].append(hole)
    arenas = [
        arena
        for arena, holes in by_arena.items()
        if 100 * sum(used[arena]) >= MIN_PERCENT_USED * evidence.released(holes)
    ]
    holes = sorted(hole for arena in arenas for hole in by_arena[arena])
    kept = evidence.released(holes)
    if not evidence.worth(kept):
        return []
    sizes = [size for arena in arenas for size in used[arena]]
    par = glibc.malloc.par
    came = origin_in(evidence.heap.target, par, MMAP)
    figures = LargeChunks(len(holes), len(sizes), sum(sizes), par.mmap_threshold, came)
    finding = Finding("large-chunks", kept, figures, environment={} if came == OWN else MMAP_THRESHOLD)
    return [FindingClaim(finding, lambda: holes, has_remedy=True)]


def _is_of_small_blocks(target: Target, start: int, end: int) -> bool:
    """Return whether small chunks left a hole. The mmap threshold does not affect such holes.

    The answer is True if most of the sampled pages contain chains of old headers of small chunks.
    """
    step, page = (end - start) // (PLACES + 1) // GRAIN * GRAIN, target.machine.page
    places = (start + step * place for place in range(1, PLACES + 1))
    found = (_has_small_chunks(target.space.read_available(place, page), target.machine) for place in places)
    return PLACES < 2 * sum(found)


def _has_small_chunks(sample: bytes, machine: Machine) -> bool:
    """Return whether a sample of free memory is covered by old headers of small chunks.

    Each header gives the size of its chunk and so the place of the next header. Such a chain must reach the end of the
    sample."""
    words, word = machine.words_of(sample), machine.word
    for first in range(1, min(SMALL // word + 1, len(words)), GRAIN // word):
        at, count = first, 0
        while at < len(words):
            size = words[at] & ~FLAGS
            if not 2 * GRAIN <= size <= SMALL or size % GRAIN:
                break
            at, count = at + size // word, count + 1
        if at >= len(words) and count >= CHAIN:
            return True
    return False
