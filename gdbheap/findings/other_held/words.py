"""Texts of the finding ``other-held``: memory to which the static data of one library points."""

from __future__ import annotations

from gdbheap.findings.other_held.rule import OtherHeld
from gdbheap.report.words.finding_words import Words


def _text(figures: OtherHeld) -> str:
    name = figures.variable or f"static data of {figures.library}"
    return f"other memory, reached from {name}: memory of its own allocator, or its buffers"


def _advice(figures: OtherHeld) -> str:
    name = figures.library
    return f"ask {name} itself how much of this memory is in use: gdbheap cannot see that"


WORDS = Words(OtherHeld, _text, _advice)
