"""lost-blocks: blocks to which nothing leads."""

from __future__ import annotations

from gdbheap.answers.findings.lost_blocks import LostBlocks
from gdbheap.report.findings.words import Words
from gdbheap.report.numbers import counted, size_text


def _text(figures: LostBlocks) -> str:
    heads = counted(figures.heads, "of them leads", "of them lead")
    return (
        f"nothing in the program leads to {counted(figures.blocks, 'block')} any more, so that it cannot free them; "
        f"{heads} to the others, one to {size_text(figures.largest)}"
    )


def _advice(_figures: LostBlocks) -> str:
    return (
        "'heap unreachable' lists them by size and type; 'gdbheap trace --stacks=1' from the program's start on records"
        " who makes them, which 'heap at ADDRESS --calls=FILE' then shows"
    )


WORDS = Words(LostBlocks, _text, _advice)
