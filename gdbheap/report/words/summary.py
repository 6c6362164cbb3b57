"""The summary of ``heap`` in a few sentences.

The sentences are about used, free and unknown memory, the memory that can be returned, and the reasons why other free
memory cannot be returned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.report.text.numbers import listed
from gdbheap.report.text.style import Style

if TYPE_CHECKING:
    from gdbheap.first_page.summary import NotWalked, Summary

__all__ = ["render"]

MIN_PERCENT_TOLD = 1
# The names of unknown memory, by the id of its ledger line.
PLACES = {"shared": "shared memory", "other.rest": "other anonymous memory"}
FREE = "the free memory"
MALLOCS = "malloc's blocks with mappings of their own"


def render(answer: Summary, names: dict[str, str], style: Style) -> str:
    """Return the bytes in use and free in the allocators, what a trim would return, and why other free memory stays.

    Return "" if no block was found. ``names``: the names of the ledger's lines, by their ids.
    """
    told = [_books(answer, names, style)]
    if not style.rss or 100 * (answer.free_resident or 0) >= MIN_PERCENT_TOLD * style.rss:
        told += [_given_back(answer, style), _stays(answer, style)]
    return " ".join(filter(None, [*told, _not_walked(answer.unknown, style)]))


def _books(answer: Summary, names: dict[str, str], style: Style) -> str:
    if not answer.used + answer.free:
        return ""
    used, free = style.bytes(answer.used), style.bytes(answer.free)
    where = listed([names.get(name, name) for name in answer.allocators])
    is_part = answer.unknown is not None or answer.outside > 0
    start = f"In {where}, {used} is in use" if is_part else f"{used} is in use by the program"
    if answer.free_resident is None or answer.used_resident is None:
        return f"{start} and {free} is free; how much of this memory is resident is unknown."
    there = style.bytes(answer.used_resident)
    resident = "" if there == used else f" ({there} of it resident)"
    return f"{start}{resident}, and {style.bytes(answer.free_resident)} is free and resident."


def _given_back(answer: Summary, style: Style) -> str:
    """Return a sentence about free memory: how much of it lies in completely free pages, and how much a call of
    malloc_trim() would return.
    """
    if not answer.free_resident or answer.whole is None:
        return ""
    whole = f"{style.bytes(answer.whole) if answer.whole else 'None'} of {FREE} is in completely free pages."
    if answer.returnable is None:
        return whole
    size = style.bytes(answer.returnable) if answer.returnable else "nothing"
    return f"{whole} malloc_trim(0) would return {size}."


def _stays(answer: Summary, style: Style) -> str:
    """Return a sentence that says why free memory is not returned. A reason that applies to less than 1 % of this
    memory is not named.
    """
    rest = sum(row.bytes for row in answer.kept)
    told = [row for row in answer.kept if 100 * row.bytes >= MIN_PERCENT_TOLD * rest]
    if not told:
        return ""
    is_part = bool(answer.returnable) or rest < (answer.free_resident or 0)
    start = f"{style.bytes(rest)} of {FREE} stays" if is_part else f"{FREE.capitalize()} stays"
    if len(told) == 1:
        return f"{start} {told[0].why}."
    return f"{start}: {', '.join(f'{style.bytes(row.bytes)} {row.why}' for row in told)}."


def _not_walked(unknown: NotWalked | None, style: Style) -> str:
    """Return a sentence about memory that gdbheap does not examine; "" if none of it is resident."""
    if unknown is None or unknown.bytes == 0:
        return ""
    own = "its own memory" if unknown.own else "its own and other anonymous memory"
    where = PLACES.get(unknown.id) or (own if unknown.id.startswith("other.") else MALLOCS)
    start = f"gdbheap cannot list the blocks of {unknown.name}. " if unknown.name else ""
    part = "" if unknown.bytes is None else f"{style.bytes(unknown.bytes)} of "
    return f"{start}It is unknown how much of {part}{where} is free."
