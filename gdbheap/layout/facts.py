"""What is known about a target, and where each thing known comes from."""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap.text import Sentence


@dataclass(frozen=True)
class Fact:
    """One thing known."""

    fact: str
    value: str
    source: str
    confirmed: str | None


class Facts:
    """The facts of one target; a name is stated once."""

    def __init__(self) -> None:
        self._facts: dict[str, Fact] = {}

    def add(self, fact: str, value: object, source: str, confirmed: str | None = None) -> None:
        """State a fact; a later statement of the same name replaces the earlier one. ``source``: words of ours, in
        which names are ``named``."""
        text = f"{value:#x}" if isinstance(value, int) and value > 0xFFFF else str(value)
        self._facts[fact] = Fact(fact, text, Sentence(source), confirmed)

    def take(self, others: Facts) -> None:
        """State what ``others`` state."""
        self._facts.update({fact.fact: fact for fact in others.all()})

    def all(self) -> list[Fact]:
        """Return every fact by name, in an order that does not depend on what was asked before."""
        return sorted(self._facts.values(), key=lambda fact: fact.fact.casefold())
