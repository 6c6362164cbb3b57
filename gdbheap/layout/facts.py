"""Facts about a target, each with its source."""

from __future__ import annotations

from gdbheap.dataclass import dataclass
from gdbheap.text import Sentence


@dataclass(frozen=True)
class Fact:
    """A fact about a target: its name, its value, its source, and a second source that confirms it (None if there is
    none)."""

    fact: str
    value: str
    source: str
    confirmed: str | None


class Facts:
    """The facts about one target. No two of them have the same name."""

    def __init__(self) -> None:
        self._facts: dict[str, Fact] = {}

    def add(self, fact: str, value: object, source: str, confirmed: str | None = None) -> None:
        """Add a fact; it replaces an earlier fact of the same name.

        ``source`` is a sentence that gdbheap wrote. Names from the target must be made printable with ``named`` first.
        """
        text = f"{value:#x}" if isinstance(value, int) and value > 0xFFFF else str(value)
        self._facts[fact] = Fact(fact, text, Sentence(source), confirmed)

    def take(self, others: Facts) -> None:
        """Add all facts of ``others``. They replace facts of the same names."""
        self._facts.update({fact.fact: fact for fact in others.all()})

    def all(self) -> list[Fact]:
        """Return all facts sorted by name, so that output does not depend on the order in which they were added."""
        return sorted(self._facts.values(), key=lambda fact: fact.fact.casefold())
