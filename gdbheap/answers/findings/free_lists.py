"""Objects on the interpreter's free lists: handed out by the allocator, and not alive."""

from __future__ import annotations

from gdbheap.answers.findings.finding import Evidence, Finding
from gdbheap.words import counted, size_text

# What an estimate may be too low by.
CAUTION = 2
# A frame that its code keeps (up to 3.9) is on no list.
KEPT_BY_CODE = "frame"


def find(evidence: Evidence) -> list[Finding]:
    """All objects on free lists, counted where a sample of the blocks says that they may be worth it."""
    if not evidence.worth(CAUTION * sum(row.idle_bytes for row in evidence.estimates if _is_cleared(row.type))):
        return []
    objects = evidence.heap.objects
    found: dict[str, tuple[int, int]] = {}
    for row in evidence.heap.census().rows:
        name = objects.names.name(row.address)
        if row.idle.count and _is_cleared(name) and not objects.in_slabs(name):
            found[name] = (row.idle.count, row.idle.bytes)
    count, size = (sum(values) for values in zip(*found.values())) if found else (0, 0)
    if not evidence.worth(size):
        return []
    most = max(found, key=lambda name: found[name][1])
    text = (
        f"{counted(count, 'object')} on the interpreter's free lists are kept for reuse, the most of type {most} "
        f"({found[most][0]:,}, {size_text(found[most][1])})"
    )
    return [Finding("free-lists", size, text, ADVICE, {"objects": count, "most": found[most][0]})]


ADVICE = (
    "call gc.collect() after the load that left them: a collection of the oldest generation, and no other, clears the "
    "free lists ('heap pools' says in which sizes blocks come free; an arena goes back only as a whole)"
)


def _is_cleared(name: str) -> bool:
    """Free lists of the interpreter's own types, not those of libraries."""
    return "." not in name and name != KEPT_BY_CODE
