"""Free pages in tcmalloc's page heap that tcmalloc has not returned yet."""

from __future__ import annotations

from gdbheap.allocators.allocator import Purpose
from gdbheap.allocators.tcmalloc.allocator import TcmallocLibraries
from gdbheap.dataclass import dataclass
from gdbheap.findings.allocator_copies import largest_first
from gdbheap.findings.finding import Evidence, Figures, Finding, FindingClaim
from gdbheap.targets.ranges import joined


@dataclass(frozen=True)
class TcmallocUnused(Figures):
    """Runs of free pages, with at least one resident page in each run.

    ``stretches``: the number of runs. ``virtual``: their address space. ``owners``: the modules whose tcmalloc has
    these pages, the module with the most first; empty if there is only one tcmalloc.
    """

    ids = ("tcmalloc-unused",)
    stretches: int
    virtual: int
    owners: list[str]


def find(evidence: Evidence) -> list[FindingClaim]:
    """Return a list with a finding about the resident bytes of free pages in tcmalloc's page heap. The list is empty if
    the finding's bytes are unknown or too few.
    """
    found, pages = evidence.heap.find_allocator(TcmallocLibraries), evidence.heap.target.pages
    if found is None or pages is None:
        return []
    counted = [(pair, pages.count(*pair).resident) for pair in found.store.unused()]
    there = joined(sorted(pair for pair, resident in counted if resident))
    size = sum(resident for _pair, resident in counted)
    if not evidence.worth(size):
        return []
    owners = largest_first(found, counted)
    several = owners if len(found.roots) > 1 else []
    figures = TcmallocUnused(len(there), sum(end - start for start, end in there), several)
    remedy = found.remedy(Purpose.UNUSED, owners[0])
    return [FindingClaim(Finding("tcmalloc-unused", size, figures, environment=remedy), lambda: there)]
