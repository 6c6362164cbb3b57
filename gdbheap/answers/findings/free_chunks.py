"""Free chunks between used ones: whole pages that free() leaves resident, and malloc_trim() would not."""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap.answers.findings.finding import Claim, Evidence, Figures, Finding


@dataclass(frozen=True)
class FreeChunks(Figures):
    """``chunks`` that hold whole pages, the bytes of these in the ``main`` arena and in those of ``threads``, and how
    many ``arenas`` of threads have some."""

    ids = ("free-chunks",)
    chunks: int
    main: int
    threads: int
    arenas: int


def find(evidence: Evidence) -> list[Claim]:
    """What malloc_trim(0) would give back, without what is at the end of the main arena's top."""
    trim = evidence.trim
    if trim is None:
        return []
    given = [(arena.predicted or 0) - (arena.top or 0) for arena in trim.arenas]
    if not evidence.worth(sum(given)):
        return []
    threads = [size for size in given[1:] if size]
    figures = FreeChunks(sum(arena.chunks for arena in trim.arenas), given[0], sum(threads), len(threads))
    commands = evidence.line("trim", "--yes", calls=True) + evidence.line("holes")
    finding = Finding("free-chunks", sum(given), figures, commands)
    return [Claim(finding, evidence.between_tops, has_remedy=True)]
