"""Holes that large buffers left inside arenas, because malloc no longer gives large buffers mappings of their own."""

from __future__ import annotations

from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import Claim, Evidence, Figures, Finding
from gdbheap.findings.settings import MMAP_THRESHOLD
from gdbheap.findings.thresholds import DEFAULT_THRESHOLD, MMAP, OWN, origin_in
from gdbheap.machines.machine import Machine
from gdbheap.targets.target import Target

# Used chunks of more than 128 KiB must have at least this percentage of the holes' bytes.
MIN_PERCENT_USED = 25


# A hole keeps the headers of the free chunks that were merged into it. They are searched in PLACES
# pages. CHAIN: how many headers in a row prove that the chunks were small, of at most SMALL bytes.
PLACES, CHAIN, SMALL = 3, 4, 512
GRAIN, FLAGS = 16, 7


@dataclass(frozen=True)
class LargeChunks(Figures):
    """The number of ``holes`` of 128 KiB or more, and of ``used_chunks`` of that size, which have ``used`` bytes.

    ``origin``: how ``mmap_threshold`` got its value (see ``thresholds``).
    """

    ids = ("large-chunks",)
    holes: int
    used_chunks: int
    used: int
    mmap_threshold: int
    origin: str


def find(evidence: Evidence) -> list[Claim]:
    """Return a finding about the resident pages of holes of 128 KiB or more, except holes that small blocks left.

    There is none if chunks in use of more than 128 KiB have less than a quarter of the bytes of these pages.
    """
    glibc = evidence.glibc
    holes = [hole for hole in evidence.large_holes if not _is_of_small_blocks(evidence.heap.target, *hole)]
    if glibc is None or not holes:
        return []
    kept = evidence.released(holes)
    if not evidence.worth(kept):
        return []
    used = [(size, count) for size, count in glibc.used_chunks if size > DEFAULT_THRESHOLD]
    count, size = sum(count for _, count in used), sum(size * count for size, count in used)
    if 100 * size < MIN_PERCENT_USED * kept:
        return []
    par = glibc.malloc.par
    came = origin_in(evidence.heap.target, par, MMAP)
    figures = LargeChunks(len(holes), count, size, par.mmap_threshold, came)
    finding = Finding("large-chunks", kept, figures, environment={} if came == OWN else MMAP_THRESHOLD)
    return [Claim(finding, lambda: holes, has_remedy=True)]


def _is_of_small_blocks(target: Target, start: int, end: int) -> bool:
    """Return whether small chunks left a hole. The mmap threshold does not affect such holes.

    The answer is True if most of the sampled pages contain chains of old headers of small chunks.
    """
    step, page = (end - start) // (PLACES + 1) // GRAIN * GRAIN, target.machine.page
    places = (start + step * place for place in range(1, PLACES + 1))
    found = (_has_small_chunks(target.space.read_available(place, page), target.machine) for place in places)
    return PLACES < 2 * sum(found)


def _has_small_chunks(sample: bytes, machine: Machine) -> bool:
    """Return whether old headers of small chunks lead from near the beginning of a sample of free memory to its end."""
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
