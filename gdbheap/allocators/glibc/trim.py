"""Which memory ``malloc_trim()`` can reach at all: what the kernel takes back, and the top at the break."""

from __future__ import annotations

from gdbheap.allocators.glibc.arenas import Glibc
from gdbheap.target.mappings import BREAK
from gdbheap.target.ranges import PAGE_SIZE
from gdbheap.target.target import Target


def given_tops(target: Target, glibc: Glibc) -> list[int]:
    """Where the regions start whose top chunk malloc_trim(0) gives back: the main arena's if its end can move."""
    unit = glibc.par.thp_pagesize or PAGE_SIZE
    tops = [stretch for stretch in glibc.stretches if stretch.arena == 0 and stretch.top]
    return [top.start for top in tops if unit == PAGE_SIZE and ends_at_break(target, glibc, top.end)]


def ends_at_break(target: Target, glibc: Glibc, end: int) -> bool:
    """Whether the break is at ``end``: there ends the last mapping that the kernel calls the heap (there are several
    where a part was advised to be huge). A core has no names: there the mappings from the first break on lead to it,
    unless ``sbrk`` has failed once, after which ``sbrk_base`` may be a mapping of mmap's."""
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
