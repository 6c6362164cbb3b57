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
    (they add up to the difference of RSS), types, block sizes, what objects retain, arenas, holes that are new or
    gone with what pins them, and findings. Looks at one process are recognised by the machine's start, the process's
    id and its start; then addresses identify arenas, holes and objects. Otherwise paths identify objects, and holes
    are not compared. Of objects that retain the same the innermost one is named. With three looks or
    more a table says what rose from each to the next, and how fast; and where the control group has a limit, or
    --limit says one, when RSS reaches it.

    In JSON all differences are the last look less the first. looks is a list of {time, target, rss, program}; ledger
    a list of {id, parent, name, resident, virtual, looks}, types of {type, count, bytes, buffers, looks}, sizes of
    {allocator, size, count, bytes}, arenas of {index, address, state, system, in_use, top}, owners of {address, type,
    path, state, retained, looks, chain}, holes of {address, size, resident, allocator, state, pins}, findings of {id,
    state, bytes}; state is new, gone or changed, and looks has a number of bytes for each look. trend is a list of
    {kind, name, looks, rate}, rate in bytes a second; seconds_left counts from the last look to the limit. holders is
    a list of {path, kind, what, address, state, bytes, looks, count, counts, at_least, parts}, what grew the most
    first: bytes more, count items more (counts: in each look), at_least where it grew by this or more, parts the
    paths below it that some looks have as holders of their own; null where a look has no holders. in_use and free are
    resident bytes more of blocks in use and of free ones. blocks, where both looks have them, is a list of {type,
    size, kept, new, gone, addresses, holders}, else null: a block that is kept lies where one of its size and type
    lay, and may be its like; holders is a list of {type, path, count}, who alone keeps the new ones alive, the first
    five: an object among the 200 that retain the most, a module or a root; null where no graph was drawn.""",
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
