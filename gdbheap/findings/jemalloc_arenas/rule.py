"""Arenas of jemalloc, each with its own partly filled slabs. Fewer arenas would need fewer slabs."""

from __future__ import annotations

from gdbheap.allocators.allocator import Purpose
from gdbheap.allocators.jemalloc.allocator import JemallocLibraries
from gdbheap.dataclass import dataclass
from gdbheap.findings.allocator_copies import largest_first
from gdbheap.findings.finding import Evidence, Figures, Finding, FindingClaim
from gdbheap.targets.ranges import subtract


@dataclass(frozen=True)
class JemallocArenas(Figures):
    """Arenas of jemalloc. ``arenas``: their number. ``slabs``: the number of their slabs.

    ``wanted``: the number of arenas that the advice proposes. ``fewer``: how many fewer slabs they would need.
    ``setting``: the setting that limits the number of arenas. ``owner``: the module whose jemalloc has most of the
    memory, "" if there is only one jemalloc."""

    ids = ("jemalloc-arenas",)
    arenas: int
    slabs: int
    fewer: int
    wanted: int
    setting: str
    owner: str


def find(evidence: Evidence) -> list[FindingClaim]:
    """Return a list with a finding about the bytes that fewer arenas would save.

    The savings of packing blocks within today's arenas do not count. The list is empty if the finding's bytes are
    unknown or too few.
    """
    found, pages = evidence.heap.find_allocator(JemallocLibraries), evidence.heap.target.pages
    if found is None or pages is None:
        return []
    arenas = {(row.root, row.arena) for row in found.store.class_use() if row.slabs}
    apart, wanted = found.packing(), found.fewer_arenas
    together = found.packing_of(wanted)
    size = sum(row.freed for row in together.sizes) - sum(row.freed for row in apart.sizes)
    if len(arenas) <= wanted or not evidence.worth(size):
        return []
    memory = subtract(together.going, apart.going)
    owners = largest_first(found, ((pair, pair[1] - pair[0]) for pair in memory))
    remedy = found.remedy(Purpose.ARENAS, owners[0] if owners else None)
    setting = " ".join(f"{name}={value}" for name, value in remedy.items())
    fewer = sum(row.spare for row in together.sizes) - sum(row.spare for row in apart.sizes)
    slabs = sum(row.slabs for row in together.sizes)
    owner = owners[0] if owners and len(found.roots) > 1 else ""
    figures = JemallocArenas(len(arenas), slabs, fewer, wanted, setting, owner)
    line = evidence.line("arenas")
    return [FindingClaim(Finding("jemalloc-arenas", size, figures, line, remedy), lambda: memory)]
