"""Memory of runtimes and servers that are recognised but not walked: its size, and commands that report about it."""

from __future__ import annotations

from collections.abc import Callable

from gdbheap.allocators.allocator import State
from gdbheap.allocators.registry import MALLOC
from gdbheap.allocators.runtimes import ALLOCATOR, ANONYMOUS, MMAPPED, SHARED, Runtime
from gdbheap.answers.accounting.partition import OF_ALLOCATOR, OF_RUNTIME, main_runtime, other_allocator
from gdbheap.answers.accounting.partition import SHARED as SHARED_MEMORY
from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import Evidence, Figures, Finding, FindingClaim
from gdbheap.heap import Heap
from gdbheap.targets.ranges import Ranges, subtract


@dataclass(frozen=True)
class RuntimeMemory(Figures):
    """A runtime: its ``kind`` (its id in the table), its file (``path``), and the ``evidence`` that identifies it.

    ``named``: whether its mappings have names of their own in the kernel. ``allocator``: the allocator that it uses,
    None for malloc.
    """

    ids = ("runtime-*",)
    kind: str
    path: str
    evidence: str
    named: bool
    allocator: str | None


def find(evidence: Evidence) -> list[FindingClaim]:
    """Return a list with a finding for each runtime whose memory is large enough; empty if there is none, or if
    residency is unknown."""
    heap = evidence.heap
    if heap.target.pages is None or heap.target.refusal is not None:
        return []
    found = []
    for runtime in heap.runtimes:
        size, memory = _memory(evidence, runtime)
        if evidence.worth(size):
            found.append(FindingClaim(_finding(heap, runtime, size), memory))
    return found


def _finding(heap: Heap, runtime: Runtime, size: int) -> Finding:
    kind, other = runtime.kind, other_allocator(heap)
    figures = RuntimeMemory(kind.id, runtime.path, runtime.evidence, runtime.named, other.kind.name if other else None)
    return Finding(f"runtime-{kind.id}", size, figures, runtime.commands(heap.target), kind.environment)


def _memory(evidence: Evidence, runtime: Runtime) -> tuple[int, Callable[[], Ranges]]:
    """Return the resident bytes of a runtime's memory, and a function that returns its ranges."""
    heap, kind = evidence.heap, runtime.kind.memory
    if kind == ANONYMOUS or runtime.named:
        size = evidence.resident(OF_RUNTIME) if runtime == main_runtime(heap) else 0
        return size, lambda: _unowned(heap, runtime)
    if kind == SHARED:
        shared = [(mapping.start, mapping.end) for mapping in heap.target.mappings if heap.is_shared_memory(mapping)]
        return evidence.resident(SHARED_MEMORY), lambda: shared
    if kind == MMAPPED:
        # Free memory in malloc has its own findings.
        used = [owner for owner in evidence.of(State.USED) if owner.startswith(f"{MALLOC.name}.")]
        return sum(map(evidence.resident, used)), list
    if kind == ALLOCATOR:
        return evidence.resident(OF_ALLOCATOR), lambda: allocator_ranges(heap)
    held = [pair for each in heap.held if runtime.kind.has_file(each.path) for pair in each.ranges]
    return evidence.resident_of(held), lambda: held


def _unowned(heap: Heap, runtime: Runtime) -> Ranges:
    found = [(mapping.start, mapping.end) for mapping in heap.target.mappings if runtime.owns(mapping)]
    return subtract(found, _owned(heap))


def allocator_ranges(heap: Heap) -> Ranges:
    """Return the ranges of an allocator other than glibc's, without memory that belongs to other owners."""
    other = other_allocator(heap)
    found = [(mapping.start, mapping.end) for mapping in heap.target.mappings if other and other.owns(mapping)]
    return subtract(found, _owned(heap))


def _owned(heap: Heap) -> Ranges:
    """Return the ranges of walked allocators, stacks and loaded objects."""
    return sorted(heap.owned_ranges() + heap.single_blocks())
