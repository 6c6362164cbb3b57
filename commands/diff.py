"""``heap diff``: show what changed between snapshots."""

from __future__ import annotations

from gdbheap.commands.surface.declaration import Command, Shown
from gdbheap.commands.surface.needs import LOOKS
from gdbheap.commands.surface.options import Common, valued
from gdbheap.dataclass import dataclass
from gdbheap.report.text.numbers import parse_size
from gdbheap.report.words.diff import render
from gdbheap.snapshots.difference import Difference, difference
from gdbheap.snapshots.snapshot import SnapshotWithBlocks

__all__ = ["COMMAND"]


@dataclass
class Options(Common):
    """The options of ``heap diff``. ``limit``: the RSS in bytes whose time is predicted, None for the control group's
    limit.
    """

    limit: int | None = valued(
        "--limit", "SIZE", "predict when RSS reaches SIZE [default: the control group's limit]", None, parse_size
    )


def _answer(looks: tuple[SnapshotWithBlocks, ...], options: Options) -> Difference:
    return difference(looks, options.limit)


def _render(shown: Shown[Difference, Options]) -> str:
    return render(shown.answer, shown.whole, shown.options.top, shown.style)


COMMAND = Command(
    noun="diff",
    summary="Show what changed between snapshots",
    text="""A state is a snapshot, or the current state of a process or a core. diff compares the last state with the
    first. If there are three or more states, diff also shows which figures only rise.""",
    example="heap diff second.heap",
    details="""In gdb, name only snapshots. If you name one, diff compares it with the process or core that is open
    in gdb. The first line says which holders grew. A table follows for each kind of change: holders, ledger, types,
    block sizes, retained bytes, arenas, holes and findings. The changes of the ledger's lines add up to the change of
    RSS. A hole is listed if it is new or gone, together with the blocks next to it.

    The machine's start, the process id and the process's start time identify a process. In states of one process,
    addresses identify arenas, holes and objects. In states of different processes, paths identify objects, and diff
    does not compare holes. If several objects retain the same blocks, diff names the innermost object.

    If there are three or more states, diff shows the figures that never fell, and how fast they rose. If the control
    group has a limit, or `--limit` gives one, a line predicts when RSS reaches the limit. A block counts as kept if a
    block of the same size and type is at its address later. The later block may be a different one.""",
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
