"""Dirty and muzzy extents of jemalloc: free pages that jemalloc has not returned yet."""

from __future__ import annotations

from gdbheap.allocators.allocator import Purpose
from gdbheap.allocators.jemalloc.allocator import JemallocLibraries
from gdbheap.dataclass import dataclass
from gdbheap.findings.allocator_copies import largest_first
from gdbheap.findings.finding import Evidence, Figures, Finding, FindingClaim
from gdbheap.targets.ranges import joined

# Servers with a command for jemalloc (MEMORY PURGE).
SERVERS = ("redis", "valkey")


@dataclass(frozen=True)
class JemallocUnused(Figures):
    """The number of ``stretches`` of memory without a block in use, and their address space (``virtual``).

    ``muzzy``: the resident bytes that the kernel takes by itself when memory is short. ``owners``: the modules whose
    jemalloc has this memory, the module with the most memory first; ``several``: whether the process has more than one
    jemalloc. ``variable``: the environment variable from which the first module's jemalloc reads its settings, None if
    unknown. ``server``: "redis", "valkey", or "" for any other program.
    """

    ids = ("jemalloc-unused",)
    stretches: int
    virtual: int
    muzzy: int
    owners: list[str]
    several: bool
    variable: str | None
    server: str = ""


def find(evidence: Evidence) -> list[FindingClaim]:
    """Return a list with a finding about the resident bytes of dirty and muzzy extents, which jemalloc has not returned
    yet. The list is empty if the finding's bytes are unknown or too few.
    """
    found, pages = evidence.heap.find_allocator(JemallocLibraries), evidence.heap.target.pages
    if found is None or pages is None:
        return []
    dirty, muzzy = ([(pair, pages.count(*pair).resident) for pair in pairs] for pairs in found.store.unused())
    there = joined(sorted(pair for pair, resident in [*dirty, *muzzy] if resident))
    of_muzzy = sum(resident for _pair, resident in muzzy)
    size = of_muzzy + sum(resident for _pair, resident in dirty)
    if not evidence.worth(size):
        return []
    owners = largest_first(found, [*dirty, *muzzy])
    virtual, variable = sum(end - start for start, end in there), found.variable(owners[0])
    server, several = evidence.server(*SERVERS), len(found.roots) > 1
    figures = JemallocUnused(len(there), virtual, of_muzzy, owners, several, variable, server)
    remedy = found.remedy(Purpose.UNUSED, owners[0])
    return [FindingClaim(Finding("jemalloc-unused", size, figures, environment=remedy), lambda: there)]
