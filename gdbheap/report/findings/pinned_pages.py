"""pinned-pages: pages of malloc's arenas that few blocks keep."""

from __future__ import annotations

from gdbheap.answers.findings.pinned_pages import PinnedPages
from gdbheap.report.findings.words import Words
from gdbheap.report.numbers import counted, size_text

ADVICE = (
    "'heap pins --allocator=glibc' names the blocks: without them malloc_trim(0) gives all of this back too. Drop "
    "them, or allocate what lives long before what does not, or apart from it"
)


def _text(figures: PinnedPages) -> str:
    return (
        f"pages of malloc's arenas are kept by {counted(figures.blocks, 'block')} of {size_text(figures.held)} "
        f"together, in {counted(figures.groups, 'group')}: malloc_trim() does not reach what a block stands on"
    )


WORDS = Words(PinnedPages, _text, lambda figures: ADVICE)
