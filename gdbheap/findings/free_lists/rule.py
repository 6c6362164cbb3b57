"""Objects on the interpreter's free lists: handed out by the allocator, and not alive."""

from __future__ import annotations

from dataclasses import dataclass, field

from gdbheap.findings.finding import SAMPLE_CAUTION, UNLISTED, Evidence, Figures, Finding

# A frame that its code keeps (up to 3.9) is on no list.
KEPT_BY_CODE = "frame"


@dataclass(frozen=True)
class FreeLists(Figures):
    """``objects`` in all; of the ``type`` that has the most bytes, how many (``most``) and their bytes."""

    ids = ("free-lists",)
    objects: int
    most: int
    type: str
    most_bytes: int = field(metadata=UNLISTED)


def find(evidence: Evidence) -> list[Finding]:
    """All objects on free lists, counted where a sample of the blocks says that they may be worth it."""
    if not evidence.worth(SAMPLE_CAUTION * sum(row.idle_bytes for row in evidence.estimates if _is_cleared(row.type))):
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
    return [Finding("free-lists", size, FreeLists(count, found[most][0], most, found[most][1]))]


def _is_cleared(name: str) -> bool:
    """Free lists of the interpreter's own types, not those of libraries."""
    return "." not in name and name != KEPT_BY_CODE
