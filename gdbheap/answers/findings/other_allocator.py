"""Another allocator than glibc's: of its memory no more is known here."""

from __future__ import annotations

from gdbheap.answers.findings.finding import Claim, Evidence, Finding
from gdbheap.answers.findings.runtimes import allocator_ranges
from gdbheap.answers.partition import other_allocator


def find(evidence: Evidence) -> list[Claim]:
    """All of its memory, and how to ask it about itself."""
    other = other_allocator(evidence.heap)
    if other is None or "other.allocator" not in evidence.sums:
        return []
    text = f"{other.title}: how much of it {other.kind.name} holds free is not known here"
    unknown = f"there is no advice: nothing here knows how to ask {other.kind.name} how much of it is free"
    finding = Finding("other-allocator", evidence.resident("other.allocator"), text, other.kind.advice or unknown)
    return [Claim(finding, lambda: allocator_ranges(evidence.heap), other.kind.advice)]
