"""Pages and slices of mimalloc without a block in use."""

from __future__ import annotations

from gdbheap.allocators.allocator import Purpose
from gdbheap.allocators.mimalloc.library import MimallocLibraries
from gdbheap.dataclass import dataclass
from gdbheap.findings.allocator_copies import largest_first
from gdbheap.findings.finding import Evidence, Figures, Finding, FindingClaim

# The layouts of releases before 2.1.7. Their mi_collect() returned only 57 to 95 % of the empty memory, and nothing if
# they were built with MI_SECURE.
EARLY = ("2.0.9", "2.1.0")


@dataclass(frozen=True)
class MimallocEmpty(Figures):
    """The number of ``stretches`` of memory without a block in use, and their address space (``virtual``).

    ``all_goes``: whether mi_collect() returns all of this memory, as it does since mimalloc 2.1.7. ``owners``: the
    modules whose mimalloc has this memory, the module with the most first; empty if there is only one mimalloc.
    ``setting``: the setting with which mimalloc returns unused memory at once.
    """

    ids = ("mimalloc-empty",)
    stretches: int
    virtual: int
    all_goes: bool
    owners: list[str]
    setting: str


def find(evidence: Evidence) -> list[FindingClaim]:
    """Return a list with a finding about the resident bytes of mimalloc's pages and slices without a block in use. The
    list is empty if the finding's bytes are unknown or too few.
    """
    found, pages = evidence.heap.find_allocator(MimallocLibraries), evidence.heap.target.pages
    if found is None or pages is None:
        return []
    empty = [(start, end, pages.count(start, end).resident) for start, end in found.empty()]
    there = [(start, end) for start, end, resident in empty if resident]
    size = sum(resident for *_pair, resident in empty)
    if not evidence.worth(size):
        return []
    all_goes = not any(root.form.name.startswith(EARLY) for root in found.roots)
    owners = largest_first(found, (((start, end), resident) for start, end, resident in empty))
    remedy = found.remedy(Purpose.UNUSED, owners[0] if owners else None)
    several = owners if len(found.roots) > 1 else []
    virtual = sum(end - start for start, end in there)
    figures = MimallocEmpty(len(there), virtual, all_goes, several, next(iter(remedy)))
    finding = Finding("mimalloc-empty", size, figures, environment=remedy, doubtful=not all_goes)
    return [FindingClaim(finding, lambda: there)]
