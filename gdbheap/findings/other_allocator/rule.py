"""Another allocator than glibc's: nothing more is known of its memory here."""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap.answers.accounting.partition import OF_ALLOCATOR, other_allocator
from gdbheap.findings.finding import Claim, Evidence, Figures, Finding
from gdbheap.findings.runtimes.rule import allocator_ranges


@dataclass(frozen=True)
class OtherMalloc(Figures):
    """The allocator's ``kind`` (``OtherAllocator.id``) and ``name``, its line in the ledger (``title``), and how to
    ask it (``advice``, "" where that is not known)."""

    ids = ("other-allocator",)
    kind: str
    name: str
    title: str
    advice: str = ""


def find(evidence: Evidence) -> list[Claim]:
    """All of its memory, and how to ask it about itself."""
    other = other_allocator(evidence.heap)
    if other is None or OF_ALLOCATOR not in evidence.sums:
        return []
    figures = OtherMalloc(other.id, other.kind.name, other.title, other.kind.advice)
    finding = Finding("other-allocator", evidence.resident(OF_ALLOCATOR), figures)
    return [Claim(finding, lambda: allocator_ranges(evidence.heap), bool(other.kind.advice))]
