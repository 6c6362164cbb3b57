"""Convert the records of ``gdbheap.answers`` to records of the library. Only this module handles both kinds of
records."""

from __future__ import annotations

from collections.abc import Iterable

from gdbheap.answers import at, block_kinds, chunks, holes, pyobjects, refs
from gdbheap.answers.accounting import describing
from gdbheap.answers.owners import HeldTogether
from gdbheap.answers.retained_rows import RetainedRow
from gdbheap.api.rows import (
    Block,
    BlockDescriptions,
    Finding,
    Holder,
    Hole,
    Kind,
    Knows,
    Neighbour,
    Object,
    Owner,
    Referrer,
    Retained,
    TypeRow,
)
from gdbheap.findings.finding import Finding as Found
from gdbheap.findings.holder.rule import MainHolder
from gdbheap.report.words.findings import words_of
from gdbheap.text import IN_SHELL, as_typed

__all__ = [
    "block_of",
    "blocks_of",
    "findings_of",
    "holder_of",
    "hole_of",
    "kind_of",
    "object_of",
    "owner_of",
    "owner_row_of",
    "referrer_of",
    "retained_of",
    "type_of",
]

IN_USE = ("used", "mmapped")
OBJECT = "object"


def blocks_of(heap: Knows, rows: Iterable[chunks.Chunk]) -> list[Block]:
    """Convert a list of blocks. The kinds of all these blocks are determined together, on first use."""
    rows = list(rows)
    described = BlockDescriptions(heap, [(row.address, row.size) for row in rows if row.state in IN_USE])
    return [Block(row.address, row.size, row.state, row.allocator, row.arena, heap, described) for row in rows]


def block_of(heap: Knows, found: at.Block) -> Block:
    """Return the ``Block`` of the library for a block that ``answers.at`` found. Its kind is read on first use."""
    used = [(found.address, found.size)] if found.state in IN_USE else []
    size, described = found.end - found.address, BlockDescriptions(heap, used)
    return Block(found.address, size, found.state, found.allocator, found.arena, heap, described)


def kind_of(found: describing.BlockDescription) -> Kind:
    """Return the ``Kind`` of the library: the block's role in one word, and a description in a few words."""
    return Kind(found.kind.role, str(found))


def hole_of(found: holes.Hole) -> Hole:
    """Return the ``Hole`` of the library for a hole that ``answers.holes`` found, with its neighbouring blocks."""
    before, after = (
        None if one is None else Neighbour(one.address, one.size, one.what) for one in (found.before, found.after)
    )
    return Hole(found.address, found.size, found.resident, found.arena, found.allocator, before, after)


def object_of(heap: Knows, found: at.Object) -> Object:
    """Return the ``Object`` of the library for an object that ``answers.at`` found. It keeps ``heap``, for questions
    about it.
    """
    return Object(found.address, found.type, found.size, found.text, heap)


def owner_of(found: at.At) -> Owner | None:
    """Return the owner of a block; None if no owner is known."""
    if found.object is not None:
        return Owner(found.object.address, found.object.type, OBJECT)
    return None if found.owner is None else Owner(found.owner.address, found.owner.type, found.owner.what)


def referrer_of(heap: Knows, found: refs.Referrer) -> Referrer:
    """Return the ``Referrer`` of the library for a row of ``heap refs``. It keeps ``heap``, for the object with the
    pointer.
    """
    return Referrer(found.address, found.type, found.edge, found.certain, heap)


def holder_of(found: MainHolder) -> Holder:
    """Return the ``Holder`` of the library for a holder on the first page."""
    return Holder(
        found.bytes, found.resident, found.share, found.path, found.what, found.count, found.kind, found.address
    )


def owner_row_of(found: HeldTogether) -> Holder:
    """Return the ``Holder`` of the library for a row of ``heap owners``. Its path is "" if the holder of the blocks is
    unknown.
    """
    path, kind = found.root or "", found.kind or ""
    return Holder(found.bytes, found.resident, found.share, path, found.what, found.count, kind, found.address)


def findings_of(found: Iterable[Found]) -> list[Finding]:
    """Convert findings to the library's records, with their texts. If an older snapshot lacks the data for a text, the
    text is the finding's id."""
    rows = []
    for one in found:
        text, advice = words_of(one)
        told = as_typed(text or one.id, IN_SHELL), as_typed(advice or "", IN_SHELL)
        rows.append(Finding(one.id, one.bytes, *told, list(one.commands), one.doubtful))
    return rows


def type_of(found: pyobjects.TypeRow | block_kinds.KindRow) -> TypeRow:
    """Return the ``TypeRow`` of the library for a Python type or a kind of blocks. Mapped memory counts as buffers; a
    kind of blocks has none.
    """
    if isinstance(found, block_kinds.KindRow):
        return TypeRow(found.type, found.count, found.bytes, 0, found.bytes)
    buffers = found.buffers + found.mapped
    return TypeRow(found.type, found.count, found.own, buffers, found.own + buffers)


def retained_of(found: RetainedRow) -> Retained:
    """Return the ``Retained`` of the library for a row of ``heap retained``. Without a Python expression, ``path`` is
    the path as text.
    """
    return Retained(found.address, found.type, found.count, found.own, found.retained, found.path or found.chain)
