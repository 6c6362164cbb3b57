"""The heap of one process in one row: used bytes, free bytes and reclaimable bytes."""

from __future__ import annotations

from collections.abc import Sequence

from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import Finding
from gdbheap.first_page.ledger import judged
from gdbheap.first_page.summary import Summary, summary
from gdbheap.heap import Heap

__all__ = ["HeapUse", "Largest", "heap_use", "use_of"]


@dataclass(frozen=True)
class Largest:
    """The largest finding of a process: its id, and the bytes that following its advice would free."""

    id: str
    bytes: int


@dataclass(frozen=True)
class HeapUse:
    """Resident bytes of a process's heap.

    ``finding``: the largest finding; among equally large ones, a finding that is not doubtful.
    """

    in_use: int
    free: int
    reclaimable: int | None
    kept: int
    finding: Largest | None


def heap_use(heap: Heap) -> HeapUse | None:
    """Return the figures of a heap; None if the resident bytes are unknown. Raises Unsupported."""
    evidence, found = judged(heap)
    return use_of(summary(heap, evidence), found)


def use_of(told: Summary, found: Sequence[Finding]) -> HeapUse | None:
    """Return the figures of a heap; None if the resident bytes are unknown. ``told``: the heap's summary. ``found``:
    its findings.
    """
    if told.used_resident is None or told.free_resident is None:
        return None
    most = max(found, key=lambda finding: (finding.bytes, not finding.doubtful), default=None)
    largest = None if most is None else Largest(most.id, most.bytes)
    free, trim = told.free_resident, told.returnable
    return HeapUse(told.used_resident, free, trim, max(0, free - (trim or 0)), largest)
