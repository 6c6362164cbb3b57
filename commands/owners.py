"""``heap owners``: who keeps the large blocks?"""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap.answers import owners
from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Common, minimum_size
from gdbheap.heap import Heap
from gdbheap.report.graph import render_owners

__all__ = ["COMMAND"]


@dataclass
class Options(Common):
    """The options of heap owners."""

    minimum: int = minimum_size()


def _answer(heap: Heap, options: Options) -> owners.Owners:
    return owners.owners(heap, options.minimum, options.top)


def _render(shown: Shown[owners.Owners, Options]) -> str:
    return render_owners(shown.answer, shown.style)


COMMAND = Command(
    noun="owners",
    question="Which Python objects keep the large blocks, and how are those reached?",
    text="""A row for each large block of pymalloc and glibc: its size, the Python object that it is or belongs to,
    and the path from a root to that object: as Python where there is an expression, else in words.""",
    example="heap owners --min=1M --top=10",
    needs=TARGET,
    options=Options,
    answer=_answer,
    render=_render,
    copies=True,
    listed="blocks",
    top=20,
)
