"""Free chunks between used ones: whole pages that free() leaves resident, and malloc_trim() would return."""

from __future__ import annotations

from heapq import nlargest

from gdbheap.allocators.allocator import HoleRow
from gdbheap.answers.accounting.paths import ways
from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import Evidence, Figures, Finding, FindingClaim
from gdbheap.findings.pinners import MAX_GROUPS, NO_PINNER, Pinner, pinner_of

# Minimum sizes in KiB: the default of 'heap holes', then smaller ones.
HOLE_SIZES = (1024, 256, 64, 16, 4)


@dataclass(frozen=True)
class FreeChunks(Figures):
    """Free chunks that contain whole pages. ``chunks``: their number.

    The bytes of the whole pages are given for three parts. ``main``: in the main arena. ``threads``: in the ``arenas``
    of threads. ``unused``: in the ``unused_arenas``, which no thread uses any more. ``pinned_by``: the path to the
    block after the largest chunk, "" if unknown. ``pinner``: the variable that holds most of the blocks after the
    largest holes."""

    ids = ("free-chunks",)
    chunks: int
    main: int
    threads: int
    arenas: int
    unused: int = 0
    unused_arenas: int = 0
    pinned_by: str = ""
    pinner: Pinner = NO_PINNER


def find(evidence: Evidence) -> list[FindingClaim]:
    """Return a list with a finding about the memory that malloc_trim(0) would return, without the end of the main
    arena's top chunk. The list is empty if the finding's bytes are unknown or too few.
    """
    trim = evidence.trim
    if trim is None:
        return []
    given = [(arena.predicted or 0) - (arena.top_predicted or 0) for arena in trim.rows]
    if not evidence.worth(sum(given)):
        return []
    threads = [size for size in given[1:] if size]
    unused = [given[index] for index in sorted(evidence.unused_arenas) if given[index]]
    chunks, (smallest, holes) = sum(arena.chunks for arena in trim.rows), _largest_holes(evidence)
    above = _above_largest(evidence, holes)
    after = [row.after.address for row in holes if row.after is not None and row.after.state == "used"]
    pinner = pinner_of(evidence, after) if len(after) > 1 and not above else NO_PINNER
    figures = FreeChunks(chunks, given[0], sum(threads), len(threads), sum(unused), len(unused), above, pinner)
    commands = evidence.trimming() + _holes(evidence, smallest)
    commands += evidence.measuring() if len(threads) > 1 else []
    finding = Finding("free-chunks", sum(given), figures, commands)
    return [FindingClaim(finding, evidence.between_tops, has_remedy=True)]


def _largest_holes(evidence: Evidence) -> tuple[int | None, list[HoleRow]]:
    """Return the largest size in HOLE_SIZES (in KiB) that a hole reaches, and the MAX_GROUPS largest holes of at least
    this size.

    The result is (None, []) if no hole reaches the smallest size."""
    for size in HOLE_SIZES:
        rows = [] if evidence.glibc is None else list(evidence.glibc.holes(size << 10))
        if rows:
            return size, nlargest(MAX_GROUPS, rows, key=lambda row: (row.end - row.start, -row.start))
    return None, []


def _holes(evidence: Evidence, size: int | None) -> list[str]:
    """Return a list with the command that lists the holes of at least ``size`` KiB; empty if no hole has that size."""
    if size is None:
        return []
    return evidence.line("holes", *([f"--min={size}K"] if size < HOLE_SIZES[0] else []))


def _above_largest(evidence: Evidence, holes: list[HoleRow]) -> str:
    """Return the path to the block in use after the largest of ``holes``, which comes first.

    Return "" if this hole alone is too small for a finding. Return "" also if building the graph of references would
    take longer than all other work."""
    most = holes[0] if holes else None
    if most is None or most.after is None or most.after.state != "used":
        return ""
    if not evidence.worth(most.end - most.start) or not evidence.is_graph_quick:
        return ""
    return ways(evidence.heap, [most.after.address]).get(most.after.address, "")
