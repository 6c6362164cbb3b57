"""The page's sections of facts about the target, and of damage in its heap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gdbheap.report.page.html import ADDRESS, Column, Section, paragraph, refused, table
from gdbheap.report.text.numbers import counted

if TYPE_CHECKING:
    from gdbheap.answers.info import Info
    from gdbheap.snapshots.overview import Outcome
    from gdbheap.targets.target import Damage

__all__ = ["damage_section", "facts_section"]

FACTS = (
    Column("fact", "fact"),
    Column("value", "value"),
    Column("source", "source"),
    Column("confirmed", "confirmed by"),
)
DAMAGE = (
    Column("address", "address", ADDRESS), Column("what", "what"), Column("expected", "expected"),
    Column("found", "found"),
)  # fmt: skip


def facts_section(asked: Outcome[Info], most: int) -> Section:
    """Return the section of all facts with their sources, in at most ``most`` rows."""
    title = "Facts on which this report is based"
    if asked.answer is None:
        return refused("facts", title, asked.why)
    facts = asked.answer.rows
    rows = [(fact.fact, fact.value, fact.source, fact.confirmed or "") for fact in facts]
    confirmed = sum(fact.confirmed is not None for fact in facts)
    told = f"{counted(len(rows), 'fact')}, {confirmed} confirmed by a second source or by the target's own bytes."
    return Section("facts", title, paragraph(told) + table("facts-table", "Facts and their sources", FACTS, rows, most))


def damage_section(damage: Sequence[Damage], most: int) -> Section:
    """Return the section of damage: the addresses at which an allocator's data is inconsistent, in at most ``most``
    rows.
    """
    rows = [(place.address, place.what, place.expected, place.found) for place in damage]
    return Section("damage", "Damage", table("damage-table", "Damaged places in the heap", DAMAGE, rows, most))
