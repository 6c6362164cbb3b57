"""Facts about a target, each with its source."""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap.text import Sentence


@dataclass(frozen=True)
class Fact:
    """One fact, its source, and what confirms it (None if nothing does)."""

    fact: str
    value: str
    source: str
    confirmed: str | None


class Facts:
    """The facts of one target, one for each name."""

    def __init__(self) -> None:
        self._facts: dict[str, Fact] = {}

    def add(self, fact: str, value: object, source: str, confirmed: str | None = None) -> None:
        """State a fact; it replaces an earlier one of the same name.

        ``source``: words of ours, in which the target's names are ``named``.
        """
        text = f"{value:#x}" if isinstance(value, int) and value > 0xFFFF else str(value)
        self._facts[fact] = Fact(fact, text, Sentence(source), confirmed)

    def take(self, others: Facts) -> None:
        """State all facts of ``others``."""
        self._facts.update({fact.fact: fact for fact in others.all()})

    def all(self) -> list[Fact]:
        """Return all facts sorted by name, so that the order does not depend on earlier questions."""
        return sorted(self._facts.values(), key=lambda fact: fact.fact.casefold())
