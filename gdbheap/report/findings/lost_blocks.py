"""lost-blocks: blocks to which nothing points."""

from __future__ import annotations

from gdbheap.answers.findings.lost_blocks import LostBlocks
from gdbheap.report.findings.words import Words
from gdbheap.report.numbers import counted, size_text


def _text(figures: LostBlocks) -> str:
    leads = counted(figures.heads, "of them leads", "of them lead")
    heads = f"{leads} to the others; " if figures.heads < figures.blocks else ""
    return (
        f"nothing in the program points to {counted(figures.blocks, 'block')} any more, so that it cannot free them; "
        f"{heads}blocks of one size hold {size_text(figures.largest)}"
    )


def _advice(figures: LostBlocks) -> str:
    return (
        "'heap unreachable' lists them by size and type; "
        f"'heap catch malloc --min={figures.least} --max={figures.most}' stops at the next call that asks for such a "
        "block; 'gdbheap trace --stacks=1' from the program's start on records who makes them, which "
        "'heap at ADDRESS --calls=FILE' then shows"
    )


WORDS = Words(LostBlocks, _text, _advice)
