"""The record of the words for one kind of finding. Each file ``words.py`` of a rule makes one such record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from gdbheap.findings.finding import Figures

F = TypeVar("F", bound=Figures)


@dataclass(frozen=True)
class Words(Generic[F]):
    """The words for findings with one kind of figures.

    ``text``: what was found. ``advice``: what to do. ``remedy``: the same advice as a clause that follows the advice of
    a more specific finding about the same bytes; "" if there is none. All begin with a small letter, end without a full
    stop, and are the same with --bytes.
    """

    figures: type[F]
    text: Callable[[F], str]
    advice: Callable[[F], str]
    remedy: Callable[[F], str] = lambda figures: ""
