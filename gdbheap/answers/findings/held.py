"""Other memory by the library whose static data points there: its own allocator, or its working space."""

from __future__ import annotations

from functools import partial

from gdbheap.answers.findings.finding import Claim, Evidence, Finding
from gdbheap.errors import one_line

NO_ADVICE = "there is no advice that is sure to free it: only"


def find(evidence: Evidence) -> list[Claim]:
    """Each library that has enough."""
    pages = evidence.heap.target.pages
    if pages is None or evidence.heap.target.refusal is not None:
        return []
    found = []
    for held in evidence.heap.held:
        size = sum(pages.count(start, end).resident for start, end in held.ranges)
        if evidence.worth(size):
            name = one_line(held.name)
            text = f"other memory to which static data of {name} points: its own allocator or working space"
            finding = Finding("other-held", size, text, f"{NO_ADVICE} {name} itself knows how much of it is in use")
            found.append(Claim(finding, partial(list, held.ranges)))
    return found
