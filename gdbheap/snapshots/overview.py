"""The data of a page about one moment of a process or a core: the answers of the commands, side by side.

If an answer cannot be given, the reason replaces it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any, Generic, TypeVar, Union

from gdbheap import _native
from gdbheap.answers.arenas import Arenas, arenas
from gdbheap.answers.block_kinds import BlockKinds, block_kinds
from gdbheap.answers.heap_map import HeapMap, heap_map
from gdbheap.answers.holes import Holes, holes
from gdbheap.answers.info import Info, info
from gdbheap.answers.owners import Owners, owners
from gdbheap.answers.pins import Pins, pins
from gdbheap.answers.pyobjects import PyObjects, pyobjects
from gdbheap.answers.retained import OBJECT, TYPE, Retained, retained
from gdbheap.answers.retained_rows import RetainedRow
from gdbheap.answers.tasks import Tasks, tasks
from gdbheap.answers.threads import ThreadLines, Threads, thread_lines, threads
from gdbheap.dataclass import dataclass
from gdbheap.errors import GdbheapError, NotAPython, Unsupported
from gdbheap.findings.holder.rule import MainHolder
from gdbheap.first_page.ledger import Ledger, ledger_and_holders
from gdbheap.heap import Heap
from gdbheap.remarks import Remark
from gdbheap.snapshots.snapshot import MAX_GRAPH_BLOCKS, Snapshot, ThreadName, budget_of, time_of
from gdbheap.snapshots.type_places import CELLS, TypePlaces, places_on
from gdbheap.targets.target import Damage

__all__ = ["Outcome", "Overview", "overview", "overview_of_snapshot"]

A = TypeVar("A")
Types = Union[PyObjects, BlockKinds]

MIN_HOLE_BYTES, MAX_HOLES = 64 << 10, 200
MAX_ROWS, MAX_UNKNOWN = 200, 20
NOT_KEPT = "no snapshot contains this; a report of the process or of a core has it"
# The reasons why a snapshot lacks answers that need references.
NO_OBJECTS = "a snapshot contains this only for Python objects"
NO_KEPT = "this snapshot was taken without this; 'heap snapshot --owners' keeps it, for a large process too"
NO_TABLE = "a snapshot never contains all owners; 'heap snapshot --owners' keeps those that retain the most"


@dataclass(frozen=True)
class Outcome(Generic[A]):
    """An answer, or None with the reason.

    ``why``: the reason why there is no answer, in one line.
    """

    answer: A | None
    why: str = ""


@dataclass(frozen=True)
class Overview:
    """The answers of all commands about one target at one moment.

    ``time``: seconds since 1970.
    ``target``: the description of the target, as in JSON.
    ``ledger``: the ledger with details.
    ``places``: the types of the blocks in each cell of ``map``, in the order of the map's groups.
    ``by_type``: the bytes that all objects of a type retain.
    ``kept``: the objects that retain the most, with paths.
    ``threads``: the threads with the variables of their frames; ``lines``: the threads without their variables.
    ``names``: the names of all threads.
    ``holders``: the holders of all memory in use, None if they were not searched for.
    """

    time: float
    target: dict[str, Any]
    ledger: Ledger
    map: Outcome[HeapMap]
    places: Outcome[TypePlaces]
    arenas: Outcome[Arenas]
    holes: Outcome[Holes]
    pins: Outcome[Pins]
    types: Outcome[Types]
    by_type: Outcome[Retained]
    kept: Outcome[Retained]
    owners: Outcome[Owners]
    threads: Outcome[Threads]
    tasks: Outcome[Tasks]
    info: Outcome[Info]
    lines: Outcome[list[ThreadLines]] = field(default_factory=lambda: Outcome(None, NOT_KEPT))
    names: list[ThreadName] = field(default_factory=list)
    warnings: list[str | Remark] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    partial: bool = False
    holders: list[MainHolder] | None = None


def overview(heap: Heap, with_owners: bool | None = None) -> Overview:
    """Return the answers of all commands about a target.

    ``with_owners``: whether to follow references, which is slow for a large process; None: only if that is quick.
    """
    target = heap.target
    described = {**target.describe(), **heap.versions}
    found, held = ledger_and_holders(heap, detail=True, patient=False, budget=budget_of(with_owners))
    drawn = _ask(lambda: heap_map(heap, 0, CELLS))
    why = "" if with_owners else _why_no_graph(heap, with_owners)
    return Overview(
        time=time_of(heap),
        target=described,
        ledger=found,
        map=drawn,
        places=_ask(lambda: _places(heap, drawn)),
        arenas=_ask(lambda: arenas(heap)),
        holes=_ask(lambda: holes(heap, MIN_HOLE_BYTES, MAX_HOLES)),
        pins=_ask(lambda: pins(heap)),
        types=_ask(lambda: _types(heap)),
        by_type=_ask(lambda: retained(heap, TYPE, None), why),
        kept=_ask(lambda: retained(heap, OBJECT, MAX_ROWS), why),
        owners=_ask(lambda: owners(heap, None, MAX_ROWS), why),
        threads=_ask(lambda: threads(heap), why),
        tasks=_ask(lambda: tasks(heap)),
        info=_ask(lambda: info(heap)),
        lines=_ask(lambda: thread_lines(heap)),
        names=[ThreadName(thread.tid, thread.name) for thread in target.threads],
        holders=held.every,
        # The next fields are read last, because the answers above add to them.
        warnings=list(heap.warnings),
        damage=list(heap.damage),
        partial=heap.partial,
    )


def _ask(question: Callable[[], A], why: str = "") -> Outcome[A]:
    """Return the answer to a question, or why it has none. If ``why`` is given, it is that reason, and nothing is
    asked.
    """
    if why:
        return Outcome(None, why)
    try:
        return Outcome(question())
    except GdbheapError as error:
        return Outcome(None, str(error))
    except (_native.Fault, MemoryError) as error:
        where = f" at {error.args[0]:#x}" if isinstance(error, _native.Fault) else ""
        return Outcome(
            None, f"the memory with this data cannot be read{where}" if where else "gdbheap has too little memory"
        )


def _types(heap: Heap) -> Types:
    try:
        return pyobjects(heap, most=MAX_UNKNOWN)
    except NotAPython:
        return block_kinds(heap)


def _places(heap: Heap, drawn: Outcome[HeapMap]) -> TypePlaces:
    if drawn.answer is None:
        raise Unsupported(drawn.why)
    return places_on(heap, drawn.answer)


def _why_no_graph(heap: Heap, wanted: bool | None) -> str:
    """Return why references are not followed.

    Return "" if they are followed, or if the answers themselves say why they are not.
    """
    if wanted is False:
        return "references were not followed"
    try:
        count = heap.used_blocks
    except GdbheapError:
        return ""
    if count <= MAX_GRAPH_BLOCKS:
        return ""
    return f"there are more than {MAX_GRAPH_BLOCKS:,} blocks: gdbheap follows references only with --owners"


def overview_of_snapshot(kept: Snapshot) -> Overview:
    """Return the answers of a snapshot as an overview; a reason replaces each answer that it lacks."""
    missing: Outcome[Any] = Outcome(None, NOT_KEPT)
    table: Outcome[Any] = Outcome(None, NO_TABLE)
    return Overview(
        kept.time, kept.target, kept.ledger, missing, missing, _or(kept.arenas), _or(kept.holes), missing,
        _or(kept.objects), missing, _held(kept), table, missing, missing, missing, missing, kept.threads, kept.warnings,
        partial=kept.partial or bool(kept.damaged), holders=kept.holders,
    )  # fmt: skip


def _held(kept: Snapshot) -> Outcome[Retained]:
    """Return the objects that retain the most, or why the snapshot lacks them."""
    if kept.owners is not None:
        return Outcome(Retained(_most(kept.owners)))
    return Outcome(None, NO_OBJECTS if kept.objects is None else NO_KEPT)


def _or(answer: Any) -> Outcome[Any]:
    return Outcome(answer, "" if answer is not None else NOT_KEPT)


def _most(rows: list[RetainedRow]) -> list[RetainedRow]:
    return rows[:MAX_ROWS]
