"""Text about holders that grew: a sentence about the holders that grew most, and a description of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gdbheap.answers.shared_out import NOBODY
from gdbheap.report.text.numbers import count_text
from gdbheap.report.text.style import Style
from gdbheap.report.text.unfinished import at_least
from gdbheap.report.words.main_holders import object_text

if TYPE_CHECKING:
    from gdbheap.answers.holder_change import HolderChange

__all__ = ["growth_sentence", "now_text", "signed"]

# A holder that grew by less than this share of RSS has no sentence. At most MOST holders have one.
MIN_PERCENT, MOST = 1, 3
UNREACHABLE = "Unreachable memory"
FREE = "Free memory in the allocators grew by {}."


def growth_sentence(holders: Sequence[HolderChange] | None, in_use: int | None, free: int | None, style: Style) -> str:
    """Return sentences about the holders that grew, and about growth of free memory; the larger growth comes first.

    Return "" if neither is known.
    """
    kept = FREE.format(style.bytes(free)) if free and _is_much(free, style) else ""
    if holders is None:
        return kept
    grown = [row for row in holders if row.bytes > 0]
    told = " ".join(_grew(row, style) for row in grown[:MOST] if _is_much(row.bytes, style))
    if not told:
        told = _little(grown, style)
    is_first = bool(kept) and (free or 0) > (in_use or 0)
    return " ".join(filter(None, [kept, told] if is_first else [told, kept]))


def _is_much(size: int, style: Style) -> bool:
    return size > 0 if not style.rss else 100 * size >= MIN_PERCENT * style.rss


def _grew(row: HolderChange, style: Style) -> str:
    """Return a sentence with the growth of a holder, and its sizes before and after."""
    first, last = (style.bytes(size) for size in (row.looks[0], row.looks[-1]))
    sizes = f"now {last}" if row.state == "new" else f"{first} to {last}"
    told = "; ".join(filter(None, [sizes, now_text(row)]))
    who = UNREACHABLE if row.kind == NOBODY else f"Holder {row.path}"
    return f"{who} grew by {at_least(style.bytes(row.bytes), row.at_least)} ({told})."


def now_text(row: HolderChange) -> str:
    """Return a description of a holder with its number of items and, if that changed, the earlier number."""
    first, last = row.counts[0], row.counts[-1]
    is_one = row.address is not None
    if first is None or last is None or first == last:
        return object_text(row.what, last if last is not None else first, is_one)
    return f"{object_text(row.what, first, is_one)}, now {count_text(last)}"


def _little(grown: Sequence[HolderChange], style: Style) -> str:
    share = f" by {MIN_PERCENT} % of RSS or more" if style.rss else ""
    of = UNREACHABLE.lower() if grown and grown[0].kind == NOBODY else grown[0].path if grown else ""
    most = f"; the largest growth is {style.bytes(grown[0].bytes)}, of {of}" if grown else ""
    return f"No holder grew{share if grown else ''}{most}."


def signed(size: int | None, style: Style) -> str:
    """Return a size with its sign; "0 B" for 0, a hyphen for None (unknown)."""
    if size is None:
        return "-"
    sign = "+" if size > 0 else "-" if size < 0 else ""
    return f"{sign}{style.size(abs(size))}"
