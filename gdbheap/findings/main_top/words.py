"""Texts of the finding ``main-top``: free memory just below the program break."""

from __future__ import annotations

from gdbheap.findings.main_top.rule import MainTop
from gdbheap.findings.thresholds import OWN
from gdbheap.report.text.numbers import size_text
from gdbheap.report.text.thresholds import OWN_CALL, threshold_text
from gdbheap.report.words.finding_words import Words

BELOW = "free() trims this chunk only once it reaches trim_threshold, which is"
BEYOND = "The chunk is above trim_threshold, but free() compares the two only when it frees 64 KiB or more at once"
CALL = "call malloc_trim(0) after each burst of work ('heap trim --yes' calls it now)"
START = ", or start the program with MALLOC_TRIM_THRESHOLD_=131072, which also keeps glibc from raising its thresholds"


def _text(figures: MainTop) -> str:
    start = f"the main arena's top chunk holds {size_text(figures.top)} of free resident pages"
    if figures.is_above:
        return f"{start}. {BELOW} {threshold_text(figures.trim_threshold, figures.origin)}"
    return f"{start}. {BEYOND}"


def _advice(figures: MainTop) -> str:
    if not figures.is_above:
        return CALL
    return f"{CALL}, or {OWN_CALL.format('M_TRIM_THRESHOLD')}" if figures.origin == OWN else CALL + START


WORDS = Words(MainTop, _text, _advice, lambda figures: CALL)
