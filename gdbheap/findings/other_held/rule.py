"""Other memory to which a library's static data points: the library's own allocator, or its working space."""

from __future__ import annotations

from functools import partial

from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import Claim, Evidence, Figures, Finding


@dataclass(frozen=True)
class OtherHeld(Figures):
    """The ``library`` whose static data points to the memory, by the name of its file."""

    ids = ("other-held",)
    library: str


def find(evidence: Evidence) -> list[Claim]:
    """Return a finding for each library whose static data points to enough memory.

    There is none if another malloc was recognised, because that malloc may own the memory.
    """
    heap, pages = evidence.heap, evidence.heap.target.pages
    if pages is None or heap.target.refusal is not None or heap.standing_in:
        return []
    found = []
    for held in heap.held:
        size = sum(pages.count(start, end).resident for start, end in held.ranges)
        if evidence.worth(size):
            found.append(Claim(Finding("other-held", size, OtherHeld(held.name)), partial(list, held.ranges)))
    return found
