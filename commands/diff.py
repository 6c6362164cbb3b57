"""``heap diff``: what changed between looks, and what only grows?"""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import LOOKS
from gdbheap.commands.surface.options import Common, valued
from gdbheap.report.text.numbers import parse_size
from gdbheap.report.words.difference import render
from gdbheap.snapshots.difference import Difference, difference
from gdbheap.snapshots.snapshot import Look

__all__ = ["COMMAND"]


@dataclass
class Options(Common):
    """The options of heap diff."""

    limit: int | None = valued(
        "--limit", "SIZE", "when will RSS reach this? (the default is the limit of the process's control group)", None,
        parse_size,
    )  # fmt: skip


def _answer(looks: tuple[Look, ...], options: Options) -> Difference:
    return difference(looks, options.limit)


def _render(shown: Shown[Difference, Options]) -> str:
    return render(shown.answer, shown.whole, shown.options.top, shown.style)


COMMAND = Command(
    noun="diff",
    question="What changed between two looks, or more? What only grows?",
    text="""Each look is a snapshot, or a process or core that is looked at now; the last is compared with the first.
    In gdb they are snapshots, and one alone is compared with gdb's own target. The first line says which holders grew.
    Then comes a table for each kind of thing that changed: the holders of what is in use, the lines of the ledger
    (they add up to the difference of RSS), types, block sizes, what objects retain, arenas, holes that are new or gone
    with what pins them, and findings. Looks at one process are recognised by the machine's start, the process's id and
    its start; then addresses identify arenas, holes and objects. Otherwise paths identify objects, and holes are not
    compared. Of objects that retain the same the innermost one is named. With three looks or more a table says what
    rose from each to the next, and how fast; and where the control group has a limit, or --limit says one, when RSS
    reaches it. A block that is kept lies where one of its size and type lay, and may be its like.""",
    example="heap diff second.heap",
    needs=LOOKS,
    options=Options,
    answer=_answer,
    render=_render,
    rows="types",
    listed="types",
    sorts={
        "together": lambda row: row.together,
        "bytes": lambda row: row.bytes,
        "count": lambda row: row.count,
        "type": lambda row: row.type,
    },
    top=20,
)
