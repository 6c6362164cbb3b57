"""How much of its memory does a process use, how much is free, and why does that stay?

Everything is summed from the owners of ``partition``, by the second part of their ids: ``X.used`` and ``X.mmapped`` are
blocks in use, ``X.free`` and ``X.top`` are free, whichever allocator X is.
"""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap.answers.findings import Evidence
from gdbheap.answers.partition import Sum, Sums, main_runtime, other_allocator, total
from gdbheap.heap import Heap

USED, FREE = ("used", "mmapped"), ("free", "top")
# Address space that no block was ever in.
RESERVE = ".reserve"
GLIBC = "glibc"
FRAGMENTS, CACHED, LOCKED, TOPS = "glibc.fragments", "glibc.tcache", "glibc.locked", "glibc.top"


@dataclass(frozen=True)
class Kept:
    """Free resident bytes that stay, by why: ``glibc.fragments`` (free chunks on pages that chunks in use share),
    ``glibc.tcache`` (in threads' caches), ``glibc.locked`` (whole pages that ``mlock`` keeps), ``glibc.top`` (tops that
    malloc_trim(0) leaves), or the allocator's ``X.free``."""

    id: str
    bytes: int


@dataclass(frozen=True)
class Unknown:
    """Resident bytes of an allocator or runtime that is not walked, and whatever else may be its memory; ``id``: of the
    ledger's line, ``name`` the allocator's or the runtime's. ``bytes`` is None where residency is not known."""

    id: str
    name: str
    bytes: int | None


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
        _unknown(heap, sums, known),
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
    locked = min(rest - cached, whole) if evidence.kept else 0
    return [Kept(FRAGMENTS, rest - cached - locked), Kept(CACHED, cached), Kept(LOCKED, locked), Kept(TOPS, tops)]


def _unknown(heap: Heap, sums: Sums, known: bool) -> Unknown | None:
    other, runtime = other_allocator(heap), main_runtime(heap)
    if other is not None:
        id, name, owner = other.id, other.kind.name, "other.allocator"
    elif runtime is not None:
        id, name, owner = runtime.kind.id, runtime.kind.name, "other.runtime"
    else:
        return None
    return Unknown(f"other.{id}", name, total(sums, owner).resident if known else None)
