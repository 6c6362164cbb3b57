"""Sum the memory that a process uses, its free memory, and the reasons why the free memory is not returned.

All figures are sums over the owners of ``partition``, by the states of the allocators' lines.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from gdbheap.allocators.allocator import Allocator, KeepReason, State
from gdbheap.allocators.line_ids import LineId, line_below
from gdbheap.allocators.registry import MALLOC
from gdbheap.allocators.runtimes import ALLOCATOR, MMAPPED, SHARED, Runtime
from gdbheap.answers.accounting.partition import (
    OF_ALLOCATOR,
    OF_RUNTIME,
    OTHER,
    REST,
    Sum,
    Sums,
    main_runtime,
    other_allocator,
    total,
)
from gdbheap.answers.accounting.partition import SHARED as SHARED_MEMORY
from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import Evidence
from gdbheap.heap import Heap
from gdbheap.targets.ranges import intersect, joined, within

USED, FREE = (State.USED,), (State.FREE, State.TOP)
# The ledger lines that count memory of runtimes together with other memory.
PLACES = {MMAPPED: line_below(MALLOC.name, "mmapped"), SHARED: SHARED_MEMORY}
# Memory that is not walked is ignored if it has at most this percentage of the resident memory.
MAX_PERCENT_IGNORED = 5


@dataclass(frozen=True)
class NotWalked:
    """Resident memory that gdbheap does not walk, without pages freed with MADV_FREE.

    ``id``: the ledger line of this memory. ``name``: the allocator or runtime that may own it, "" if none is known.
    ``own``: whether all of it certainly belongs to that owner, because the owner names its mappings."""

    keys: ClassVar[dict[str, str]] = {"own": "is_certain"}
    id: str
    name: str
    bytes: int | None
    own: bool = False


@dataclass(frozen=True)
class Summary:
    """The memory in use and the free memory of all allocators, in bytes."""

    keys: ClassVar[dict[str, str]] = {"kept": "stays", "unknown": "not_walked"}
    used: int
    used_resident: int | None
    free: int
    free_resident: int | None
    returnable: int | None
    kept: list[KeepReason]
    allocators: list[str]
    unknown: NotWalked | None
    whole: int | None = None
    outside: int = 0
    stacks_left: int = 0


def summary(heap: Heap, evidence: Evidence) -> Summary:
    """Return the memory in use and the free memory of all allocators, and the reasons why free memory is not
    returned."""
    known = heap.target.pages is not None
    used, free = _part(evidence, USED), _part(evidence, FREE)
    held = [allocator for allocator in heap.allocators if _part(evidence, USED + FREE, allocator.name).virtual]
    kept = [row for allocator in held for row in _kept(evidence, allocator)] if known else []
    given = [size for size in (allocator.returnable() for allocator in held) if size is not None]
    return Summary(
        used.virtual,
        used.resident if known else None,
        free.virtual,
        free.resident if known else None,
        sum(given) if given else None,
        sorted((row for row in kept if row.bytes > 0), key=lambda row: -row.bytes),
        [allocator.name for allocator in held],
        _unknown(evidence),
        free.whole if known else None,
    )


def with_mapped(found: Summary, evidence: Evidence) -> Summary:
    """Return the summary, in which anonymous memory that objects in the heap mapped counts as in use."""
    pages, unknown = evidence.heap.target.pages, found.unknown
    if pages is None or unknown is None or unknown.id != REST or unknown.bytes is None:
        return found
    owned = joined(sorted((one.address, one.end) for one in evidence.heap.mapped if not one.shared))
    parts = intersect(evidence.other_ranges.get(REST, []), owned)
    size = min(unknown.bytes, sum(pages.count(start, end).resident for start, end in parts))
    return replace(found, outside=found.outside + size, unknown=replace(unknown, bytes=unknown.bytes - size))


def _part(evidence: Evidence, states: tuple[State, ...], allocator: str = "") -> Sum:
    """Return the sum over all ledger lines in these states. ``allocator``: the name of the allocator to count, "" to
    count all allocators."""
    owners = [owner for owner in evidence.of(*states) if not allocator or owner.startswith(f"{allocator}.")]
    return sum((evidence.sums.get(owner, Sum()) for owner in owners), Sum())


def _kept(evidence: Evidence, allocator: Allocator) -> list[KeepReason]:
    """Return the reasons why an allocator does not return its free memory to the kernel."""
    free, whole = _part(evidence, FREE, allocator.name), _part(evidence, (State.FREE,), allocator.name)
    # glibc's own figures already leave out what malloc_trim(0) returns.
    returned = sum(reclaimable(allocator, evidence.sums).values()) if allocator.returnable() is None else 0
    return allocator.kept(free.resident - returned, whole.whole - returned)


def reclaimable(allocator: Allocator, sums: Sums) -> dict[LineId, int]:
    """Return the bytes that a call of an allocator's own function would return to the kernel now, for each of its
    ledger lines without children."""
    own = ((line, found) for line, found in sums.items() if line.startswith(f"{allocator.name}."))
    return {line: allocator.reclaimable(line, found.whole) for line, found in own if found.whole}


def _unknown(evidence: Evidence) -> NotWalked | None:
    """Return the resident memory that is not walked; None if there is too little of it to be mentioned.

    If there is an allocator next to glibc's, the result is its memory. Otherwise it is the memory of the runtime that
    certainly has its own mappings. If there is none, it is the largest ledger line that may contain a runtime's memory.
    The line of memory without a known owner is among these lines if a runtime's memory may be there. It is also among
    them if it has more than MAX_PERCENT_IGNORED of the resident memory."""
    heap = evidence.heap
    other, runtime = other_allocator(heap), main_runtime(heap)
    if other is not None:
        return NotWalked(line_below(OTHER, other.id), other.kind.name, _resident(evidence, OF_ALLOCATOR), other.named)
    if runtime is not None:
        bytes = _resident(evidence, OF_RUNTIME)
        return NotWalked(line_below(OTHER, runtime.kind.id), runtime.kind.name, bytes, runtime.named)
    places = list(dict.fromkeys(map(_place, _with_own_memory(heap))))
    places += [REST] if REST not in places and _is_much(evidence, REST) else []
    return max((_of(evidence, place) for place in places), key=lambda one: one.bytes or 0, default=None)


def _with_own_memory(heap: Heap) -> list[Runtime]:
    """Return the runtimes that get at least part of their memory directly from the kernel."""
    return [runtime for runtime in heap.runtimes if runtime.kind.memory != ALLOCATOR]


def _place(runtime: Runtime) -> LineId:
    return PLACES.get(runtime.kind.memory, REST)


def _of(evidence: Evidence, place: LineId) -> NotWalked:
    names = [runtime.kind.name for runtime in _with_own_memory(evidence.heap) if _place(runtime) == place]
    return NotWalked(place, " or ".join(names), _resident(evidence, place))


def _resident(evidence: Evidence, owner: LineId) -> int | None:
    if evidence.heap.target.pages is None:
        return None
    return evidence.resident(owner) - _lazily_freed(evidence, owner)


def _lazily_freed(evidence: Evidence, owner: LineId) -> int:
    """Return an upper limit for the resident bytes of an owner that were freed with MADV_FREE, and so are free."""
    target = evidence.heap.target
    if not target.rss.lazy:
        return 0
    parts = (ranges for name, ranges in evidence.other_ranges.items() if f"{name}.".startswith(f"{owner}."))
    found = joined(sorted(pair for ranges in parts for pair in ranges))
    size = sum(size for start, end, size in target.lazily_freed if within(found, start, end))
    return min(size, target.rss.lazy, evidence.resident(owner))


def _is_much(evidence: Evidence, owner: LineId) -> bool:
    """Return whether an owner has more than MAX_PERCENT_IGNORED of the resident memory; if residency is unknown, of the
    address space.
    """
    part, whole = total(evidence.sums, owner), total(evidence.sums)
    if evidence.heap.target.pages is None:
        return 100 * part.virtual > MAX_PERCENT_IGNORED * whole.virtual
    return 100 * (part.resident - _lazily_freed(evidence, owner)) > MAX_PERCENT_IGNORED * whole.resident
