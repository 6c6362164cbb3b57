"""The class of the texts for one kind of finding. The file ``words.py`` of each rule creates one object of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import Figures

F = TypeVar("F", bound=Figures)


@dataclass(frozen=True)
class Words(Generic[F]):
    """The texts for one kind of finding. Each begins with a small letter and has no full stop. --bytes (exact sizes)
    does not change them.

    ``figures``: the class of the findings' figures.
    ``text``: a description of the finding.
    ``advice``: the advice to the user.
    ``remedy``: the same advice as a clause. It follows the advice of a more specific finding about the same bytes. ""
    if there is none.
    """

    figures: type[F]
    text: Callable[[F], str]
    advice: Callable[[F], str]
    remedy: Callable[[F], str] = lambda figures: ""
