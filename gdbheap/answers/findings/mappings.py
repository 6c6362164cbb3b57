"""Memory that no malloc handed out: what a program or a library mapped, shared memory, files."""

from __future__ import annotations

from gdbheap.answers.findings.finding import Evidence, Finding, mib
from gdbheap.target.mappings import Mapping

# Such memory is normal in small amounts: a quarter of RSS is remarkable.
REMARKABLE_SHARE = 4
KINDS = {
    "other.rest": (
        "mapped-memory",
        "is private memory that a program or library mapped itself, beside every malloc",
        "malloc has no part in it: whoever mapped it (a runtime, a compiler, a cache, a buffer of a driver) must unmap "
        "it; 'heap at ADDRESS' says what is known of the place",
    ),
    "shared": (
        "shared-memory",
        "is shared memory, which is in the RSS of every process that maps it",
        "unmap it here and it leaves this RSS; the machine gets it back when the last process has, and its name is "
        "gone (shm_unlink, ipcrm)",
    ),
    "file.readonly": (
        "mapped-files",
        "are pages of files that are mapped and only read: the kernel's page cache, which it takes back when it must",
        "count RssAnon, not RSS; munmap() or madvise(MADV_DONTNEED) takes them out of this RSS",
    ),
}


def find(evidence: Evidence) -> list[Finding]:
    """Each kind that is a quarter of RSS or more, with its largest mapping."""
    if evidence.heap.target.pages is None:
        return []
    return [finding for owner in KINDS for finding in _of(evidence, owner)]


def _of(evidence: Evidence, owner: str) -> list[Finding]:
    size = evidence.resident(owner)
    rss = evidence.heap.target.rss.bytes or 0
    if not evidence.worth(size) or size * REMARKABLE_SHARE < rss:
        return []
    name, what, advice = KINDS[owner]
    text = f"{mib(size)} {what}"
    largest = max((pair for pair in _mappings(evidence, owner)), key=lambda pair: pair[0], default=None)
    figures = {}
    if largest is not None:
        resident, mapping = largest
        text += f"; the most, {mib(resident)}, at {mapping.start:#x} ({mapping.name})"
        figures = {"address": mapping.start, "virtual": mapping.size, "resident": resident}
    return [Finding(name, size, text, advice, figures)]


def _mappings(evidence: Evidence, owner: str) -> list[tuple[int, Mapping]]:
    """(resident bytes, mapping) of those that are wholly of that kind: no part of them is a heap or a stack."""
    heap = evidence.heap
    pages = heap.target.pages
    taken = [(stack.start, stack.end) for stack in heap.stacks] if heap.target.refusal is None else []
    taken += evidence.glibc.owned_ranges() if evidence.glibc else []
    python = heap.python_or_none if heap.target.refusal is None else None
    taken += python.ranges() if python else []
    found = []
    for mapping in heap.target.mappings:
        if _is_of(mapping, owner) and pages is not None:
            inside = [pair for pair in taken if pair[0] < mapping.end and mapping.start < pair[1]]
            if not inside:
                found.append((pages.count(mapping.start, mapping.end)[0], mapping))
    return found


def _is_of(mapping: Mapping, owner: str) -> bool:
    if owner == "shared":
        return not mapping.private
    if owner == "file.readonly":
        return mapping.private and not mapping.anonymous and not mapping.writable and not mapping.executable
    return mapping.private and mapping.anonymous
