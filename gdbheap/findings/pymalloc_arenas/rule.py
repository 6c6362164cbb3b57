"""Arenas of pymalloc that a few blocks keep from being returned."""

from __future__ import annotations

from dataclasses import field

from gdbheap.allocators.pymalloc.allocator import PymallocAllocator
from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import UNLISTED, Claim, Evidence, Figures, Finding
from gdbheap.findings.pinned_pages.rule import free_of


@dataclass(frozen=True)
class PymallocArenas(Figures):
    """The number of ``arenas`` that a few ``blocks`` pin, and the bytes of these blocks (``held``).

    ``all_arenas``: the number of all arenas.
    """

    ids = ("pymalloc-arenas",)
    arenas: int
    blocks: int
    held: int
    all_arenas: int = field(metadata=UNLISTED)


def find(evidence: Evidence) -> list[Claim]:
    """Return a finding about the free bytes in resident pages of arenas that are at most half in use.

    Only pool headers are read.
    """
    python = evidence.heap.find_allocator(PymallocAllocator)
    if python is None or evidence.heap.target.pages is None:
        return []
    totals = python.pins(evidence.kept, evidence.heap.target.machine.page, 0).totals
    free = free_of(totals)
    if not evidence.worth(free):
        return []
    figures = PymallocArenas(totals.groups, totals.blocks, totals.bytes, len(python.pymalloc.arenas))
    finding = Finding("pymalloc-arenas", free, figures, evidence.line("pins", "--allocator=pymalloc"))
    return [Claim(finding, python.ranges)]
