"""Compare snapshots: each number is its value in the last snapshot minus its value in the first.

Between snapshots of one process, arenas, holes and objects are identified by their addresses. Between two processes,
arenas are identified by their position in malloc's circular list, and objects by their paths. Holes are not compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeVar

from gdbheap.answers.arenas import Arena
from gdbheap.answers.holder_change import CHANGED, GONE, NEW, Change, HolderChange
from gdbheap.answers.holes import Hole
from gdbheap.answers.pyobjects import TypeRow
from gdbheap.answers.retained import NAMED_BY_WORDS
from gdbheap.answers.retained_rows import RetainedRow
from gdbheap.dataclass import dataclass
from gdbheap.findings.settlement import HOLDER
from gdbheap.first_page.ledger import Line
from gdbheap.snapshots.blocks import BlockChange, changed_blocks
from gdbheap.snapshots.holder_changes import changed_holders
from gdbheap.snapshots.snapshot import MAX_OWNERS, Snapshot, SnapshotWithBlocks

__all__ = ["Difference", "difference"]

IDENTITY = ("host", "boot_id", "pid", "start_time")

Rising = Literal["rss", "line", "type"]
FindingState = Literal["new", "gone", "changed", "unknown"]
R = TypeVar("R")


@dataclass(frozen=True)
class Compared:
    """One of the compared snapshots. ``program``: the name of the program, "" in older files."""

    time: float
    target: dict[str, Any]
    rss: int | None
    program: str = ""


@dataclass(frozen=True)
class LineChange:
    """A line of the ledger, and how it changed.

    ``resident``, ``virtual``: by how many bytes it grew.
    ``looks``: its resident bytes in each snapshot.
    """

    id: str
    parent: str | None
    name: str
    resident: int | None
    virtual: int
    looks: list[int | None]


@dataclass(frozen=True)
class TypeChange:
    """A type, and how the number and bytes of its objects changed.

    ``own``: the bytes of the objects' own blocks.
    ``buffers``: the bytes of the blocks that the objects own.
    ``looks``: the sum of both in each snapshot.
    """

    type: str
    count: int
    own: int
    buffers: int
    bytes: int
    looks: list[int]


@dataclass(frozen=True)
class SizeChange:
    """Blocks of one size that an allocator has handed out, and how their number changed."""

    allocator: str
    size: int
    count: int
    bytes: int


@dataclass(frozen=True)
class ArenaChange:
    """An arena of malloc, and how it changed.

    ``index`` and ``address``: those of the last snapshot if it has the arena, otherwise those of the first.
    """

    index: int
    address: int
    state: Change
    system: int
    in_use: int
    top: int


@dataclass(frozen=True)
class OwnerChange:
    """One of the objects that retain the most in the first or the last snapshot, and how much its retained bytes
    changed.

    If several objects retain the same blocks, it is the innermost of them.
    ``retained``: by how many bytes they grew. ``looks``: the retained bytes in each snapshot.
    """

    address: int | None
    type: str
    path: str | None
    state: Change
    retained: int
    looks: list[int]
    chain: str | None = None


@dataclass(frozen=True)
class HoleChange:
    """A hole that appeared or disappeared between the snapshots.

    A new hole is in the last snapshot and overlaps no hole of the first. A hole that is gone is in the first snapshot
    and overlaps no hole of the last. ``around``: the blocks before and after the hole, as text.
    """

    address: int
    size: int
    resident: int | None
    allocator: str
    state: Change
    around: list[str]


@dataclass(frozen=True)
class FindingChange:
    """A finding of ``heap``, and by how much its ``bytes`` changed.

    The bytes of a finding are the memory that its advice would save. ``state``: "unknown" if one of the snapshots has
    the finding, and the other did not look for it; ``bytes`` is None then.
    """

    id: str
    state: FindingState
    bytes: int | None


@dataclass(frozen=True)
class Trend:
    """A figure that only rose over three or more snapshots.

    ``kind``: "rss", "line" (a line of the ledger) or "type".
    ``name``: the id of the line, or the type.
    ``looks``: the figure in each snapshot, in bytes.
    ``rate``: the growth in bytes per second.
    """

    kind: Rising
    name: str
    looks: list[int]
    rate: float


@dataclass(frozen=True)
class Difference:
    """The answer of ``heap diff``: the last snapshot minus the first.

    ``limit``: the memory limit in bytes.
    ``seconds_left``: after how many seconds RSS reaches the limit at this rate of growth; None if unknown.
    """

    compared: list[Compared]
    same_process: bool
    rss: int | None
    ledger: list[LineChange]
    types: list[TypeChange]
    sizes: list[SizeChange]
    arena_changes: list[ArenaChange]
    owners: list[OwnerChange]
    holes: list[HoleChange]
    findings: list[FindingChange]
    trend: list[Trend] = field(default_factory=list)
    limit: int | None = None
    seconds_left: float | None = None
    block_changes: list[BlockChange] | None = None
    holders: list[HolderChange] | None = None
    in_use: int | None = None
    free: int | None = None


def difference(taken: Sequence[SnapshotWithBlocks], limit: int | None = None) -> Difference:
    """Return the changes from the first of two or more snapshots to the last.

    ``limit``: bytes, used instead of the control group's limit.
    """
    looks = [look.snapshot for look in taken]
    first, last = looks[0], looks[-1]
    same = _is_one_process(looks)
    limit = last.limit if limit is None else limit
    rss = _more(first.ledger.rss.bytes, last.ledger.rss.bytes)
    lines, types = _lines(looks), _types(looks)
    return Difference(
        [Compared(look.time, look.target, look.ledger.rss.bytes, look.ledger.program) for look in looks],
        same,
        rss,
        lines,
        types,
        _sizes(first, last),
        _arenas(first, last, same),
        _owners(looks, same),
        _holes(first, last) if same else [],
        _findings(first, last),
        _trend(looks, lines, types),
        limit,
        _seconds_left(first, last, rss, limit),
        _blocks(taken[0], taken[-1]) if same else None,
        changed_holders(looks, same),
        *(_of_summary(first, last, name) for name in ("used_resident", "free_resident")),
    )


def _is_one_process(looks: Sequence[Snapshot]) -> bool:
    """Return whether all snapshots may be of one process.

    A core does not record when the machine was started. So a core may be of any process that has the pid and the
    executable in the core."""
    known = [{key: look.target.get(key) for key in IDENTITY} for look in looks]
    for key in ("pid", "exe"):
        if len({look.target.get(key) for look in looks}) > 1:
            return False
    return all(len({one[key] for one in known if one[key] is not None}) <= 1 for key in IDENTITY)


def _more(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def _of_summary(first: Snapshot, last: Snapshot, name: str) -> int | None:
    before, after = (getattr(look.ledger.summary, name, None) for look in (first, last))
    return _more(before, after)


def _keyed(rows: Iterable[R], key: Callable[[R], Hashable]) -> dict[Any, R]:
    return {key(row): row for row in rows}


def _lines(looks: Sequence[Snapshot]) -> list[LineChange]:
    """Return every line of the ledger that any snapshot has, in the order of the last snapshot.

    If a snapshot lacks a line, the line counts as 0 bytes there.
    """
    tables = [_keyed(look.ledger.ledger, lambda line: line.id) for look in looks]
    lines: dict[str, Line] = {}
    for table in reversed(tables):
        for name, line in table.items():
            lines.setdefault(name, line)
    changes = []
    for name, line in lines.items():
        found = [table.get(name) for table in tables]
        resident = [0 if one is None else one.resident for one in found]
        virtual = [0 if one is None else one.virtual for one in found]
        change = _more(resident[0], resident[-1])
        changes.append(LineChange(name, line.parent, line.name, change, virtual[-1] - virtual[0], resident))
    return changes


def _types(looks: Sequence[Snapshot]) -> list[TypeChange]:
    """Return the types that changed, those that grew the most first."""
    tables = [_keyed(look.objects.rows if look.objects else [], lambda row: row.type) for look in looks]
    changes = []
    for name in dict.fromkeys(name for table in tables for name in table):
        found = [table.get(name, TypeRow(name, 0, 0, 0, 0, 0)) for table in tables]
        first, last = found[0], found[-1]
        counts = last.count - first.count, last.own - first.own, last.buffers - first.buffers
        if any(counts) or len({row.bytes for row in found}) > 1:
            changes.append(TypeChange(name, *counts, counts[1] + counts[2], [row.bytes for row in found]))
    return sorted(changes, key=lambda change: (-change.bytes, change.type))


def _sizes(first: Snapshot, last: Snapshot) -> list[SizeChange]:
    counts = [{(row.allocator, row.size): row.count for row in look.sizes} for look in (first, last)]
    changes = []
    for allocator, size in sorted({*counts[0], *counts[1]}):
        more = counts[1].get((allocator, size), 0) - counts[0].get((allocator, size), 0)
        if more:
            changes.append(SizeChange(allocator, size, more, more * size))
    return sorted(changes, key=lambda change: -change.bytes)


def _states(before: dict[Any, R], after: dict[Any, R]) -> list[tuple[R, R | None, R | None, Change]]:
    """Return (item, before, after, change) for each item that is in at least one of two snapshots.

    ``before``, ``after``: the item in the first and in the last snapshot, None if that snapshot lacks it.
    ``item``: the later of the two.
    ``change``: NEW, GONE or CHANGED; the last one means only that both snapshots have the item.
    """
    found = []
    for key in {**after, **before}:
        old, new = before.get(key), after.get(key)
        either = new if new is not None else old
        assert either is not None
        found.append((either, old, new, NEW if old is None else GONE if new is None else CHANGED))
    return found


def _arenas(first: Snapshot, last: Snapshot, same: bool) -> list[ArenaChange]:
    key: Callable[[Arena], int] = (lambda arena: arena.address) if same else (lambda arena: arena.index)
    before, after = (_keyed(look.arenas.arenas if look.arenas else [], key) for look in (first, last))
    changes = []
    for arena, old, new, state in _states(before, after):
        more = [(getattr(new, name) if new else 0) - (getattr(old, name) if old else 0)
                for name in ("system", "in_use", "top")]  # fmt: skip
        if any(more) or state != CHANGED:
            changes.append(ArenaChange(arena.index, arena.address, state, *more))
    return changes


def _owners(looks: Sequence[Snapshot], same: bool) -> list[OwnerChange]:
    """Return the changes of objects' retained sizes; between two processes, only of objects with a path.

    A snapshot has rows only for the largest objects. An object without a row counts as large as the smallest row, so
    that no growth is overstated. A row also lists ``inner`` objects, which retain the same bytes. An object that the
    last snapshot has only as an inner object gets no row here.
    """
    if any(look.owners is None for look in looks):
        return []
    key = _owner_key(looks, same)
    rows = [[row for row in look.owners or [] if same or row.path is not None] for look in looks]
    tables = [_keyed(own, key) for own in rows]
    inner = [{key(one): one for row in own for one in row.inner} for own in rows]
    bounds = [_bound(look.owners or []) for look in looks]
    changes = []
    for row, _old, _new, state in _states(tables[0], tables[-1]):
        name = key(row)
        if name in inner[-1] and name not in tables[-1]:
            continue
        found = [table.get(name) or others.get(name) for table, others in zip(tables, inner)]
        of_looks = [min(bound, row.retained) if one is None else one.retained for one, bound in zip(found, bounds)]
        if of_looks[0] != of_looks[-1]:
            state = CHANGED if found[0] is not None and found[-1] is not None else state
            more, shown = of_looks[-1] - of_looks[0], row.innermost
            changes.append(OwnerChange(shown.address, shown.type, shown.path, state, more, of_looks, shown.chain))
    return sorted(changes, key=lambda change: -change.retained)


def _owner_key(looks: Sequence[Snapshot], same: bool) -> Callable[[RetainedRow], Hashable]:
    """Return the function that identifies an object across snapshots.

    Within one process, an object in several snapshots is identified by its address, because its path may change. Any
    other object is identified by its path. A row without both is identified by its name (``chain``), if it has one: a
    library's data, for example.
    """
    met = [one for look in looks for row in look.owners or [] if same for one in (row, *row.inner)]
    places = Counter((row.address, row.type) for row in met)

    def key(row: RetainedRow) -> Hashable:
        if row.address is None and row.path is None:
            return (row.chain if row.type in NAMED_BY_WORDS else None, row.type)
        is_met_again = places[row.address, row.type] > 1
        return (row.address if is_met_again or row.path is None else row.path, row.type)

    return key


def _bound(rows: Sequence[RetainedRow]) -> int:
    """Return the most bytes that an object without a row may retain: those of the smallest row.

    The result is 0 if there are fewer than MAX_OWNERS rows, because then no object was left out.
    """
    return min(row.retained for row in rows) if len(rows) >= MAX_OWNERS else 0


def _holes(first: Snapshot, last: Snapshot) -> list[HoleChange]:
    """Return the holes that appeared or disappeared between the two snapshots, the largest first."""
    before, after = (look.holes.rows if look.holes else [] for look in (first, last))
    changes = [_hole(hole, NEW) for hole in _apart(after, before)] + [
        _hole(hole, GONE) for hole in _apart(before, after)
    ]
    return sorted(changes, key=lambda change: -change.size)


def _apart(holes: Sequence[Hole], others: Sequence[Hole]) -> list[Hole]:
    """Return those of ``holes`` that overlap none of ``others``: they appeared or disappeared."""
    edges = sorted((other.address, other.address + other.size) for other in others)
    found, place = [], 0
    for hole in sorted(holes, key=lambda hole: hole.address):
        while place < len(edges) and edges[place][1] <= hole.address:
            place += 1
        if place == len(edges) or edges[place][0] >= hole.address + hole.size:
            found.append(hole)
    return found


def _hole(hole: Hole, state: Change) -> HoleChange:
    pins = [f"{beside.what} ({side})" for beside, side in ((hole.before, "below"), (hole.after, "above")) if beside]
    return HoleChange(hole.address, hole.size, hole.resident, hole.allocator, state, pins)


def _blocks(first: SnapshotWithBlocks, last: SnapshotWithBlocks) -> list[BlockChange] | None:
    """Return the blocks that appeared or disappeared, by size and type; None unless both snapshots contain all
    blocks.
    """
    tables = first.snapshot.blocks, last.snapshot.blocks
    if tables[0] is None or tables[1] is None or first.columns is None or last.columns is None:
        return None
    rows = changed_blocks((tables[0], first.columns), (tables[1], last.columns))
    return [row for row in rows if row.new or row.gone]


def _findings(first: Snapshot, last: Snapshot) -> list[FindingChange]:
    """Return the findings that changed. The bytes of findings with the same id are added up.

    Findings about holders are left out, because holders are compared separately.
    """
    sums: list[dict[str, int]] = []
    for look in (first, last):
        of_look: dict[str, int] = {}
        for finding in (one for one in look.ledger.findings if one.id != HOLDER):
            of_look[finding.id] = of_look.get(finding.id, 0) + finding.bytes
        sums.append(of_look)
    names = [{name: name for name in of_look} for of_look in sums]
    changes = [
        FindingChange(name, "unknown", None)
        if state != CHANGED and _is_unknown(name, first if old is None else last)
        else FindingChange(name, state, sums[1].get(name, 0) - sums[0].get(name, 0))
        for name, old, _new, state in _states(*names)
    ]
    told = [change for change in changes if change.bytes or change.bytes is None]
    return sorted(told, key=lambda change: -(change.bytes or 0))


def _is_unknown(name: str, look: Snapshot) -> bool:
    """Return whether a snapshot did not look for the finding with the id ``name``."""
    return any(fnmatchcase(name, each) for each in look.ledger.unknown_findings)


def _trend(looks: Sequence[Snapshot], lines: Sequence[LineChange], types: Sequence[TypeChange]) -> list[Trend]:
    """Return the figures that never fell over all snapshots and rose in total, the fastest growth first."""
    seconds = looks[-1].time - looks[0].time
    if len(looks) < 3 or seconds <= 0:
        return []
    rows: list[tuple[Rising, str, list[Any]]] = [("rss", "RSS", [look.ledger.rss.bytes for look in looks])]
    rows += [("line", change.id, change.looks) for change in lines]
    rows += [("type", change.type, change.looks) for change in types]
    rising = [row for row in rows if None not in row[2] and _only_rises(row[2])]
    found = [Trend(kind, name, values, (values[-1] - values[0]) / seconds) for kind, name, values in rising]
    return sorted(found, key=lambda trend: -trend.rate)


def _only_rises(values: Sequence[int]) -> bool:
    return all(before <= after for before, after in zip(values, values[1:])) and values[0] < values[-1]


def _seconds_left(first: Snapshot, last: Snapshot, more: int | None, limit: int | None) -> float | None:
    """Return the seconds from the last snapshot until RSS reaches the limit, if it keeps growing at the same rate.

    ``more``: the growth from the first snapshot to the last, in bytes. Return None if RSS did not grow, or if no limit
    is known.
    """
    seconds = last.time - first.time
    if limit is None or more is None or more <= 0 or seconds <= 0:
        return None
    return max(0.0, (limit - (last.ledger.rss.bytes or 0)) * seconds / more)
