"""Other memory by the library whose static data lead there: its own allocator, or its working space."""

from __future__ import annotations

from gdbheap.answers.findings.finding import Evidence, Finding
from gdbheap.errors import one_line


def find(evidence: Evidence) -> list[Finding]:
    """Each library that has so much."""
    pages = evidence.heap.target.pages
    if pages is None or evidence.heap.target.refusal is not None:
        return []
    found = []
    for held in evidence.heap.held:
        size = sum(pages.count(start, end)[0] for start, end in held.ranges)
        if evidence.worth(size):
            whose = f"static data of {one_line(held.name)} lead: its own allocator or working space"
            text = f"other memory to which {whose}"
            found.append(Finding("other-held", size, text, "what of it is in use only this library can tell"))
    return found
