"""The text of ``heap check``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gdbheap.report.text.numbers import address_text, counted
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
    pools = counted(answer.page_count, "page") + " of mimalloc" if answer.page_count else counted(answer.pools, "pool")
    slabs = f", {counted(answer.slabs, 'slab')} of jemalloc" if answer.slabs else ""
    slabs += f", {counted(answer.spans, 'span')} of tcmalloc" if answer.spans else ""
    walked = f"{counted(answer.regions, 'region')}, {counted(answer.chunks, 'chunk')}{slabs} and {pools} were walked"
    if not count:
        verdict = "nothing is damaged" if answer.ok else "not everything could be read"
        return _verdict(walked, verdict, SOUND if answer.ok else FAULT, style)
    if answer.ok:
        places = counted(count, "place is", "places are")
        verdict = f"{places} being changed by a thread inside malloc"
        return join(style.heading(f"{walked}; {verdict}."), _table(damage, style))
    places = counted(count, "place is", "places are")
    left = style.bytes(answer.unexplained)
    went_on = f"The check continued after each damaged place. It could not read {left} of glibc's arenas."
    return join(_verdict(walked, f"{places} damaged", FAULT, style), _table(damage, style), style.filled(went_on))


def _verdict(walked: str, verdict: str, what: str, style: Style) -> str:
    """Return the first line: the amount of data that was walked, and the verdict in colour.

    ``what``: the colour, a key of COLOURS.
    """
    return f"{style.heading(f'{walked};')} {style.coloured(f'{verdict}.', what)}"


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
