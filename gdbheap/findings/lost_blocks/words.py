"""lost-blocks: blocks to which nothing points."""

from __future__ import annotations

from gdbheap.findings.lost_blocks.rule import LostBlocks
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.words.finding_words import Words


def _text(figures: LostBlocks) -> str:
    heads = f"{counted(figures.heads, 'of them leads', 'of them lead')} to the others; "
    kernel = ", or the kernel keeps them for it (epoll, timers, io_uring)" if figures.by_kernel else ""
    return (
        f"no word in memory leads to {counted(figures.blocks, 'block')}: the program cannot free them unless it "
        f"computes their addresses (tagged, compressed or hidden pointers){kernel}; "
        f"{heads if figures.heads < figures.blocks else ''}"
        f"blocks of one size hold {size_text(figures.largest)}"
    )


def _advice(figures: LostBlocks) -> str:
    return (
        "'heap unreachable' lists them by size and type; "
        f"'heap catch malloc --min={figures.least} --max={figures.most}' stops at the next call that asks for such a "
        "block; 'gdbheap trace --stacks=1' from the program's start on records who makes them, which "
        "'heap at ADDRESS --calls=FILE' then shows"
    )


WORDS = Words(LostBlocks, _text, _advice)
