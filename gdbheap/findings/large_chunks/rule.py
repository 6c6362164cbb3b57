"""Holes that large buffers left inside arenas, because malloc no longer gives large buffers mappings of their own."""

from __future__ import annotations

from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import Claim, Evidence, Figures, Finding
from gdbheap.findings.settings import MMAP_THRESHOLD
from gdbheap.findings.thresholds import DEFAULT_THRESHOLD, MMAP, OWN, origin_in

# Used chunks of more than 128 KiB must have at least this percentage of the holes' bytes.
MIN_PERCENT_USED = 25


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
    """Return a finding about the resident pages of holes of 128 KiB or more.

    There is none if chunks in use of more than 128 KiB have less than a quarter of the bytes of these pages.
    """
    glibc, holes = evidence.glibc, evidence.large_holes
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
