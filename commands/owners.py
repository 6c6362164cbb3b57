"""``heap owners``: who keeps the large blocks?"""

from __future__ import annotations

from gdbheap.answers import owners
from gdbheap.commands.surface.declaration import MINIMUM, Command, Options, Shown
from gdbheap.heap import Heap
from gdbheap.report.graph import render_owners

__all__ = ["COMMAND"]

MIB = 1 << 20


def _answer(heap: Heap, options: Options) -> owners.Owners:
    return owners.owners(heap, options.minimum, options.top)


def _render(shown: Shown[owners.Owners]) -> str:
    return render_owners(shown.answer, shown.style)


COMMAND = Command(
    noun="owners",
    question="Which Python objects keep the large blocks, and how are those reached?",
    text="""A row for each large block of pymalloc and glibc: its size, the Python object that it is or belongs to, and
    the way from a root to that object: as Python where there is an expression, else in words.""",
    example="heap owners --min=1M --top=10",
    answer=_answer,
    render=_render,
    copies=True,
    options=(MINIMUM,),
    defaults={"minimum": MIB},
    listed="blocks",
    top=20,
)
