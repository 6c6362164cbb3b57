"""Compare processes, cores and snapshots."""

from __future__ import annotations

from contextlib import ExitStack
from html import escape

from gdbheap.api.arguments import Size, Target, size_of
from gdbheap.api.heap import Heap, reading_of
from gdbheap.api.opening import open
from gdbheap.api.table import Table
from gdbheap.dataclass import dataclass
from gdbheap.report.text.style import Style
from gdbheap.report.words.diff import render
from gdbheap.snapshots import difference as differences
from gdbheap.snapshots.snapshot import SnapshotWithBlocks
from gdbheap.text import IN_SHELL, printable_record

__all__ = ["Change", "Difference", "diff"]

MOST_SHOWN = 20


@dataclass(frozen=True)
class Change:
    """The change of a ledger line, a type or a holder.

    ``bytes``: the change in bytes, from ``before`` to ``after``; ``count``: the change in the number of objects.
    ``state``: "new", "gone" or "changed"."""

    name: str
    bytes: int | None
    before: int | None
    after: int | None
    count: int | None = None
    state: str = "changed"


class Difference:
    """The changes from the first compared target to the last. ``print(difference)`` prints the text of ``gdbheap
    diff``.
    """

    def __init__(self, found: differences.Difference) -> None:
        self._found = found

    def __str__(self) -> str:
        style = Style(rss=self._found.compared[-1].rss, command=IN_SHELL)
        found = printable_record(self._found)
        return render(found, found, MOST_SHOWN, style)

    def __repr__(self) -> str:
        return f"<gdbheap.Difference of {len(self._found.compared)} snapshots>"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    @property
    def rss(self) -> int | None:
        """The growth of RSS in bytes; None if it is unknown for one of the targets."""
        return self._found.rss

    @property
    def in_use(self) -> int | None:
        """The growth of memory in use, in resident bytes; None if unknown."""
        return self._found.in_use

    @property
    def free(self) -> int | None:
        """The growth of free memory, in resident bytes; None if unknown."""
        return self._found.free

    @property
    def seconds(self) -> float:
        """The time from the first target to the last, in seconds."""
        return self._found.compared[-1].time - self._found.compared[0].time

    @property
    def same_process(self) -> bool:
        """Whether all targets are the same process: of the same host and boot, with the same id and start time."""
        return self._found.same_process

    @property
    def ledger(self) -> Table[Change]:
        """The changes of the ledger's lines in resident bytes, in the ledger's order."""
        rows = (Change(row.name, row.resident, row.looks[0], row.looks[-1]) for row in self._found.ledger)
        return Table(rows, Change)

    @property
    def types(self) -> Table[Change]:
        """The types that changed, with their buffers, largest growth first."""
        rows = (Change(row.type, row.bytes, row.looks[0], row.looks[-1], row.count) for row in self._found.types)
        return Table(rows, Change)

    @property
    def holders(self) -> Table[Change]:
        """The holders that changed; empty if the holders of one of the targets are unknown."""
        found = self._found.holders or []
        rows = (Change(row.path, row.bytes, row.looks[0], row.looks[-1], row.count, row.state) for row in found)
        return Table(rows, Change)


def diff(
    first: Target | Heap,
    second: Target | Heap,
    *more: Target | Heap,
    limit: Size | None = None,
) -> Difference:
    """Compare two or more targets: paths of snapshots or cores, ids of processes (which are read now), or open heaps.

    ``limit``: also find out when RSS will reach this size. Raises the same errors as ``open``.
    """
    with ExitStack() as held:
        heaps = [
            target if isinstance(target, Heap) else held.enter_context(open(target))
            for target in (first, second, *more)
        ]
        readings = [reading_of(heap) for heap in heaps]
        kept = [one.stored() for one in readings]
        # If a snapshot contains all blocks, read the blocks of the other targets too.
        with_blocks = any(look is not None and look.columns is not None for look in kept)
        looks: list[SnapshotWithBlocks] = [look or one.look(with_blocks) for one, look in zip(readings, kept)]
    return Difference(differences.difference(looks, None if limit is None else size_of(limit)))
