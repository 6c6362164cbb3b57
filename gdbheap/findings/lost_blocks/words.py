"""Texts of the finding ``lost-blocks``: blocks to which nothing points."""

from __future__ import annotations

from gdbheap.findings.lost_blocks.counted import RC, SHARED_PTR
from gdbheap.findings.lost_blocks.rule import LostBlocks
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.words.finding_words import Words

# Remedies that break a cycle, by the kind of cycle.
WEAK = {
    SHARED_PTR: "replace one reference in each cycle with a std::weak_ptr",
    RC: "replace one reference in each cycle with a Weak (Rc::downgrade() or Arc::downgrade())",
}
# For blocks of up to 512 bytes, which Python allocates without calling malloc.
BESIDE_MALLOC = (
    "start the program with PYTHONTRACEMALLOC=1: 'heap pyobjects --by=line' then shows which lines of Python allocate "
    "most. Or start it with PYTHONMALLOC=malloc under 'gdbheap trace --stacks=1', which records the calls of C code. "
    "'heap unreachable' lists the blocks by size and type"
)


def _text(figures: LostBlocks) -> str:
    lost = f"{counted(figures.blocks, 'block is', 'blocks are')} lost: no pointer to {_them(figures.blocks)} was found"
    if figures.cycles.count:
        return f"{lost}. {_of_cycles(figures)}"
    same = f"Blocks of one size hold {size_text(figures.largest)}"
    kernel = ", or the kernel keeps addresses for the program (epoll, timers, io_uring)" if figures.by_kernel else ""
    python = ", or integers of Python" if figures.is_python else ""
    heads = f"{counted(figures.heads, 'of them keeps', 'of them keep')} the others. " * (figures.heads < figures.blocks)
    return (
        f"{lost}. The program cannot free {_them(figures.blocks)}, unless it computes addresses (tagged, compressed or "
        f"hidden pointers{python}){kernel}. {heads}{same}"
    )


def _them(count: int) -> str:
    return "it" if count == 1 else "them"


def _of_cycles(figures: LostBlocks) -> str:
    cycles = figures.cycles
    of_class = f" of class {cycles.type}" if cycles.type else ""
    told = (
        f"{counted(cycles.count, f'cycle of {cycles.kind} objects', f'cycles of {cycles.kind} objects')}{of_class} "
        f"{'keeps itself' if cycles.count == 1 else 'keep themselves'} alive by reference counts, with "
        f"{size_text(cycles.bytes)}"
    )
    if cycles.heads:
        return (
            f"At least {told}: only {size_text(cycles.looked_at)} was examined, the {cycles.heads:,} largest of the "
            f"{figures.heads:,} blocks that keep the others"
        )
    return f"{told}{'; the program cannot free the others, unless it computes addresses' if cycles.others else ''}"


def _advice(figures: LostBlocks) -> str:
    if figures.beside_malloc:
        return BESIDE_MALLOC
    weak = f"{WEAK[figures.cycles.kind]}. " if figures.cycles.count else ""
    return (
        f"{weak}'heap unreachable' lists these blocks by size and type. 'heap catch malloc --min={figures.least} "
        f"--max={figures.most}' stops at the next call that requests a block of these sizes. 'gdbheap trace "
        "--stacks=1', from the program's start on, records which code allocates them ('heap at ADDRESS --calls=FILE' "
        "shows this code)"
    )


WORDS = Words(LostBlocks, _text, _advice)
