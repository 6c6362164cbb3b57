"""Objects on the interpreter's free lists: blocks in use without a live object."""

from __future__ import annotations

from dataclasses import field

from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import SAMPLE_CAUTION, UNLISTED, Evidence, Figures, Finding

# A frame that its code object keeps for reuse (up to 3.9) is on no free list.
KEPT_BY_CODE = "frame"
# The largest difference between the size of a block for Python 2's numbers and the size that was asked for.
MAX_ROUNDED = 48


@dataclass(frozen=True)
class FreeLists(Figures):
    """Objects on free lists. ``objects``: their number. ``size``: their bytes.

    ``type``: the type with the most bytes. ``most`` and ``most_bytes``: the number and the bytes of its objects.
    ``slabs``: in Python 2, the number of malloc blocks that the interpreter fills with numbers and that contain no live
    number. ``slab_bytes``: their bytes."""

    ids = ("free-lists",)
    objects: int
    most: int
    most_bytes: int = field(metadata=UNLISTED)
    type: str
    size: int = field(metadata=UNLISTED)
    slabs: int = 0
    slab_bytes: int = field(default=0, metadata=UNLISTED)


def find(evidence: Evidence) -> list[Finding]:
    """Return a list with a finding about all objects on free lists. In Python 2, blocks for numbers that contain no
    live number count too.

    The objects are counted only if a sample of blocks, or the number of blocks for numbers, makes a finding likely. The
    list is empty if the finding's bytes are unknown or too few."""
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
    """Return an upper bound for the bytes of the blocks in which Python 2 keeps numbers: all used blocks of about their
    size. The bound is 0 in Python 3."""
    slab = evidence.objects.layout.slab if evidence.objects is not None else None
    if slab is None:
        return 0
    used = (row for allocator in evidence.heap.allocators for row in allocator.used_sizes())
    return sum(size * count for size, count in used if slab.block <= size <= slab.block + MAX_ROUNDED)


def _is_cleared(name: str) -> bool:
    """Return whether gc.collect() clears the free list on which idle objects of this type are kept.

    Free lists of library types, and frames that code objects keep, are not cleared."""
    return "." not in name and name != KEPT_BY_CODE
