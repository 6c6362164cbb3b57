"""The part of the text of ``heap holes --fit`` that says whether a request fits into malloc's free memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.report.text.numbers import address_text, arena_text
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, join, table

if TYPE_CHECKING:
    from gdbheap.answers.fit import ArenaFit, Fit, ShortPiece

__all__ = ["render"]

ARENA_COLUMNS = (Column("arena"), Column("chunk"), Column("size"), Column("what malloc does", True))
NEAREST_COLUMNS = (Column("address"), Column("size"), Column("arena"), Column("too small by"))


def render(answer: Fit, style: Style) -> str:
    """Return the text: whether the request fits, a row for each arena, and the largest chunks that are too small."""
    nearest = [_nearest(piece, style) for piece in answer.nearest]
    return join(
        style.filled(_verdict(answer)),
        table(ARENA_COLUMNS, [_arena(arena, style) for arena in answer.by_arena], style),
        "In these arenas, the largest free chunk is too small:" if nearest else "",
        table(NEAREST_COLUMNS, nearest, style) if nearest else "",
    )


def _verdict(answer: Fit) -> str:
    start = f"malloc({answer.request:,}) needs a chunk of {answer.chunk:,} bytes: "
    if answer.cached_pieces:
        threads = ", ".join(str(piece.tid) for piece in answer.cached_pieces)
        return f"{start}a free chunk of exactly this size is in the cache of thread {threads}."
    if answer.fits:
        return f"{start}malloc has free memory that is large enough."
    if answer.mmapped:
        return (
            f"{start}no free memory is large enough, so malloc would map new memory for this request (mmap_threshold "
            f"is {answer.mmap_threshold:,} bytes)."
        )
    return f"{start}no free memory is large enough, so the heap would grow."


def _arena(arena: ArenaFit, style: Style) -> list[str]:
    name = arena_text(arena.index)
    if arena.best_piece is not None:
        return [name, address_text(arena.best_piece.address), f"{arena.best_piece.size:,}", "takes this free chunk"]
    missing = "" if arena.short_by is None else f"; the largest free chunk is {arena.short_by:,} bytes too small"
    return [name, "-", "-", f"{_without_chunk(arena, style)}{missing}"]


def _without_chunk(arena: ArenaFit, style: Style) -> str:
    if arena.uses_top:
        return "takes the chunk from the top chunk"
    return (
        "maps new memory for the request"
        if arena.grows_by is None
        else f"makes the heap grow by {style.bytes(arena.grows_by)}"
    )


def _nearest(piece: ShortPiece, style: Style) -> list[str]:
    return [address_text(piece.address), f"{piece.size:,}", arena_text(piece.arena), f"{piece.short_by:,} bytes"]
