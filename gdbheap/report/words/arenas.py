"""The text of ``heap arenas``: a table of malloc's arenas and, with --detail, their free lists and the thread
caches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.report.text.numbers import address_text, arena_text, count_text, listed, share_text
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, join, table

if TYPE_CHECKING:
    from gdbheap.allocators.allocator import ExtentArena
    from gdbheap.answers.arenas import Arena, Arenas

__all__ = ["render"]

COLUMNS = (
    Column("arena"), Column("address"), Column("system"), Column("%system"), Column("in use"), Column("free"),
    Column("top"), Column("fast"), Column("tcache"), Column("used chunks"), Column("free chunks"),
)  # fmt: skip


CLASSES = (
    Column("size"), Column("groups"), Column("used"), Column("used bytes"), Column("asked for"), Column("free"),
    Column("free bytes"),
)  # fmt: skip
HEAPS = (Column("arena"), Column("start"), Column("end"), Column("size"), Column("top"))
LISTS = (Column("arena"), Column("list", True), Column("chunks"), Column("bytes"))
THREADS = (
    Column("thread"), Column("name", True), Column("tcache"), Column("arena"), Column("chunks"), Column("bytes"),
)  # fmt: skip


OTHERS = (
    Column("arena"), Column("allocator", True), Column("active"), Column("used"), Column("cached"), Column("dirty"),
    Column("muzzy"), Column("retained"),
)  # fmt: skip


CACHES = (
    Column("allocator", True), Column("cache", True), Column("address"), Column("free blocks"), Column("bytes"),
)  # fmt: skip
KINDS = {"central": "free lists of spans", "transfer": "transfer caches", "thread": "cache of a thread"}


NO_ARENAS = (
    "An allocator without arenas has a row for each block size. Its blocks of one size lie together in groups. "
    "Blocks in a cache count as free."
)


def render(answer: Arenas, style: Style, cut: int = 0, detail: bool = False) -> str:
    """Return the text of the answer. It begins with the memory in use and free. A table has a row for each arena, one
    for the mmapped chunks, and the total. The figures are those of malloc_stats().

    ``cut``: how many arenas are not listed.
    ``detail``: add the heaps and free lists of the listed arenas, and the caches of all threads.
    """
    others = [_others(answer, style)] if answer.others else []
    caches = [_caches(answer, style)] if answer.caches else []
    if answer.serving:
        classes = [_sizes(answer, style), style.filled(NO_ARENAS)] if answer.classes else []
        return join(style.filled(_serving(answer, style)), *others, *classes, *caches)
    others += caches
    if answer.classes:
        return join(_without_arenas(answer, style), *others)
    rows = [_row(arena, answer, style) for arena in answer.arenas]
    rows.append(_mmapped(answer, style))
    if cut:
        rows.append(_rest(answer, cut, style))
    details = (_heaps(answer, style), _lists(answer, style), _threads(answer, style)) if detail else ()
    own = (style.filled(_sentence(answer, style)), table(COLUMNS, rows, style, _total(answer, style)))
    return join(*own, *details, *others)


def _others(answer: Arenas, style: Style) -> str:
    """Return the table of arenas for allocators with extents. Active bytes that are not used are free bytes in slabs,
    or padding.
    """

    def sizes(row: ExtentArena) -> list[int]:
        return [row.active, row.used, row.cached, row.dirty, row.muzzy, row.given_back]

    rows = [[row.choice, f"{row.allocator} of {row.module}", *map(style.size, sizes(row))] for row in answer.others]
    total = [sum(column) for column in zip(*map(sizes, answer.others))]
    return table(OTHERS, rows, style, ["total", "", *map(style.size, total)])


def _caches(answer: Arenas, style: Style) -> str:
    """Return the table of the caches of allocators without arenas. Only caches with free blocks are in it."""
    rows = [
        [
            f"{row.allocator} of {row.module}", KINDS[row.kind],
            "-" if row.address is None else address_text(row.address), count_text(row.blocks), style.size(row.bytes),
        ]
        for row in answer.caches
    ]  # fmt: skip
    total = [count_text(sum(row.blocks for row in answer.caches)), style.size(sum(row.bytes for row in answer.caches))]
    return table(CACHES, rows, style, ["total", "", "", *total])


def _without_arenas(answer: Arenas, style: Style) -> str:
    """Return a sentence about the memory that an allocator without arenas got from the kernel, and the table of its
    block sizes.
    """
    sentence = (
        "This malloc has no arenas: all threads share its groups of equally large blocks. It holds "
        f"{style.bytes(answer.total.system)} that it got from the kernel."
    )
    return join(style.filled(sentence), _sizes(answer, style))


def _serving(answer: Arenas, style: Style) -> str:
    """Return a sentence about the memory of the allocators that serve malloc instead of the C library."""
    total, names = answer.as_document().total, listed(answer.serving)
    holds = f"{names} {'holds' if len(answer.serving) == 1 else 'hold'} {style.bytes(total.system)}"
    return f"{holds}: {style.bytes(total.in_use)} in use and {style.bytes(total.free)} free."


def _sizes(answer: Arenas, style: Style) -> str:
    """Return the table of block sizes, with the total."""
    rows = [
        [
            count_text(row.size), count_text(row.groups), count_text(row.used_count),
            style.size(row.used_count * row.size), "-" if row.asked is None else style.size(row.asked),
            count_text(row.free_count), style.size(row.free_count * row.size),
        ]
        for row in answer.classes
    ]  # fmt: skip
    used, free = sum(row.used_count for row in answer.classes), sum(row.free_count for row in answer.classes)
    asked = [row.asked for row in answer.classes if row.asked is not None]
    total = [
        "total", count_text(sum(row.groups for row in answer.classes)), count_text(used),
        style.size(sum(row.used_count * row.size for row in answer.classes)),
        style.size(sum(asked)) if asked else "-", count_text(free),
        style.size(sum(row.free_count * row.size for row in answer.classes)),
    ]  # fmt: skip
    return table(CLASSES, rows, style, total)


def _system(size: int, answer: Arenas, style: Style) -> list[str]:
    return [style.size(size), share_text(size, answer.total.system)]


def _row(arena: Arena, answer: Arenas, style: Style) -> list[str]:
    sizes = [style.size(size) for size in (arena.in_use, arena.free, arena.top, arena.fast, arena.tcache)]
    counts = [count_text(arena.used_count), count_text(arena.free_count)]
    return [
        arena_text(arena.index), address_text(arena.address), *_system(arena.system, answer, style), *sizes, *counts,
    ]  # fmt: skip


def _mmapped(answer: Arenas, style: Style) -> list[str]:
    size = answer.mmapped.bytes
    cells = ["mapped", "-", *_system(size, answer, style), style.size(size), "-", "-", "-", "-"]
    return [*cells, count_text(answer.mmapped.count), "-"]


def _rest(answer: Arenas, cut: int, style: Style) -> list[str]:
    """Return one row for all arenas that are not listed: the total minus the listed rows."""
    system = answer.total.system - answer.mmapped.bytes - sum(arena.system for arena in answer.arenas)
    in_use = answer.total.in_use - answer.mmapped.bytes - sum(arena.in_use for arena in answer.arenas)
    cells = [f"{cut} more", "-", *_system(system, answer, style), style.size(in_use)]
    return [*cells, "-", "-", "-", "-", "-", "-"]


def _total(answer: Arenas, style: Style) -> list[str]:
    total = answer.total
    return ["total", "", *_system(total.system, answer, style), style.size(total.in_use), *[""] * 6]


def _heaps(answer: Arenas, style: Style) -> str:
    rows = [
        [
            arena_text(arena.index), address_text(heap.start), address_text(heap.end), style.size(heap.size),
            style.size(heap.top) if heap.top else "-",
        ]
        for arena in answer.arenas
        for heap in arena.heaps
    ]  # fmt: skip
    return table(HEAPS, rows, style)


def _lists(answer: Arenas, style: Style) -> str:
    rows = [
        [arena_text(arena.index), found.kind, count_text(found.chunks), style.size(found.bytes)]
        for arena in answer.arenas
        for found in arena.bins
    ]
    return table(LISTS, rows, style)


def _threads(answer: Arenas, style: Style) -> str:
    if not answer.threads:
        return "No thread has a tcache."
    rows = [
        [
            str(thread.tid), thread.name or "-", address_text(thread.address), arena_text(thread.arena),
            count_text(thread.chunks), style.size(thread.bytes),
        ]
        for thread in answer.threads
    ]  # fmt: skip
    chunks, size = (sum(getattr(thread, key) for thread in answer.threads) for key in ("chunks", "bytes"))
    return table(THREADS, rows, style, ["total", "", "", "", count_text(chunks), style.size(size)])


def _sentence(answer: Arenas, style: Style) -> str:
    total = answer.total
    unused = total.system - total.in_use
    tcache = sum(arena.tcache for arena in answer.arenas)
    return (
        f"malloc holds {style.bytes(total.system)} that it got from the kernel, and counts "
        f"{style.bytes(total.in_use)} of this as in use; {style.bytes(unused)} is free. Blocks in threads' tcaches "
        f"({style.bytes(tcache)}) count as in use here, "
        "as in malloc_stats(), although the program has freed them. Some of malloc's memory may not be resident: "
        "'heap' shows how much is. Large free chunks are holes: 'heap holes' lists them."
    )
