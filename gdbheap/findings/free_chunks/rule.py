"""Free chunks between used ones: whole pages that free() leaves resident, and malloc_trim() would return."""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap.answers.accounting.paths import ways
from gdbheap.findings.finding import MAX_GRAPH_BLOCKS, MIN_FINDING_BYTES, Claim, Evidence, Figures, Finding

# Minimum sizes in KiB: the default of 'heap holes', then smaller ones.
HOLE_SIZES = (1024, 256, 64, 16, 4)


@dataclass(frozen=True)
class FreeChunks(Figures):
    """The number of free ``chunks`` with whole pages.

    The bytes of these pages: ``main``: in the main arena; ``threads``: in the ``arenas`` of threads; ``unused``: in the
    ``unused_arenas``, which no thread uses any more. ``pinned_by``: the path to the block after the largest chunk, ""
    if unknown.
    """

    ids = ("free-chunks",)
    chunks: int
    main: int
    threads: int
    arenas: int
    unused: int = 0
    unused_arenas: int = 0
    pinned_by: str = ""


def find(evidence: Evidence) -> list[Claim]:
    """Return what malloc_trim(0) would return, except the part at the end of the main arena's top chunk."""
    trim = evidence.trim
    if trim is None:
        return []
    given = [(arena.predicted or 0) - (arena.top_predicted or 0) for arena in trim.rows]
    if not evidence.worth(sum(given)):
        return []
    threads = [size for size in given[1:] if size]
    unused = [given[index] for index in sorted(evidence.unused_arenas) if given[index]]
    chunks, above = sum(arena.chunks for arena in trim.rows), _above_largest(evidence)
    figures = FreeChunks(chunks, given[0], sum(threads), len(threads), sum(unused), len(unused), above)
    commands = evidence.line("trim", "--yes", calls=True) + _holes(evidence)
    commands += evidence.measuring() if len(threads) > 1 else []
    finding = Finding("free-chunks", sum(given), figures, commands)
    return [Claim(finding, evidence.between_tops, has_remedy=True)]


def _holes(evidence: Evidence) -> list[str]:
    """Return the command that lists the largest holes. It sets a minimum if all holes are smaller than its default
    minimum.

    Empty if no hole would be listed even with the smallest minimum.
    """
    found = (size for size in HOLE_SIZES if evidence.glibc is not None and evidence.glibc.holes(size << 10))
    size = next(found, None)
    if size is None:
        return []
    return evidence.line("holes", *([f"--min={size}K"] if size < HOLE_SIZES[0] else []))


def _above_largest(evidence: Evidence) -> str:
    """Return the path to the block in use after the largest free chunk.

    "" if the chunk alone is too small for a finding, or if building the graph of references would take longer than
    everything else.
    """
    rows = [] if evidence.glibc is None else evidence.glibc.holes(MIN_FINDING_BYTES)
    most = max(rows, key=lambda row: row.end - row.start, default=None)
    if most is None or most.after is None or most.after.state != "used":
        return ""
    heap = evidence.heap
    if heap.target.remote or not evidence.worth(most.end - most.start) or heap.used_blocks > MAX_GRAPH_BLOCKS:
        return ""
    return ways(heap, [most.after.address]).get(most.after.address, "")
