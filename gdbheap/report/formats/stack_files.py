"""Stacks with weights as files: for other programs, or as a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from gdbheap.dataclass import dataclass
from gdbheap.report.formats.composition import MEMORY
from gdbheap.report.formats.flame import Subject, flame_graph
from gdbheap.report.formats.pprof import pprof_of_tree
from gdbheap.report.formats.weighted import folded, speedscope

if TYPE_CHECKING:
    from gdbheap.stacks import Weighted

__all__ = ["FORMATS", "Drawing"]


@dataclass(frozen=True)
class Drawing:
    """Stacks to draw, and the title of the picture.

    ``subject``: what the stacks' weights count. ``profile``: a function that makes the file for pprof; if it is None,
    that file is made from ``stacks``.
    """

    stacks: Sequence[Weighted]
    title: str
    subject: Subject = MEMORY
    profile: Callable[[], bytes] | None = None


FORMATS: dict[str, Callable[[Drawing], Iterable[bytes]]] = {
    "folded": lambda drawing: folded(drawing.stacks),
    "svg": lambda drawing: [flame_graph(drawing.stacks, drawing.title, subject=drawing.subject).encode()],
    "speedscope": lambda drawing: [speedscope(drawing.stacks, drawing.title, counts=drawing.subject.counts).encode()],
    "pprof": lambda drawing: [(drawing.profile or (lambda: pprof_of_tree(drawing.stacks)))()],
}
"""For each value of --format, the function that returns the parts of the file."""
