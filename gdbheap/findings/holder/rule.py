"""Holders of at least a quarter of RSS, among the main holders of the first page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import ClassVar

from gdbheap.answers.accounting.traced import TRACEMALLOC
from gdbheap.answers.by_root import IN_MALLOC
from gdbheap.answers.shared_out import HolderPart
from gdbheap.answers.unreachable import DOUBTFUL
from gdbheap.contents.python.running.coroutines import TASK
from gdbheap.dataclass import dataclass
from gdbheap.findings.capacity.rule import ContainerRoom
from gdbheap.findings.contexts.rule import LargestContext
from gdbheap.findings.finding import MIN_FINDING_BYTES, UNLISTED, Evidence, Figures, Finding
from gdbheap.graph.roots import BY_LEFT_OVER, GLOBAL

__all__ = ["RUNTIME", "LargeHolder", "MainHolder", "Trait", "found_of", "holds_alone", "is_room_of", "with_room"]

MIN_PERCENT = 25
# Findings that say more about a holder's memory than its size, if they cover MOST_PERCENT of it.
SPECIFIC, MOST_PERCENT = ("small-views",), 80
RUNTIME = "runtime"
# The kind of the row for all holders without a row of their own.
OTHERS = "others"
# Unused capacity lies apart from other holders if at least this percentage of it is in one block of another holder.
APART_PERCENT = 95
# A holder holds its memory alone if dropping only this holder would free at least this percentage of it.
ALONE_PERCENT = 80
# The kinds of holders whose memory comes from no allocator (first_page/outside).
STATIC, STACK, STORAGE, WRITTEN, FILE, CODE = (
    "static data", "stack", "thread-local data", "written pages", "file", "code",
)  # fmt: skip
SHARED, BREAK, MAPPED, LIBRARY_MEMORY, ENDED, UNJOINED = (
    "shared memory", "break", "mapped memory", "library memory", "ended stacks", "joinable stacks",
)  # fmt: skip
# The pages below a stack pointer. Calls that have returned left them, and nothing in them is used any more.
LEFT = "below stack pointers"
# Prefixes of the ids of findings about memory of each kind. A holder whose memory has such a finding gets no second
# one.
COVERED = {
    STACK: ("stacks",),
    LEFT: ("stacks",),
    SHARED: ("shared-memory", "runtime-"),
    FILE: ("mapped-files", "shared-memory"),
    MAPPED: ("mapped-memory", "runtime-", "other-", "sparse-huge-pages"),
    LIBRARY_MEMORY: ("other-held", "runtime-", "mapped-memory"),
    IN_MALLOC: ("runtime-",),
    TRACEMALLOC: ("tracemalloc",),
}
OUTSIDE = (STATIC, STACK, STORAGE, WRITTEN, FILE, CODE, SHARED, BREAK, MAPPED, LIBRARY_MEMORY, ENDED, UNJOINED, LEFT)
# Holders without a finding: no advice frees their memory, or another finding is about it.
NO_FINDING = (RUNTIME, CODE)


# The kinds of traits: facts that the memory around a holder shows.
LABEL, LOG_HANDLER, BUFFERING_HANDLER = "label", "log handler", "buffering log handler"
DATABASE, OPENED = "database", "opened by ended threads"
WRITTEN_FILE, SHARED_FILE, SHARED_MEMORY = "written pages of a file", "shared pages of a file", "mapped shared memory"


@dataclass(frozen=True)
class Trait:
    """A fact that the memory around a holder shows about it. ``kind`` decides the meaning of the other fields.

    LABEL: the metric label with the most values; ``name``, ``count`` (the number of values) and an ``example`` value.
    LOG_HANDLER and BUFFERING_HANDLER: a logging handler, or one that keeps records until it is flushed; ``name`` is the
    handler's class, ``example`` the name of its logger. DATABASE: the database of ``count`` sqlite3 connections;
    ``name`` is its file or its name, ``example`` is "file", "memory", "temporary" or None (unproven). OPENED: ``count``
    of these connections were opened by threads that have ended. WRITTEN_FILE: the holder's largest mapping is a private
    mapping of the file ``name`` with most pages written. SHARED_FILE: the largest mapping is a shared mapping of the
    file. SHARED_MEMORY: the largest mapping is shared memory.
    """

    kind: str
    name: str
    count: int = 0
    example: str | None = None
    at_least: bool = False


@dataclass(frozen=True)
class MainHolder:
    """The blocks of one holder. ``kind``: a kind of ``shared_out.SharedOut``, the kind of a root (``graph.roots``), or
    "runtime".
    """

    keys: ClassVar[dict[str, str]] = {"outside": "outside_address", "alone": "is_most", "limit": "maxsize"}
    bytes: int
    resident: int | None
    share: float | None
    path: str
    what: str | None
    count: int | None
    kind: str
    address: int | None = None
    shape: list[int] = field(default_factory=list)
    parts: list[HolderPart] = field(default_factory=list)
    way: str | None = None
    at_least: bool = False
    limit: int | None = None
    largest_block: int | None = None
    outside: int | None = None
    retained: int | None = None
    also: list[str] = field(default_factory=list)
    together: int | None = None
    alone: bool = True
    names: list[str] = field(default_factory=list)
    tasks: int = 0
    task_kind: str | None = None
    traits: list[Trait] = field(default_factory=list)
    at_most: int | None = None

    @property
    def known_bytes(self) -> int:
        """The resident bytes; all bytes if residency is unknown."""
        return self.bytes if self.resident is None else self.resident

    @property
    def may_be_alone(self) -> bool:
        """Whether the holder may be the only one that keeps its memory alive, because the pointers of all other holders
        may be stale."""
        return self.at_most is not None and holds_alone(self.at_most, self.bytes)


def holds_alone(freed: int, held: int) -> bool:
    """Return whether a holder alone keeps its ``held`` bytes alive.

    ``freed``: the bytes that dropping only this holder frees.
    """
    return 100 * freed >= ALONE_PERCENT * held


@dataclass(frozen=True)
class LargeHolder(Figures):
    """A ``holder`` of much memory. ``count``: the number of its items, None if it has no length.

    ``same``: the id of a more specific finding about most of its bytes, or None. ``parent``: the process from which a
    Python was forked, if it still runs. ``left_over``: whether most of it is reachable only through pointers that may
    be stale. ``room``: the bytes of unused capacity that this holder probably contains, according to the finding
    ``capacity``; 0 for none."""

    ids = ("holder",)
    holder: MainHolder
    count: int | None
    same: str | None = field(default=None, metadata=UNLISTED)
    parent: int | None = field(default=None, metadata=UNLISTED)
    left_over: bool = field(default=False, metadata=UNLISTED)
    room: int = field(default=0, metadata=UNLISTED)


def with_room(found: Sequence[Finding], rows: Sequence[MainHolder] = ()) -> list[Finding]:
    """Connect the finding about unused capacity of containers with the holders of the containers, and return all
    findings.

    If unused bytes are probably a holder's, and at least a quarter of its bytes, the holder's finding gets their number
    (``room``). If the holder, one of ``rows``, has no finding, the finding about unused capacity is marked ``apart``.
    """
    found = [_placed_apart(one, found, rows) for one in found]
    guess = next((one for one in found if one.id == "capacity" and one.doubtful), None)
    if guess is None:
        return found
    room = guess.bytes
    return [
        replace(one, figures=replace(one.figures, room=room))
        if isinstance(one.figures, LargeHolder)
        and is_room_of(guess.figures, one.figures)
        and MIN_PERCENT * one.bytes <= 100 * room <= 100 * one.bytes
        else one
        for one in found
    ]


def _placed_apart(finding: Finding, found: Sequence[Finding], rows: Sequence[MainHolder]) -> Finding:
    """Return the finding. It is marked ``apart`` if it is about the unused capacity of a holder that has no finding.

    The mark needs two conditions. One block has nearly all of the unused capacity. One of the holders in ``rows``
    reaches that block."""
    room = finding.figures
    if not isinstance(room, ContainerRoom) or 100 * room.most < APART_PERCENT * finding.bytes:
        return finding
    if any(is_room_of(room, one.figures) for one in found) or not any(_is_reached(room, row) for row in rows):
        return finding
    return replace(finding, figures=replace(room, apart=True))


def is_room_of(room: object, holder: object) -> bool:
    """Return whether a holder's finding and a finding about unused capacity are about the same memory. ``room`` and
    ``holder`` are their figures.

    They are if the holder reaches the container with the most unused capacity."""
    return isinstance(holder, LargeHolder) and isinstance(room, ContainerRoom) and _is_reached(room, holder.holder)


def _is_reached(room: ContainerRoom, row: MainHolder) -> bool:
    return bool(room.path) and (row.path == room.path or row.path.startswith(f"{room.path}: "))


def found_of(evidence: Evidence, rows: Sequence[MainHolder], others: Sequence[Finding], whole: int) -> list[Finding]:
    """Return a finding about each holder in ``rows`` with at least MIN_PERCENT of ``whole`` that ``others`` do not
    cover.

    ``whole``: RSS, or the memory in use if RSS is unknown. The largest come first. The findings are doubtful, because
    the memory may be intended.
    """
    found: list[Finding] = []
    for row in rows:
        if not _is_worth(row, whole) or _is_covered(row, others):
            continue
        specific = [one for one in others if one.id in SPECIFIC and _is_most(one.bytes, row.known_bytes)]
        # Only one holder can be about the same memory.
        same = specific[0] if specific and not found else None
        left_over = _is_left_over(evidence, row)
        figures = LargeHolder(row, row.count, None if same is None else same.id, evidence.python_parent, left_over)
        # The certain one of two findings with equal sizes comes first, so this puts the more specific one first.
        size = row.known_bytes if same is None else min(row.known_bytes, same.bytes)
        found.append(Finding("holder", size, figures, _looking_into(evidence, row, left_over), doubtful=True))
    return found


def _is_left_over(evidence: Evidence, holder: MainHolder) -> bool:
    """Return whether at least half of a holder's bytes is doubtful, in a program without Python.

    A block is doubtful if all chains to it lead through the holder or its largest block, over pointers that may be
    stale.
    """
    found = evidence.unreachable
    places = {holder.address, holder.largest_block} - {None}
    if found is None or not places or evidence.heap.references.counts_references:
        return False
    graph = evidence.heap.references.graph
    size = 0
    for row in found.rows:
        if found.causes[row.cause].group == DOUBTFUL:
            numbers = [number for address in row.addresses if (number := graph.find(address)) is not None]
            ways = [{graph.node(number).address for number in graph.chain(number)} for number in numbers]
            is_weak = bool(numbers) and min(graph.phases(numbers)) >= BY_LEFT_OVER
            if is_weak and all(places & way for way in ways):
                size += row.bytes + row.buffers
    return 2 * size >= holder.bytes


def _is_worth(row: MainHolder, whole: int) -> bool:
    size = row.known_bytes
    return row.kind not in NO_FINDING and size >= MIN_FINDING_BYTES and 100 * size >= MIN_PERCENT * whole


def _is_covered(row: MainHolder, others: Sequence[Finding]) -> bool:
    """Return whether other findings are about the holder's object, or about at least half as many bytes of the same
    kind of memory.
    """
    if any(isinstance(one.figures, LargestContext) and one.figures.is_about(row.path) for one in others):
        return True
    kind = SHARED if any(trait.kind == SHARED_MEMORY for trait in row.traits) else row.kind
    size = sum(one.bytes for one in others if one.id.startswith(COVERED.get(kind, ())))
    if size and 2 * size >= row.known_bytes:
        return True
    return row.address is not None and any(getattr(one.figures, "address", None) == row.address for one in others)


def _is_most(part: int, whole: int) -> bool:
    return 100 * part >= MOST_PERCENT * whole


def _looking_into(evidence: Evidence, holder: MainHolder, left_over: bool) -> list[str]:
    """Return a list with the commands that show more details of a holder's contents; empty if none does.

    ``left_over``: at least half of its bytes are reachable only through pointers that may be stale.
    """
    if evidence.python_parent is not None:
        return [f"gdbheap {evidence.python_parent} --children"]
    if holder.kind in (STACK, LEFT):
        return evidence.line("threads") if evidence.heap.is_python else []
    if left_over:
        return evidence.line("unreachable")
    if holder.kind in OUTSIDE:
        return [] if holder.outside is None else evidence.line("at", f"{holder.outside:#x}")
    if holder.tasks:
        return evidence.line("tasks") + ([] if holder.task_kind == TASK else evidence.line("retained"))
    if holder.largest_block is not None:
        return evidence.line("why", f"{holder.largest_block:#x}")
    # The page already shows what keeps the holder itself alive, so no command shows its path.
    is_of_python = evidence.heap.is_python and holder.kind != GLOBAL
    return evidence.line("retained") if is_of_python else evidence.line("chunks", "--by=type")
