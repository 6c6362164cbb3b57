"""Memory outside all allocators to which a library's static data points. It may be the pool of the library's own
allocator, or its working space."""

from __future__ import annotations

from functools import partial

from gdbheap.answers.accounting.pointing_variables import variable_of
from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import Evidence, Figures, Finding, FindingClaim


@dataclass(frozen=True)
class OtherHeld(Figures):
    """The ``library`` whose static data points to the memory, by the name of its file. ``variable``: the static
    variable with most of these pointers, None if it is unknown.
    """

    ids = ("other-held",)
    library: str
    variable: str | None = None


def find(evidence: Evidence) -> list[FindingClaim]:
    """Return a list with a finding for each library whose static data points to enough memory.

    The list is empty if another malloc was recognised, because that malloc may own the memory.
    """
    heap, pages = evidence.heap, evidence.heap.target.pages
    if pages is None or heap.target.refusal is not None or heap.standing_in:
        return []
    found = []
    for held in heap.held:
        size = sum(pages.count(start, end).resident for start, end in held.ranges)
        if evidence.worth(size):
            figures = OtherHeld(held.name, variable_of(heap.target, held, held.ranges))
            found.append(FindingClaim(Finding("other-held", size, figures), partial(list, held.ranges)))
    return found
