"""The text of ``heap check``: whether the heap is damaged, and a row for each damaged place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gdbheap.report.text.numbers import address_text, counted, listed
from gdbheap.report.text.style import FAULT, SOUND, Style
from gdbheap.report.text.tables import Column, join, table
from gdbheap.report.words.aborted import abort_lines

if TYPE_CHECKING:
    from gdbheap.answers.check import Check
    from gdbheap.targets.target import Damage

__all__ = ["named", "render"]

CAUGHT = "caught inside malloc"
# The beginning of texts that already name the allocator.
TOLD = "caught inside "
COLUMNS = (Column("address"), Column("what", True), Column("expected", True), Column("found", True))


def render(answer: Check, style: Style, damage: Sequence[Damage], count: int) -> str:
    """Return the text of the answer: why the process ended, the verdict, and a row for each item of ``damage``.

    ``count``: the number of all damaged places.
    """
    return join(abort_lines(answer.abort, style), _walked(answer, style, damage, count))


def _walked(answer: Check, style: Style, damage: Sequence[Damage], count: int) -> str:
    places = counted(count, "place is", "places are")
    if not count:
        verdict = "Nothing is damaged" if answer.ok else "Not everything could be read"
        return _verdict(answer, verdict, SOUND if answer.ok else FAULT, style)
    if answer.ok:
        verdict = f"{places} being changed by a thread inside malloc"
        return join(_verdict(answer, verdict, None, style), _table(damage, style))
    left = style.bytes(answer.unexplained)
    went_on = f"The check continued after each damaged place. It could not read {left} of glibc's arenas."
    verdict = _verdict(answer, f"{places} damaged", FAULT, style)
    return join(verdict, _table(damage, style), style.filled(went_on))


def _verdict(answer: Check, verdict: str, what: str | None, style: Style) -> str:
    """Return the first line: the verdict in colour, and the amount of data that was walked.

    ``what``: the colour, a key of COLOURS; None for no colour.
    """
    pools = counted(answer.page_count, "page") + " of mimalloc" if answer.page_count else counted(answer.pools, "pool")
    parts = [counted(answer.regions, "region")] if answer.regions else []
    parts += [counted(answer.chunks, "chunk")] if answer.chunks else []
    parts += [f"{counted(answer.slabs, 'slab')} of jemalloc"] if answer.slabs else []
    parts += [f"{counted(answer.spans, 'span')} of tcmalloc"] if answer.spans else []
    parts += [pools] if answer.page_count or answer.pools else []
    were = "was" if len(parts) == 1 and parts[0].startswith("1 ") else "were"
    walked = f"{listed(parts) if parts else 'No blocks'} {were} walked."
    return f"{style.coloured(f'{verdict}.', what)} {style.heading(walked)}"


def named(place: Damage) -> Damage:
    """Return a record of damage for a row of the table. If the damage may be a temporary state of a thread inside the
    allocator, its text says so.
    """
    is_told = not place.transient or place.what.startswith(TOLD)
    return place if is_told else replace(place, what=f"{CAUGHT}: {place.what}")


def _table(damage: Sequence[Damage], style: Style) -> str:
    """Return the table of the damaged places, in the order in which they were found."""
    rows = [[address_text(place.address), place.what, place.expected, place.found] for place in damage]
    return table(COLUMNS, rows, style)
