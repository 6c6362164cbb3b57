"""lost-blocks: blocks to which nothing points."""

from __future__ import annotations

from gdbheap.findings.lost_blocks.counted import RC, SHARED_PTR
from gdbheap.findings.lost_blocks.rule import LostBlocks
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.words.finding_words import Words

# What breaks a cycle.
WEAK = {
    SHARED_PTR: "make one reference of each cycle a std::weak_ptr",
    RC: "make one reference of each cycle a Weak (Rc::downgrade() or Arc::downgrade())",
}
# Blocks of up to 512 bytes, which are no calls of malloc.
BESIDE_MALLOC = (
    "start the program with PYTHONTRACEMALLOC=1: 'heap pyobjects --by=line' then says which lines of Python ask for "
    "most; or with PYTHONMALLOC=malloc under 'gdbheap trace --stacks=1', which records the calls of C code. 'heap "
    "unreachable' lists the blocks by size and type"
)


def _text(figures: LostBlocks) -> str:
    heads = f"{counted(figures.heads, 'of them leads', 'of them lead')} to the others; "
    kernel = ", or the kernel keeps them for it (epoll, timers, io_uring)" if figures.by_kernel else ""
    if figures.cycles.count:
        return _of_cycles(figures)
    python = ", or integers of Python" if figures.is_python else ""
    return (
        f"no word in memory leads to {counted(figures.blocks, 'block')}: the program cannot free them unless it "
        f"computes their addresses (tagged, compressed or hidden pointers{python}){kernel}; "
        f"{heads if figures.heads < figures.blocks else ''}"
        f"blocks of one size hold {size_text(figures.largest)}"
    )


def _of_cycles(figures: LostBlocks) -> str:
    cycles = figures.cycles
    others = "; the program cannot free the others unless it computes their addresses" if cycles.others else ""
    of_heads, of_those = "", ""
    if cycles.heads:
        of_heads = (
            f"of the {figures.heads:,} that lead to the others, the {cycles.heads:,} that retain most were looked at, "
            f"which retain {size_text(cycles.looked_at)}; "
        )
        of_those, others = " of that", ""
    return (
        f"no word in memory leads to {counted(figures.blocks, 'block')}: {of_heads}"
        f"{counted(cycles.count, 'cycle')} of {cycles.kind} objects, which keep one another by their counts, "
        f"{'holds' if cycles.count == 1 else 'hold'} {size_text(cycles.bytes)}{of_those}{others}; "
        f"blocks of one size hold {size_text(figures.largest)}"
    )


def _advice(figures: LostBlocks) -> str:
    if figures.beside_malloc:
        return BESIDE_MALLOC
    weak = f"{WEAK[figures.cycles.kind]}; " if figures.cycles.count else ""
    return (
        f"{weak}'heap unreachable' lists them by size and type; "
        f"'heap catch malloc --min={figures.least} --max={figures.most}' stops at the next call that asks for such a "
        "block; 'gdbheap trace --stacks=1' from the program's start on records who makes them, which "
        "'heap at ADDRESS --calls=FILE' then shows"
    )


WORDS = Words(LostBlocks, _text, _advice)
