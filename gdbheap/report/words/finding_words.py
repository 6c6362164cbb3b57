"""The record of the words for one kind of finding. Each file ``words.py`` of a rule makes one such record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import Figures

F = TypeVar("F", bound=Figures)


@dataclass(frozen=True)
class Words(Generic[F]):
    """The words for findings with one kind of figures.

    ``text``: a description of the finding. ``advice``: the advice to the user. ``remedy``: the same advice as a clause
    that follows the advice of a more specific finding about the same bytes; "" if there is none. These texts begin with
    a small letter, and end without a full stop. --bytes (exact sizes) does not change them.
    """

    figures: type[F]
    text: Callable[[F], str]
    advice: Callable[[F], str]
    remedy: Callable[[F], str] = lambda figures: ""
