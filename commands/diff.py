"""``heap diff``: show what changed between snapshots."""

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
        "--limit", "SIZE", "predict when RSS reaches SIZE [default: the control group's limit]", None, parse_size
    )


def _answer(looks: tuple[Look, ...], options: Options) -> Difference:
    return difference(looks, options.limit)


def _render(shown: Shown[Difference, Options]) -> str:
    return render(shown.answer, shown.whole, shown.options.top, shown.style)


COMMAND = Command(
    noun="diff",
    summary="Show what changed between snapshots",
    text="""A state is a snapshot, or the present state of a process or a core. The last state is compared with the
    first. Three or more states also show which figures only rise.""",
    example="heap diff second.heap",
    details="""In gdb, all states are snapshots. A single snapshot is compared with gdb's target. The first line says
    which holders grew. A table follows for each kind of change: holders, ledger, types, block sizes, retained bytes,
    arenas, holes and findings. The ledger's changes add up to the change of RSS. Holes are listed if they are new or
    gone, with the blocks that pin them.

    The machine's start, the process id and the process's start time identify a process. In states of one process,
    addresses identify arenas, holes and objects. In states of different processes, paths identify objects, and holes
    are not compared. If several objects retain the same blocks, the innermost object is named.

    Three or more states show which figures rose from each state to the next, and how fast. If the control group has a
    limit, or `--limit` gives one, a line predicts when RSS reaches it. A block counts as kept if its address has a
    block of the same size and type. It may be a different block.""",
    needs=LOOKS,
    options=Options,
    answer=_answer,
    render=_render,
    rows="types",
    listed="types",
    sorts={
        "together": lambda row: row.bytes,
        "bytes": lambda row: row.bytes,
        "own": lambda row: row.own,
        "count": lambda row: row.count,
        "type": lambda row: row.type,
    },
    top=20,
)
