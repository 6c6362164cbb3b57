"""What a file of words has for each kind of figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from gdbheap.findings.finding import Figures

F = TypeVar("F", bound=Figures)


@dataclass(frozen=True)
class Words(Generic[F]):
    """The words for findings with one kind of figures. ``text``: what was found; ``advice``: what to do; ``remedy``:
    the advice as a clause beside that of a more specific finding about the same bytes, "" where there is none. All have
    no capital letter at the beginning and no full stop at the end, and are the same with --bytes."""

    figures: type[F]
    text: Callable[[F], str]
    advice: Callable[[F], str]
    remedy: Callable[[F], str] = lambda figures: ""
