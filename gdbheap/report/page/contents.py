"""The page's sections about blocks in use: their types, the objects that retain the most, and the holders with their
paths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.answers.block_kinds import BlockKinds
from gdbheap.report.page.html import ADDRESS, COUNT, SIZE, Column, Section, paragraph, refused, table
from gdbheap.report.text.numbers import count_text
from gdbheap.report.text.style import Style
from gdbheap.report.text.unfinished import unfinished
from gdbheap.report.words.pyobjects import sentences
from gdbheap.report.words.retained import held_at

if TYPE_CHECKING:
    from gdbheap.answers.owners import HeldTogether, Owners
    from gdbheap.answers.pyobjects import PyObjects
    from gdbheap.answers.retained import Retained
    from gdbheap.snapshots.overview import Outcome, Types

__all__ = ["owners_section", "retained_section", "types_section"]

TYPES, RETAINED, OWNERS = "Types", "Objects that retain the most memory", "Holders of the memory in use"
SHOWN_PARTS = 3
AT_LEAST = " (the figures are lower limits)"
OBJECTS = (
    Column("type", "type"), Column("count", "count", COUNT), Column("bytes", "own", SIZE),
    Column("buffers", "buffers", SIZE), Column("together", "total", SIZE), Column("retained", "retained", SIZE),
)  # fmt: skip
KINDS = (Column("type", "what the blocks are"), Column("count", "blocks", COUNT), Column("bytes", "bytes", SIZE))
UNKNOWN = (Column("address", "address", ADDRESS), Column("size", "size", SIZE), Column("looks", "looks like"))
KEPT = (
    Column("type", "type"), Column("address", "address", ADDRESS), Column("count", "count", COUNT),
    Column("bytes", "own blocks", SIZE), Column("retained", "retained", SIZE), Column("path", "path"),
)  # fmt: skip
HELD = (
    Column("path", "holder"), Column("bytes", "bytes", SIZE), Column("blocks", "blocks", COUNT),
    Column("what", "contents"), Column("expression", "path"),
)  # fmt: skip
SINGLE = (
    Column("what", "what"), Column("address", "address", ADDRESS), Column("size", "size", SIZE),
    Column("type", "owner"), Column("path", "path"),
)  # fmt: skip


def types_section(asked: Outcome[Types], by_type: Outcome[Retained], most: int, style: Style) -> Section:
    """Return the section of Python's types and the bytes that they retain, in at most ``most`` rows.

    For a program without Python, it is the section of the kinds of blocks.
    """
    if asked.answer is None:
        return refused("types", TYPES, asked.why)
    if isinstance(asked.answer, BlockKinds):
        return _kinds(asked.answer, most)
    return _objects(asked.answer, by_type, most, style)


def _objects(found: PyObjects, by_type: Outcome[Retained], most: int, style: Style) -> Section:
    kept = {row.type: row.retained for row in (by_type.answer.rows if by_type.answer else [])}
    rows = [
        (row.type, row.count, row.own, row.buffers, row.own + row.buffers, kept.get(row.type)) for row in found.rows
    ]
    total = found.total
    sums = ("total", total.count, total.own, total.buffers, total.own + total.buffers, "")
    why = f"It is unknown what the types retain: {by_type.why}." if by_type.answer is None else ""
    body = "".join(map(paragraph, sentences(found, style))) + paragraph(why, "why")
    body += table("types-table", "Types, those with the most bytes first", OBJECTS, rows, most, sums)
    unknown = [(block.address, block.size, block.look) for block in found.unidentified]
    return Section(
        "types", TYPES, body + table("types-unknown", "The largest unidentified blocks", UNKNOWN, unknown, most)
    )


def _kinds(found: BlockKinds, most: int) -> Section:
    rows = [(row.type, row.count, row.bytes) for row in found.rows]
    rest = found.unclassified
    told = f"{count_text(rest.count)} of {count_text(found.total.count)} blocks in use are of unknown kind."
    total = ("total, including unknown kinds", found.total.count, found.total.bytes)
    body = paragraph(told) + table("types-table", "Kinds of blocks in use", KINDS, rows, most, total)
    return Section("types", TYPES, body)


def retained_section(asked: Outcome[Retained], most: int) -> Section:
    """Return the section of the ``most`` objects or blocks that retain the most bytes."""
    if asked.answer is None:
        return refused("retained", RETAINED, asked.why)
    found = asked.answer
    rows = [(row.type, row.address, row.count, row.own, row.retained, held_at(row)) for row in found.rows]
    title = "Memory that one object alone keeps alive" + (AT_LEAST if found.not_examined else "")
    body = table("retained-table", title, KEPT, rows, most) + _rest(found)
    return Section("retained", RETAINED, body or paragraph("Nothing retains more than its own block."))


def owners_section(asked: Outcome[Owners], most: int) -> Section:
    """Return the section that shows all memory in use, in at most ``most`` rows, one for each holder."""
    if asked.answer is None:
        return refused("owners", OWNERS, asked.why)
    found = asked.answer
    if not found.groups and found.not_examined:
        return Section("owners", OWNERS, _rest(found))
    if not found.groups:
        rows = [(row.what, row.address, row.size, row.type, row.path or row.chain) for row in found.owners]
        body = table("owners-table", "Large blocks, one row for each", SINGLE, rows, most, None, found.count)
        return Section("owners", OWNERS, body or paragraph("There is no large used block."))
    groups = [(row.root, row.bytes, row.count, _parts(row), row.path) for row in found.groups]
    total = ("total", found.bytes, found.count, "", "")
    title = "Holders, the largest first" + (AT_LEAST if found.not_examined else "")
    return Section("owners", OWNERS, table("owners-table", title, HELD, groups, most, total) + _rest(found))


def _rest(found: Owners | Retained) -> str:
    """Return a paragraph about the memory that was not examined; "" if all memory was examined."""
    return paragraph(unfinished(found.not_examined, found.next, Style()))


def _parts(row: HeldTogether) -> str:
    parts = [f"{part.count:,} x {part.what}" if part.count else part.what for part in row.parts[:SHOWN_PARTS]]
    return ", ".join(parts) or row.what or ""
