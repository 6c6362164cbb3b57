"""Group asyncio tasks, coroutines, generators and greenlets by where they wait."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import ClassVar

from gdbheap.contents.python.running.coroutines import (
    GENERATORS,
    GREENLET,
    PENDING,
    RUNNING,
    SUSPENDED,
    TASK,
    Coroutines,
    Suspendable,
    Task,
)
from gdbheap.contents.python.text.disclosure import hidden
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault, Unsupported
from gdbheap.heap import Heap
from gdbheap.layout.asyncio import task_layout

KINDS = (TASK, *GENERATORS, GREENLET)
IDLE = "idle"
# The most steps of a chain that are listed. If there are more, one further step counts them.
MAX_CHAIN = 50


@dataclass(frozen=True)
class AwaitStep:
    """One step in a chain of awaits: a function, and the line at which it waits."""

    function: str
    file: str
    line: int | None


@dataclass(frozen=True)
class Waiting:
    """A task; or a coroutine, generator or greenlet that belongs to no task.

    ``state`` of a task: pending, cancelled, finished or running. ``state`` of a greenlet: suspended, or idle if it has
    no frame. ``state`` of any other object: created, suspended, running or ended. ``waits``: its chain of awaits.
    ``waits_for``: the type of the object that the last coroutine of the chain awaits; ``awaits``: that object's
    address. ``bytes``: its own block, and the blocks of the coroutines and frames of its chain. A block that several
    chains share counts for the first chain. ``retained``: the bytes that would be freed if it and the coroutines of its
    chain were removed."""

    address: int
    kind: str
    type: str
    name: str | None
    state: str
    waits: tuple[AwaitStep, ...]
    waits_for: str | None
    awaits: int | None
    bytes: int
    retained: int | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """A key that is equal for waiting objects with the same kind, type, state and chain of awaits."""
        return self.kind, self.type, self.state, self.waits, self.waits_for


@dataclass(frozen=True)
class Row:
    """Tasks, coroutines, generators or greenlets with the same type, state and chain of awaits.

    ``coroutine``, ``file`` and ``line``: the outermost step of the chain. ``address``: the address of the first waiting
    object. ``retained``: the bytes that would be freed if all of the row's objects and the coroutines of their chains
    were removed. Other holders may also keep these objects alive, such as the call that runs the event loop.
    """

    kind: str
    type: str
    coroutine: str
    file: str
    line: int | None
    state: str
    count: int
    bytes: int
    retained: int | None
    waits: tuple[AwaitStep, ...]
    waits_for: str | None
    address: int


@dataclass(frozen=True)
class Tasks:
    """The answer of ``heap tasks``: a row for each group of objects that wait at the same line of code, the largest
    first.
    """

    sums: ClassVar[tuple[str, ...]] = ("count", "bytes")
    rows: list[Row]
    kinds: dict[str, int]
    count: int
    bytes: int
    unreadable: int


@dataclass(frozen=True)
class Listed:
    """The answer of ``heap tasks --list``: the first ``--top`` rows, and totals over all rows."""

    sums: ClassVar[tuple[str, ...]] = ("bytes",)
    rows: list[Waiting]
    kinds: dict[str, int]
    count: int
    bytes: int
    unreadable: int


def tasks(heap: Heap, kinds: Sequence[str] = KINDS, retained: bool = False) -> Tasks:
    """Return the tasks, coroutines, generators or greenlets of these ``kinds``, grouped by where they wait.

    ``retained``: also compute what each group retains. Raises NotAPython or Unsupported.
    """
    finder, found = _find(heap, kinds)
    groups: dict[tuple[object, ...], list[Waiting]] = defaultdict(list)
    for one in found:
        groups[one.key].append(one)
    rows = [_row(group) for group in groups.values()]
    if retained:
        rows = [replace(row, retained=size) for row, size in zip(rows, _retained(heap, finder, groups.values()))]
    rows.sort(key=lambda row: (-row.count, row.coroutine, row.address))
    return Tasks(rows, _counts(found), len(found), sum(one.bytes for one in found), finder.unreadable)


def listed(
    heap: Heap, kinds: Sequence[str] = KINDS, by: str = "", top: int | None = None, retained: bool = False
) -> Listed:
    """Return the first ``top`` tasks, coroutines, generators or greenlets of these ``kinds``, by address.

    ``by``: the field by which the largest come first ("bytes" or "retained"). ``retained``: also compute what each
    retains. Raises NotAPython or Unsupported.
    """
    finder, found = _find(heap, kinds)
    contents = heap.disclosure.contents
    if retained:
        sizes = _retained(heap, finder, [[one] for one in found])
        found = [replace(one, retained=size) for one, size in zip(found, sizes)]
    found.sort(key=lambda one: (-(getattr(one, by) or 0) if by in ("bytes", "retained") else 0, one.address))
    shown = [
        one if contents or one.name is None else replace(one, name=hidden("str", len(one.name))) for one in found[:top]
    ]
    return Listed(shown, _counts(found), len(found), sum(one.bytes for one in found), finder.unreadable)


def _counts(found: Sequence[Waiting]) -> dict[str, int]:
    counts = dict.fromkeys(KINDS, 0)
    for one in found:
        counts[one.kind] += 1
    return counts


def _row(group: Sequence[Waiting]) -> Row:
    first = min(group, key=lambda one: one.address)
    outer = first.waits[0] if first.waits else AwaitStep(first.type, "", None)
    size = sum(one.bytes for one in group)
    return Row(
        first.kind, first.type, outer.function, outer.file, outer.line, first.state, len(group), size, None,
        first.waits, first.waits_for, first.address,
    )  # fmt: skip


def _retained(heap: Heap, finder: _Finder, groups: Iterable[Sequence[Waiting]]) -> list[int]:
    """Return how many bytes each group retains together with its chains of awaits."""
    graph = heap.python.references.graph
    found = [[graph.find(part) for one in group for part in finder.parts(one.address)] for group in groups]
    numbers = [[number for number in group if number is not None] for group in found]
    return list(graph.retained_together(numbers))


def _find(heap: Heap, kinds: Sequence[str]) -> tuple[_Finder, list[Waiting]]:
    """Return the tasks, coroutines, generators or greenlets of these ``kinds``, and the finder that found them.

    Raises Unsupported for Python 2, which has no asyncio.
    """
    release = heap.python.objects.release
    if release.get("gen_qualname") is None:
        raise Unsupported(f"Python {release.text} has no asyncio: coroutines and tasks came with Python 3")
    finder = _Finder(heap)
    return finder, [one for one in finder.all() if one.kind in kinds]


class _Finder:
    """Finds all tasks, coroutines, generators and greenlets of one target."""

    def __init__(self, heap: Heap) -> None:
        objects, census = heap.python.objects, heap.python.census
        layout = task_layout(heap.target.space, objects.release, heap.target.objects)
        self._coroutines = Coroutines(objects, heap.python.interpreter.threads, layout)
        self._names = objects.names
        self.unreadable = 0
        kinds = self._coroutines.kinds([row.address for row in census.rows])
        frames = {row.address for row in census.rows if objects.names.name(row.address) == "frame"}
        wanted = dict.fromkeys([*kinds, *frames], 0)
        rows = objects.instances(wanted, set(census.contested), "address", None, heap.python.classifying).rows
        self._sizes = {row.address: row.size for row in rows}
        self._kinds = kinds
        self._rows = [(row.address, row.type_address) for row in rows if row.type_address in kinds]
        self._waiting = dict(self._suspended())
        # The blocks that count for each waiting object, except its own block, by its address.
        self._parts: dict[int, list[int]] = {}
        self._by_frame = {one.frame: one.address for one in self._waiting.values() if one.frame}
        self._after = {address: self._next(one) for address, one in self._waiting.items()}
        self._steps: dict[int, AwaitStep] = {}
        # For each coroutine whose chain was followed, the length of the chain that begins with this coroutine, and the
        # object that the last coroutine of the chain awaits.
        self._ends: dict[int, tuple[int, int]] = {}
        self._counted: set[int] = set()

    def _suspended(self) -> Iterator[tuple[int, Suspendable]]:
        for address, kind in self._rows:
            if self._kinds[kind][0] in GENERATORS:
                try:
                    yield address, self._coroutines.suspended(address)
                except (Fault, OverflowError):
                    self.unreadable += 1

    def all(self) -> Iterator[Waiting]:
        """Yield the tasks with their chains of awaits, then the coroutines, generators and greenlets that are in no
        task's chain.
        """
        inner = set(self._after.values())
        for address, kind in self._rows:
            name, base = self._kinds[kind]
            if name != TASK:
                continue
            task = self._task(address, kind, base)
            if task is None:
                self.unreadable += 1
                continue
            inner.add(task.coroutine)
            yield self._of_task(task, kind)
        for address, kind in self._rows:
            name = self._kinds[kind][0]
            if name == GREENLET:
                yield self._greenlet(address, kind)
            elif name in GENERATORS and address not in inner and address in self._waiting:
                chain, awaits, size = self._chain(address, address)
                one = self._waiting[address]
                yield self._made(address, kind, None, one.state, chain, awaits, size)

    def parts(self, address: int) -> list[int]:
        """Return the address of an object from ``all()``, and the addresses of the coroutines and frames of
        its chain.
        """
        return [address, *self._parts.get(address, ())]

    def _task(self, address: int, kind: int, base: str) -> Task | None:
        try:
            return self._coroutines.task(address, kind, base)
        except (Fault, OverflowError, Unsupported):
            return None

    def _of_task(self, task: Task, kind: int) -> Waiting:
        chain, awaits, size = self._chain(task.coroutine, task.address)
        outer = self._waiting.get(task.coroutine)
        state = RUNNING if task.state == PENDING and outer is not None and outer.state == RUNNING else task.state
        awaits = task.waits_for or awaits
        size += self._sizes.get(task.address, 0)
        return self._made(task.address, kind, task.name, state, chain, awaits, size)

    def _made(
        self,
        address: int,
        kind: int,
        name: str | None,
        state: str,
        chain: tuple[AwaitStep, ...],
        awaits: int,
        size: int,
    ) -> Waiting:
        waits_for = self._coroutines.type_name(awaits) if awaits else None
        return Waiting(
            address, self._kinds[kind][0], self._names.name(kind), name, state, chain, waits_for, awaits or None, size
        )

    def _next(self, one: Suspendable) -> int:
        """Return the object to which a coroutine delegates. For a running coroutine, return the coroutine whose frame
        it called.
        """
        if one.state == RUNNING:
            return self._by_frame.get(self._coroutines.inner_frame(one.frame), 0)
        return one.awaits

    def _chain(self, address: int, waiting: int) -> tuple[tuple[AwaitStep, ...], int, int]:
        """Return the chain of awaits from a coroutine inwards, the object that its last step awaits, and a number of
        bytes.

        The bytes are those of the chain's blocks that were in no earlier chain. These blocks become parts of
        ``waiting``.
        """
        new = self._follow(address)
        blocks = [block for one in new for block in self._blocks(self._waiting[one])]
        parts = [block for block in dict.fromkeys(blocks) if block not in self._counted]
        self._counted.update(parts)
        self._parts[waiting] = parts
        length, awaits = self._ends.get(address, (0, address))
        return self._told(address, length), awaits, sum(self._sizes.get(part, 0) for part in parts)

    def _follow(self, address: int) -> list[int]:
        """Return the coroutines of a chain that were in no earlier chain."""
        new: list[int] = []
        while address in self._waiting and address not in self._ends:
            # This value stays if the chain is a cycle.
            self._ends[address] = 0, 0
            new.append(address)
            address = self._after[address]
        length, awaits = self._ends.get(address, (0, address))
        self._ends.update((one, (length + count, awaits)) for count, one in enumerate(reversed(new), 1))
        return new

    def _blocks(self, one: Suspendable) -> list[int]:
        return [one.address, one.frame] if one.apart else [one.address]

    def _told(self, address: int, length: int) -> tuple[AwaitStep, ...]:
        """Return the first MAX_CHAIN steps of a chain. If the chain is longer, one further step has the number of the
        remaining steps.
        """
        steps: list[AwaitStep] = []
        for _ in range(min(length, MAX_CHAIN)):
            if address not in self._steps:
                self._steps[address] = _step(self._waiting[address])
            steps.append(self._steps[address])
            address = self._after[address]
        return (*steps, AwaitStep(f"{length - MAX_CHAIN:,} more", "", None)) if length > MAX_CHAIN else tuple(steps)

    def _greenlet(self, address: int, kind: int) -> Waiting:
        place = None
        with suppress(Fault, OverflowError):
            place = self._coroutines.greenlet(address)
        chain = () if place is None else (AwaitStep(place.function, place.file, place.line),)
        state = IDLE if place is None else SUSPENDED
        return self._made(address, kind, None, state, chain, 0, self._sizes.get(address, 0))


def _step(one: Suspendable) -> AwaitStep:
    if one.place is None:
        return AwaitStep(one.function, "", None)
    return AwaitStep(one.function, one.place.file, one.place.line)
