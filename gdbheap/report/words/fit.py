"""Whether a request fits, as text for people: a part of ``heap holes --fit``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.report.text.numbers import address_text, arena_text
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, join, table

if TYPE_CHECKING:
    from gdbheap.answers.fit import ArenaFit, Fit, ShortPiece

__all__ = ["render"]

ARENA_COLUMNS = (Column("arena"), Column("chunk"), Column("size"), Column("what malloc does", True))
NEAREST_COLUMNS = (Column("address"), Column("size"), Column("arena"), Column("misses"))


def render(answer: Fit, style: Style) -> str:
    """Return the verdict, a row for each arena, and the largest free chunks that are too small."""
    nearest = [_nearest(piece, style) for piece in answer.nearest]
    return join(
        style.filled(_verdict(answer)),
        table(ARENA_COLUMNS, [_arena(arena, style) for arena in answer.by_arena], style),
        "The largest free chunks of arenas where none suffices:" if nearest else "",
        table(NEAREST_COLUMNS, nearest, style) if nearest else "",
    )


def _verdict(answer: Fit) -> str:
    start = f"malloc({answer.request:,}) needs a chunk of {answer.chunk:,} bytes: "
    if answer.cached_pieces:
        threads = ", ".join(str(piece.tid) for piece in answer.cached_pieces)
        return f"{start}one of exactly this size waits in the cache of thread {threads}."
    if answer.fits:
        return f"{start}there is memory for it."
    if answer.mmapped:
        return (
            f"{start}nothing free suffices, and malloc would map memory of its own for it (mmap_threshold is "
            f"{answer.mmap_threshold:,} bytes)."
        )
    return f"{start}nothing free suffices, and the heap would grow."


def _arena(arena: ArenaFit, style: Style) -> list[str]:
    name = arena_text(arena.index)
    if arena.best_piece is not None:
        return [name, address_text(arena.best_piece.address), f"{arena.best_piece.size:,}", "takes this free chunk"]
    missing = "" if arena.short_by is None else f"; the largest free chunk misses {arena.short_by:,} bytes"
    return [name, "-", "-", f"{_without_chunk(arena, style)}{missing}"]


def _without_chunk(arena: ArenaFit, style: Style) -> str:
    if arena.uses_top:
        return "takes it off the top chunk"
    return "maps memory of its own" if arena.grows_by is None else f"grows by {style.bytes(arena.grows_by)}"


def _nearest(piece: ShortPiece, style: Style) -> list[str]:
    return [address_text(piece.address), f"{piece.size:,}", arena_text(piece.arena), f"{piece.short_by:,} bytes"]
