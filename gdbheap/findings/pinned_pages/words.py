"""Texts of the finding ``pinned-pages``: a few blocks pin pages of malloc's arenas."""

from __future__ import annotations

from gdbheap.findings.pinned_pages.rule import PinnedPages
from gdbheap.findings.pinners import Pinner
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.words.finding_words import Words

NAMES = "'heap pins --allocator=glibc' lists the blocks; once they are freed, malloc_trim(0) returns all these pages"
APART = "allocate long-lived data before all other data, or separately"
# Nobody would drop more blocks than this one by one.
MAX_DROPPED = 1000


def pinned_advice(names: str, blocks: int, otherwise: str) -> str:
    """Return advice about pinned memory. A program can drop a few blocks one by one, but not thousands."""
    return f"{names}. Drop them, or {otherwise}" if blocks <= MAX_DROPPED else f"{names}. {otherwise.capitalize()}"


def pinner_text(pinner: Pinner) -> str:
    """Return a text with the names of the variables that hold most of the examined blocks; "" if they are unknown."""
    if not pinner.path:
        return ""
    if pinner.count == pinner.examined:
        return f"; all {pinner.examined:,} examined blocks are held by {pinner.path}"
    verb = "is" if pinner.count == 1 else "are"
    text = f"; of {pinner.examined:,} examined blocks, {pinner.count:,} {verb} held by {pinner.path}"
    return f"{text}, {pinner.next_count:,} by {pinner.next_path}" if pinner.next_path else text


def _text(figures: PinnedPages) -> str:
    return (
        f"{counted(figures.blocks, 'block', 'blocks')} ({size_text(figures.held)}, in "
        f"{counted(figures.groups, 'group')}) {'keeps' if figures.blocks == 1 else 'keep'} free pages in malloc's "
        "arenas from being returned: malloc_trim() cannot return a page that contains a block in use"
        f"{pinner_text(figures.pinner)}{_returned(figures)}"
    )


def _returned(figures: PinnedPages) -> str:
    """Return a text about the bytes that freeing the blocks would return. The finding counts only the free bytes."""
    whole, own = size_text(figures.would_free), size_text(figures.held)
    return f". Freeing the blocks would return {whole}, including their own {own}" if figures.would_free else ""


WORDS = Words(PinnedPages, _text, lambda figures: pinned_advice(NAMES, figures.blocks, APART))
