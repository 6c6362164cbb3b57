"""Another allocator than glibc's: of its memory no more is known here."""

from __future__ import annotations

from gdbheap.answers.findings.finding import Evidence, Finding
from gdbheap.answers.partition import other_allocator


def find(evidence: Evidence) -> list[Finding]:
    """All of its memory, and how to ask it about itself."""
    other = other_allocator(evidence.heap)
    if other is None or "other.allocator" not in evidence.sums:
        return []
    text = f"{other.title}: what {other.kind.name} holds free in there is not known here"
    return [Finding("other-allocator", evidence.resident("other.allocator"), text, other.kind.advice)]
