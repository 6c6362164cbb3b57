"""Arenas of pymalloc that a few blocks keep from being returned."""

from __future__ import annotations

from dataclasses import field

from gdbheap.allocators.pymalloc.allocator import PymallocAllocator
from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import UNLISTED, Claim, Evidence, Figures, Finding
from gdbheap.findings.pinned_pages.rule import free_of
from gdbheap.findings.pinners import MAX_GROUPS, NO_PINNER, Pinner, pinner_of_groups


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


def find(evidence: Evidence) -> list[Claim]:
    """Return a finding about the free bytes in resident pages of arenas that are at most half in use.

    Only pool headers are read.
    """
    python = evidence.heap.find_allocator(PymallocAllocator)
    if python is None or evidence.heap.target.pages is None:
        return []
    groups = python.pins(evidence.kept, evidence.heap.target.machine.page, MAX_GROUPS)
    totals = groups.totals
    free = free_of(totals)
    if not evidence.worth(free):
        return []
    pinner, count = pinner_of_groups(evidence, python, groups.rows), len(python.pymalloc.arenas)
    figures = PymallocArenas(totals.groups, totals.blocks, totals.bytes, count, pinner)
    finding = Finding("pymalloc-arenas", free, figures, evidence.line("pins", "--allocator=pymalloc"))
    return [Claim(finding, python.ranges)]
