"""Arenas of pymalloc that a few blocks keep from being returned."""

from __future__ import annotations

from dataclasses import field

from gdbheap.allocators.pymalloc.allocator import PymallocAllocator
from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import UNLISTED, Evidence, Figures, Finding, FindingClaim
from gdbheap.findings.pinners import NO_PINNER, Pinner, pinned_groups


@dataclass(frozen=True)
class PymallocArenas(Figures):
    """The number of ``arenas`` that a few ``blocks`` pin, and the bytes of these blocks (``held``).

    ``all_arenas``: the number of all arenas. ``pinner``: the variable that holds most of the examined blocks.
    """

    ids = ("pymalloc-arenas",)
    arenas: int
    blocks: int
    held: int
    all_arenas: int = field(metadata=UNLISTED)
    pinner: Pinner = NO_PINNER


def find(evidence: Evidence) -> list[FindingClaim]:
    """Return a list with a finding about the free bytes in resident pages of arenas that are at most half in use.

    Only pool headers are read. The list is empty if the finding's bytes are unknown or too few.
    """
    python = evidence.heap.find_allocator(PymallocAllocator)
    pinned = None if python is None or evidence.heap.target.pages is None else pinned_groups(evidence, python)
    if python is None or pinned is None:
        return []
    totals, count = pinned.totals, len(python.pymalloc.arenas)
    figures = PymallocArenas(totals.groups, totals.blocks, totals.bytes, count, pinned.pinner)
    finding = Finding("pymalloc-arenas", pinned.free, figures, evidence.line("pins", "--allocator=pymalloc"))
    return [FindingClaim(finding, python.ranges)]
