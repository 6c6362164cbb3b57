"""Free chunks between used ones: whole pages that free() leaves resident, and malloc_trim() would return."""

from __future__ import annotations

from gdbheap.answers.accounting.paths import ways
from gdbheap.dataclass import dataclass
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
    """Return a finding about the memory that malloc_trim(0) would return, without the end of the main arena's top
    chunk.
    """
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
    """Return a list with the command that lists the largest holes.

    The command sets a minimum size if all holes are smaller than its default minimum. The list is empty if even the
    smallest minimum would list no hole.
    """
    found = (size for size in HOLE_SIZES if evidence.glibc is not None and evidence.glibc.holes(size << 10))
    size = next(found, None)
    if size is None:
        return []
    return evidence.line("holes", *([f"--min={size}K"] if size < HOLE_SIZES[0] else []))


def _above_largest(evidence: Evidence) -> str:
    """Return the path to the block in use after the largest free chunk.

    Return "" if the chunk alone is too small for a finding, or if building the graph of references would take longer
    than all other work.
    """
    rows = [] if evidence.glibc is None else evidence.glibc.holes(MIN_FINDING_BYTES)
    most = max(rows, key=lambda row: row.end - row.start, default=None)
    if most is None or most.after is None or most.after.state != "used":
        return ""
    heap = evidence.heap
    if heap.target.remote or not evidence.worth(most.end - most.start) or heap.used_blocks > MAX_GRAPH_BLOCKS:
        return ""
    return ways(heap, [most.after.address]).get(most.after.address, "")
