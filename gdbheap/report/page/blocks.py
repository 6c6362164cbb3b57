"""The page's sections about holes with the blocks around them, the blocks that pin pages, and malloc's arenas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.report.page.html import ADDRESS, COUNT, SIZE, Column, Section, details, listed, paragraph, refused, table
from gdbheap.report.text.arena_names import arena_number
from gdbheap.report.text.numbers import arena_text, counted
from gdbheap.report.text.style import Style
from gdbheap.report.words.holes import neighbour_text, sentence
from gdbheap.report.words.pins import conclusion, sentences

if TYPE_CHECKING:
    from gdbheap.answers.arenas import Arenas
    from gdbheap.answers.holes import Holes
    from gdbheap.answers.pins import Pins
    from gdbheap.snapshots.overview import Outcome

__all__ = ["arenas_section", "holes_section"]

HOLES = (
    Column("address", "address", ADDRESS), Column("size", "size", SIZE), Column("resident", "resident", SIZE),
    Column("allocator", "allocator"), Column("arena", "arena"), Column("before", "block before"),
    Column("after", "block after"),
)  # fmt: skip
PINS = (
    Column("address", "address", ADDRESS), Column("would_free", "would free", SIZE), Column("blocks", "blocks", COUNT),
    Column("size", "size", SIZE), Column("allocator", "allocator"), Column("what", "what"),
)  # fmt: skip
KINDS = (
    Column("what", "what"), Column("allocator", "allocator"), Column("blocks", "blocks", COUNT),
    Column("bytes", "size", SIZE), Column("groups", "groups", COUNT), Column("would_free", "would free", SIZE),
)  # fmt: skip
ARENAS = (
    Column("index", "arena"), Column("address", "address", ADDRESS), Column("system", "system", SIZE),
    Column("in_use", "in use", SIZE), Column("free", "free", SIZE), Column("fast", "fast bins", SIZE),
    Column("tcache", "tcache", SIZE), Column("top", "top", SIZE), Column("used_count", "used chunks", COUNT),
    Column("free_count", "free chunks", COUNT),
)  # fmt: skip
CACHES = (
    Column("tid", "thread"), Column("name", "name"), Column("arena", "arena"), Column("chunks", "chunks", COUNT),
    Column("bytes", "bytes", SIZE),
)  # fmt: skip


def holes_section(holes: Outcome[Holes], pins: Outcome[Pins], most: int, style: Style) -> Section:
    """Return the section of holes, with the small groups of blocks that pin the most pages. Each table has at most
    ``most`` rows.
    """
    title = "Holes, and what pins them"
    if holes.answer is None:
        return refused("holes", title, holes.why)
    found = holes.answer
    rows = [
        (hole.address, hole.size, hole.resident, hole.allocator, arena_number(hole.arena, hole.allocator),
         neighbour_text(hole.before), neighbour_text(hole.after))
        for hole in found.rows
    ]  # fmt: skip
    total = ("total", found.bytes, found.resident, "", "", "", "")
    none = f"There is no hole of {style.bytes(found.minimum)} or more."
    told = sentence(found, style, found.minimum) if found.count else none
    body = paragraph(told) + table("holes-table", "Holes, the largest first", HOLES, rows, most, total, found.count)
    return Section("holes", title, body + _pins(pins, most, style))


def _pins(asked: Outcome[Pins], most: int, style: Style) -> str:
    if asked.answer is None:
        return paragraph(f"It is unknown which blocks pin pages: {asked.why}.", "why")
    found = asked.answer
    if not any(row.groups for row in found.sums):
        return paragraph("No pinned pages: no small group of blocks keeps a page or more from being returned.")
    rows = [(pin.address, pin.would_free, pin.blocks, pin.size, pin.allocator, pin.what) for pin in found.rows]
    kinds = [(row.what, row.allocator, row.blocks, row.bytes, row.groups, row.would_free) for row in found.by_kind]
    count = sum(row.groups for row in found.sums)
    body = listed([conclusion(found, style), *sentences(found, style)]) + table(
        "pins-kinds", "Blocks that pin pages, by kind", KINDS, kinds, most
    )
    return body + details(
        "All pins, one by one",
        table("pins-table", "Pins, those that keep the most memory first", PINS, rows, most, None, count),
    )


def arenas_section(asked: Outcome[Arenas], most: int) -> Section:
    """Return the section with two tables: malloc's arenas, with figures as in malloc_stats(), and the threads' caches.

    Each table has at most ``most`` rows.
    """
    title = "malloc's arenas"
    if asked.answer is None:
        return refused("arenas", title, asked.why)
    found = asked.answer
    names = [column.key for column in ARENAS[1:]]
    rows = [(arena_text(arena.index), *(getattr(arena, name) for name in names)) for arena in found.arenas]
    chunks = counted(found.mmapped.count, "chunk with its own mapping has", "chunks with their own mapping have")
    mapped = f"{chunks} {Style().bytes(found.mmapped.bytes)}."
    total = ("total", "", found.total.system, found.total.in_use, "", "", "", "", "", "")
    caches = [(str(one.tid), one.name, arena_text(one.arena), one.chunks, one.bytes) for one in found.threads]
    body = table(
        "arenas-table",
        "Figures as in malloc_stats(); the total includes chunks with their own mapping",
        ARENAS,
        rows,
        most,
        total,
    )
    body += paragraph(mapped)
    return Section("arenas", title, body + table("arenas-caches", "Thread caches", CACHES, caches, most))
