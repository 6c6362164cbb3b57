"""An allocator other than glibc's whose memory gdbheap cannot read."""

from __future__ import annotations

from gdbheap.answers.accounting.partition import OF_ALLOCATOR, other_allocator
from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import Evidence, Figures, Finding, FindingClaim
from gdbheap.findings.runtimes.rule import allocator_ranges


@dataclass(frozen=True)
class OtherMalloc(Figures):
    """The allocator's ``kind`` (``OtherAllocator.id``), ``name`` and ledger line (``title``).

    ``advice``: how to make the allocator report its figures, "" if unknown.
    """

    ids = ("other-allocator",)
    kind: str
    name: str
    title: str
    advice: str = ""


def find(evidence: Evidence) -> list[FindingClaim]:
    """Return a list with a finding about all memory of the other allocator, with advice on how to make it report its
    figures. The list is empty if there is no such allocator.
    """
    other = other_allocator(evidence.heap)
    if other is None or OF_ALLOCATOR not in evidence.sums:
        return []
    figures = OtherMalloc(other.id, other.kind.name, other.title, other.kind.advice)
    finding = Finding("other-allocator", evidence.resident(OF_ALLOCATOR), figures)
    return [FindingClaim(finding, lambda: allocator_ranges(evidence.heap), bool(other.kind.advice))]
