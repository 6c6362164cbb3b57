"""How much of its memory does a process use, how much is free, and why does that stay?

Everything is summed from the owners of ``partition``, by the second part of their ids: ``X.used`` and ``X.mmapped`` are
blocks in use, ``X.free`` and ``X.top`` are free, whichever allocator X is.
"""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap.allocators.runtimes import MMAPPED, SHARED, Runtime
from gdbheap.answers.findings import Evidence
from gdbheap.answers.partition import Sum, Sums, main_runtime, other_allocator, total
from gdbheap.heap import Heap
from gdbheap.target.mappings import HUGE_PAGES
from gdbheap.target.ranges import Ranges, joined, subtract

USED, FREE = ("used", "mmapped"), ("free", "top")
# Address space that no block was ever in.
RESERVE = ".reserve"
GLIBC = "glibc"
FRAGMENTS, CACHED, LOCKED, HUGE, TOPS = (
    f"{GLIBC}.{name}" for name in ("fragments", "tcache", "locked", "hugetlb", "top")
)
# Where the memory of runtimes lies that is no line of their own in the ledger.
PLACES = {MMAPPED: f"{GLIBC}.mmapped", SHARED: "shared"}
REST = "other.rest"
# Of all that is resident so little other memory says nothing against the rest.
SMALL_SHARE = 20


@dataclass(frozen=True)
class Kept:
    """Free resident bytes that stay, by why: ``glibc.fragments`` (free chunks on pages that chunks in use share),
    ``glibc.tcache`` (in threads' caches), ``glibc.locked`` (whole pages that ``mlock`` keeps), ``glibc.hugetlb`` (whole
    pages of hugetlbfs), ``glibc.top`` (tops that malloc_trim(0) leaves), or the allocator's ``X.free``."""

    id: str
    bytes: int


@dataclass(frozen=True)
class Unknown:
    """Resident bytes that nothing walks: of an allocator or a runtime with whatever else may be its memory, or other
    anonymous memory. ``id``: of the ledger's line; ``name``: of the allocator, the runtime or the runtimes, "" where
    none is known; ``own``: whether the memory is certainly its own. ``bytes`` is None where residency is not known."""

    id: str
    name: str
    bytes: int | None
    own: bool = False


@dataclass(frozen=True)
class Summary:
    """In bytes: ``used`` of blocks in use and ``free`` of free ones and tops, headers included; of both the resident
    part (pieces on a page that something in use shares count as resident), None where residency is not known.

    ``returnable``: what malloc_trim(0) would give back; None without glibc's malloc. ``kept``: the rest of
    ``free_resident``, largest first. ``allocators``: ids of the ledger's lines that this was summed from; ``unknown``
    is what no walk looked into.
    """

    used: int
    used_resident: int | None
    free: int
    free_resident: int | None
    returnable: int | None
    kept: list[Kept]
    allocators: list[str]
    unknown: Unknown | None


def summary(heap: Heap, evidence: Evidence) -> Summary:
    """What the walks over all allocators say together."""
    sums, known = evidence.sums, heap.target.pages is not None
    used, free = _part(sums, USED), _part(sums, FREE)
    names = dict.fromkeys(owner.split(".")[0] for owner in sums if _kind(owner) in USED + FREE)
    held = [name for name in names if _part(sums, USED + FREE, name).virtual]
    kept = [row for name in held for row in _kept(evidence, name)] if known else []
    return Summary(
        used.virtual,
        _there(used) if known else None,
        free.virtual,
        _there(free) if known else None,
        evidence.trim.predicted if evidence.trim and GLIBC in held else None,
        sorted((row for row in kept if row.bytes > 0), key=lambda row: -row.bytes),
        held,
        _unknown(evidence),
    )


def _kind(owner: str) -> str:
    return ".".join(owner.split(".")[1:2])


def _part(sums: Sums, kinds: tuple[str, ...], allocator: str = "") -> Sum:
    """All of the owners of these kinds, of one allocator or of all."""
    found = Sum()
    for owner, values in sums.items():
        of_it = not allocator or owner.startswith(f"{allocator}.")
        if of_it and _kind(owner) in kinds and not owner.endswith(RESERVE):
            found += values
    return found


def _there(part: Sum) -> int:
    """The bytes less those of whole pages that are not resident."""
    return part.virtual - (part.pages - part.resident)


def _kept(evidence: Evidence, allocator: str) -> list[Kept]:
    """Why what is free in an allocator stays."""
    free = _there(_part(evidence.sums, FREE, allocator))
    trim = evidence.trim
    if allocator != GLIBC or trim is None:
        return [Kept(f"{allocator}.free", free)]
    tops = sum(arena.top_kept or 0 for arena in trim.arenas)
    rest = free - (trim.predicted or 0) - tops
    cached = min(rest, sum(sums["tcache"][1] for sums in evidence.heap.glibc.sums()))
    # Whole pages of free chunks are released, unless they are locked.
    whole = total(evidence.sums, f"{GLIBC}.free").resident - sum(
        (arena.predicted or 0) - (arena.top or 0) for arena in trim.arenas
    )
    stays = min(rest - cached, whole) if evidence.kept else 0
    huge = min(stays, evidence.resident_of(_huge_pages(evidence)))
    return [
        Kept(FRAGMENTS, rest - cached - stays),
        Kept(CACHED, cached),
        Kept(LOCKED, stays - huge),
        Kept(HUGE, huge),
        Kept(TOPS, tops),
    ]


def _huge_pages(evidence: Evidence) -> Ranges:
    """glibc's arenas as far as they lie in pages of hugetlbfs."""
    target = evidence.heap.target
    huge = [(mapping.start, mapping.end) for mapping in target.mappings if mapping.path == HUGE_PAGES]
    arenas = joined(sorted((row.start, row.end) for row in evidence.heap.glibc.stretches))
    return subtract(arenas, subtract(arenas, huge)) if huge else []


def _unknown(evidence: Evidence) -> Unknown | None:
    """The largest of what nothing walks, None where it is certain that there is next to nothing."""
    heap = evidence.heap
    other, runtime = other_allocator(heap), main_runtime(heap)
    if other is not None:
        return Unknown(f"other.{other.id}", other.kind.name, _resident(evidence, "other.allocator"), other.named)
    if runtime is not None:
        bytes = _resident(evidence, "other.runtime")
        return Unknown(f"other.{runtime.kind.id}", runtime.kind.name, bytes, runtime.named)
    places = list(dict.fromkeys(_place(runtime) for runtime in heap.runtimes))
    places += [REST] if REST not in places and _is_much(evidence, REST) else []
    return max((_of(evidence, place) for place in places), key=lambda one: one.bytes or 0, default=None)


def _place(runtime: Runtime) -> str:
    return PLACES.get(runtime.kind.memory, REST)


def _of(evidence: Evidence, place: str) -> Unknown:
    names = [runtime.kind.name for runtime in evidence.heap.runtimes if _place(runtime) == place]
    return Unknown(place, " or ".join(names), _resident(evidence, place))


def _resident(evidence: Evidence, owner: str) -> int | None:
    return evidence.resident(owner) if evidence.heap.target.pages is not None else None


def _is_much(evidence: Evidence, owner: str) -> bool:
    """By what is resident; where that is not known, by the address space."""
    part, whole = total(evidence.sums, owner), total(evidence.sums)
    if evidence.heap.target.pages is None:
        return part.virtual * SMALL_SHARE > whole.virtual
    return part.resident * SMALL_SHARE > whole.resident
