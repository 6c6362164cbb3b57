"""Pages of glibc's arenas that few blocks keep."""

from __future__ import annotations

from gdbheap import _native
from gdbheap.answers.findings.finding import Evidence, Finding, counted, mib
from gdbheap.answers.trim import given_tops
from gdbheap.target.target import PAGE_SIZE


def find(evidence: Evidence) -> list[Finding]:
    """What malloc_trim(0) could give back only if the groups of blocks that ``heap pins`` lists went."""
    heap, pages = evidence.heap, evidence.heap.target.pages
    if evidence.glibc is None or pages is None:
        return []
    found = _native.pins_of_chunks(heap.chunks, pages, evidence.kept, given_tops(heap), PAGE_SIZE, 0)
    groups, blocks, size, freed = found[1]
    if not evidence.worth(freed):
        return []
    text = (
        f"pages of malloc's arenas are kept by {counted(blocks, 'block')} of {mib(size)} together, "
        f"in {counted(groups, 'group')}: malloc_trim() does not reach what a block stands on"
    )
    advice = (
        "'heap pins --allocator=glibc' names the blocks: without them malloc_trim(0) gives all of this back too. Drop "
        "them, or allocate what lives long before what does not, or apart from it"
    )
    return [Finding("pinned-pages", freed, text, advice, {"groups": groups, "blocks": blocks, "held": size})]
