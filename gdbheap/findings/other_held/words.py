"""other-held: memory to which the static data of one library points."""

from __future__ import annotations

from gdbheap.findings.other_held.rule import OtherHeld
from gdbheap.report.words.finding_words import Words


def _text(figures: OtherHeld) -> str:
    name = figures.library
    return f"other memory to which static data of {name} points: its own allocator or working space"


def _advice(figures: OtherHeld) -> str:
    name = figures.library
    return f"there is no advice that is sure to free it: only {name} itself knows how much of it is in use"


WORDS = Words(OtherHeld, _text, _advice)
