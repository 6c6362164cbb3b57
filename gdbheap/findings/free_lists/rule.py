"""Objects on the interpreter's free lists: handed out by the allocator, and not alive."""

from __future__ import annotations

from dataclasses import dataclass, field

from gdbheap.findings.finding import SAMPLE_CAUTION, UNLISTED, Evidence, Figures, Finding

# A frame that its code keeps (up to 3.9) is on no list.
KEPT_BY_CODE = "frame"
# What allocators have of a block beyond what was asked for, of blocks of that size.
MAX_ROUNDED = 48


@dataclass(frozen=True)
class FreeLists(Figures):
    """``objects`` in all, and their bytes (``size``); of the ``type`` that has the most bytes, how many (``most``) and
    their bytes. ``slabs``: of Python 2, how many blocks of malloc it keeps for numbers of which none is alive, and
    their bytes."""

    ids = ("free-lists",)
    objects: int
    most: int
    most_bytes: int = field(metadata=UNLISTED)
    type: str
    size: int = field(metadata=UNLISTED)
    slabs: int = 0
    slab_bytes: int = field(default=0, metadata=UNLISTED)


def find(evidence: Evidence) -> list[Finding]:
    """All objects on free lists, and blocks of free numbers, counted where a sample of the blocks, or how many blocks
    of that size there are, says that they may be worth it."""
    idle = SAMPLE_CAUTION * sum(row.idle_bytes for row in evidence.estimates if _is_cleared(row.type))
    if not evidence.worth(idle + _most_of_slabs(evidence)):
        return []
    objects, census = evidence.heap.python.objects, evidence.heap.python.census
    found: dict[str, tuple[int, int]] = {}
    for row in census.rows:
        name = objects.names.name(row.address)
        if row.idle.count and _is_cleared(name) and not objects.in_slabs(name):
            found[name] = (row.idle.count, row.idle.bytes)
    count, size = (sum(values) for values in zip(*found.values())) if found else (0, 0)
    slabs = census.idle_slabs
    if not evidence.worth(size + slabs.bytes):
        return []
    most = max(found, key=lambda name: found[name][1], default="")
    figures = FreeLists(count, *found.get(most, (0, 0)), most, size, slabs.count, slabs.bytes)
    return [Finding("free-lists", size + slabs.bytes, figures)]


def _most_of_slabs(evidence: Evidence) -> int:
    """Return the bytes of the used blocks that have the size of those in which Python 2 keeps numbers."""
    slab = evidence.objects.layout.slab if evidence.objects is not None else None
    if slab is None:
        return 0
    used = (row for allocator in evidence.heap.allocators for row in allocator.used_sizes())
    return sum(size * count for size, count in used if slab.block <= size <= slab.block + MAX_ROUNDED)


def _is_cleared(name: str) -> bool:
    """Free lists of the interpreter's own types, not those of libraries."""
    return "." not in name and name != KEPT_BY_CODE
