"""musl-mappings: mappings of musl's malloc that few blocks keep."""

from __future__ import annotations

from gdbheap.answers.findings.musl_mappings import MuslMappings
from gdbheap.report.findings.words import Words
from gdbheap.report.numbers import counted, size_text

ADVICE = (
    "'heap pins --allocator=mallocng' names the blocks: without them most of this goes back, and what stays is reused. "
    "Drop them, or make what lives long before the load that filled these mappings"
)


def _text(figures: MuslMappings) -> str:
    return (
        f"{counted(figures.mappings, 'mapping')} of musl's malloc, of {figures.all_mappings:,}, are kept by "
        f"{counted(figures.blocks, 'block')} in slots of {size_text(figures.held)} together: a mapping goes back only "
        "as a whole"
    )


WORDS = Words(MuslMappings, _text, lambda figures: ADVICE)
