"""Predict which pages ``malloc_trim()`` would return to the kernel by glibc's own rule, and how many of them are
resident.

In each arena, fast bins are merged with their free neighbours. Then the whole pages inside each chunk of the bins are
released, except for the chunk's header. The main arena's top chunk beyond the pad is released too, unless other code
has moved the break since. The top chunks of other arenas stay, and so do thread caches (glibc malloc/malloc.c,
``mtrim``, ``systrim``; unchanged since 2.17). Pages that ``mlock`` locked stay, except at the break.
"""

from __future__ import annotations

from typing import ClassVar

from gdbheap import _native
from gdbheap.allocators.glibc.arenas import SMALLEST_CHUNK, Glibc
from gdbheap.dataclass import dataclass
from gdbheap.host.procfs import BREAK
from gdbheap.targets.target import Target


@dataclass(frozen=True)
class ArenaTrim:
    """The memory of one arena that ``malloc_trim`` returns to the kernel, in bytes.

    ``predicted``, ``swapped``, ``top_predicted`` and ``top_kept`` are None if residency is unknown. ``actual``: the
    bytes that a call has returned, None without a call."""

    index: int
    address: int
    chunks: int
    pages: int
    predicted: int | None
    swapped: int | None
    top_predicted: int | None
    top_kept: int | None
    actual: int | None = None


@dataclass(frozen=True)
class Trim:
    """The result of ``heap trim``, in bytes.

    ``predicted``: what malloc_trim() should return to the kernel; None if residency is unknown. ``actual``: what a call
    has returned; None without a call."""

    sums: ClassVar[tuple[str, ...]] = ("pages", "swapped")
    predicted: int | None
    actual: int | None
    rows: list[ArenaTrim]
    pad: int
    pages: int
    swapped: int | None
    rss_before: int | None = None
    rss_after: int | None = None
    has_released: bool | None = None


def predict(target: Target, glibc: Glibc, chunks: _native.Chunks, pad: int = 0) -> Trim:
    """Predict the memory that a call of ``malloc_trim(pad)`` would return to the kernel."""
    rows = _native.trim_chunks(target.machine, chunks, target.pages, target.kept)
    arenas = [
        _arena(target, glibc, index, [row for row in rows if row.arena == index], pad)
        for index in range(len(glibc.arenas))
    ]
    known = target.pages is not None
    predicted = sum(arena.predicted or 0 for arena in arenas) if known else None
    swapped = sum(arena.swapped or 0 for arena in arenas) if known else None
    return Trim(predicted, None, arenas, pad, sum(arena.pages for arena in arenas), swapped)


def _arena(target: Target, glibc: Glibc, index: int, rows: list[_native.RegionTrim], pad: int) -> ArenaTrim:
    released = [row.released for row in rows]
    whole = sum(part.whole for part in released)
    resident, swapped = sum(part.resident for part in released), sum(part.swapped for part in released)
    chunks = sum(row.chunks for row in rows)
    tops = [(row.top, row.end) for row in rows if row.top]
    given = _given_at_break(target, glibc, tops[0], pad) if index == 0 and tops else None
    address = glibc.arenas[index].address
    whole += given[1] - given[0] if given else 0
    if target.pages is None:
        return ArenaTrim(index, address, chunks, whole, None, None, None, None)
    of_top = target.pages.count(*given) if given else target.pages.count(0, 0)
    in_tops = sum(target.pages.count(target.machine.page_up(start), end).resident for start, end in tops)
    resident, swapped, kept = resident + of_top.resident, swapped + of_top.swapped, in_tops - of_top.resident
    return ArenaTrim(index, address, chunks, whole, resident, swapped, of_top.resident, kept)


def _given_at_break(target: Target, glibc: Glibc, top: tuple[int, int], pad: int) -> tuple[int, int] | None:
    """Return the range at the end of the main arena's top chunk that moving the break would release; None if there is
    none."""
    start, end = top
    beyond = end - start - SMALLEST_CHUNK - 1
    unit = glibc.par.thp_pagesize or target.machine.page
    extra = (beyond - pad) // unit * unit if beyond > pad else 0
    return (end - extra, end) if extra and _ends_at_break(target, glibc, end) else None


def given_tops(target: Target, glibc: Glibc) -> list[int]:
    """Return the start of each stretch whose top chunk malloc_trim(0) shortens. Only the main arena's last stretch can
    be in the list, and only if the break is at the end of that stretch. The list is empty if malloc uses transparent
    huge pages.
    """
    unit = glibc.par.thp_pagesize or target.machine.page
    tops = [stretch for stretch in glibc.stretches if stretch.arena == 0 and stretch.top]
    return [top.start for top in tops if unit == target.machine.page and _ends_at_break(target, glibc, top.end)]


def _ends_at_break(target: Target, glibc: Glibc, end: int) -> bool:
    """Return whether the break is at ``end``.

    The break is the end of the last mapping that the kernel calls the heap. Several mappings have that name if the
    program advised huge pages for a part of the heap. A core has no names of mappings: the break is then the end of the
    adjacent mappings that begin at the first break. If ``sbrk`` has failed once, ``sbrk_base`` may lie in a mapping of
    mmap, and the answer is False."""
    named = [mapping for mapping in target.mappings if mapping.path == BREAK]
    if named:
        return named[-1].end == end
    if glibc.main.noncontiguous:
        return False
    at = glibc.par.sbrk_base
    found = target.mappings.find(at)
    while found is not None and found.anonymous and found.private and found.writable:
        at = found.end
        found = target.mappings.find(at)
    return at == end
