"""Several processes in one answer: what each has, what they share, and what they could share.

What the kernel counts is read while all of them stand still, so that it fits together; then one after the other is
looked into, each beside the process whose pages it had at the fork: its parent, or without that a sibling.

What comes from another exec never stands still for it, and what does stands only while pages are compared, for all that
are compared with it no longer than one process is stopped at a time."""

from __future__ import annotations

import resource
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from gdbheap._native import ProcessAccount, Stop
from gdbheap.answers.pyobjects import pyobjects
from gdbheap.errors import EXHAUSTED, GdbheapError, NoTarget, NotPermitted, reason_of
from gdbheap.findings.holder.rule import MainHolder
from gdbheap.first_page.ledger import Ledger, ledger
from gdbheap.first_page.main_holders import BUDGET
from gdbheap.heap import Heap
from gdbheap.host import procfs
from gdbheap.host.procfs import Named, ProcessFolder
from gdbheap.processes import accounts
from gdbheap.processes.heap_use import HeapUse, heap_use, use_of
from gdbheap.processes.written_pages import (
    Comparison,
    TypeCounts,
    Written,
    exec_of,
    page_marks,
    total_types,
    total_written,
    value_marks,
)
from gdbheap.targets import stopping
from gdbheap.targets.chosen_processes import held as held_of_many
from gdbheap.targets.chosen_processes import running
from gdbheap.targets.process import Preparation, program_of, stopped

__all__ = ["Advice", "Family", "Member", "Sums", "family"]

FREEZE: Final = "freeze"
PRELOAD: Final = "preload"
LONGEST_STOP = 1.0
# What is less than this share of all that they have is no advice.
MIN_PERCENT = 1

NOT_COMPARED = (
    "it was not compared with process {}, which has stood still for that for {:.1f} s (--max-stop): give it longer"
    " (--max-stop=SECONDS, 0 for no limit)"
)
# Said of a process whose memory is another user's, or closed.
NOT_READ = "its memory cannot be read: gdbheap doctor PID says why"

Progress = Callable[[str, int, int], object]
Verdict = Callable[[Ledger], str]


@dataclass(frozen=True)
class Member:
    """A process. ``verdict`` and ``holders``: as of its first page, "" and none where its heap was not looked into."""

    pid: int
    parent_pid: int
    program: str
    rss: int | None
    pss: int | None
    uss: int | None
    swapped: int | None
    heap: HeapUse | None = None
    beside: int | None = None
    written: Written | None = None
    note: str | None = None
    verdict: str = ""
    holders: list[MainHolder] = field(default_factory=list)


@dataclass(frozen=True)
class Sums:
    """Over the processes of which it is known. ``pss`` is what they have together, where nobody else shares it with
    them."""

    processes: int
    rss: int
    pss: int
    uss: int
    shared: int
    swapped: int


@dataclass(frozen=True)
class Advice:
    """What would be saved by something that is done before the fork. ``id``: "freeze" (gc.freeze()), or "preload"
    (to load before the fork what each worker loads for itself)."""

    id: Literal["freeze", "preload"]
    saves: int
    workers: int
    most_saved: int | None = None
    least_saved: int | None = None


@dataclass(frozen=True)
class Family:
    """The answer of ``gdbheap processes``."""

    rows: list[Member]
    total: Sums
    written: Written | None
    types: list[TypeCounts]
    savings: list[Advice]

    @property
    def targets(self) -> list[dict[str, Any]]:
        """What a document is about."""
        return [{"kind": "process", "pid": row.pid} for row in self.rows]

    @property
    def ok(self) -> bool:
        """Whether all is known that was asked for."""
        return all(member.note is None for member in self.rows)

    @property
    def is_refused(self) -> bool:
        """Whether the kernel lets us read the memory of none, though some are there."""
        return not self.total.processes and any(member.note == NOT_READ for member in self.rows)


@dataclass
class _Looks:
    """What was found out of the ``held`` processes one by one: types whose counts were written; by worker the marks of
    its pages of values and the bytes of its objects by type, and both of the parents. ``beside``: by process the one
    that it is compared with; ``stood``: how long each of these stood still for that; ``forking``: those of them that
    are parents."""

    held: dict[int, ProcessFolder]
    limit: float | None
    verdict_of: Verdict | None = None
    progress: Progress | None = None
    beside: dict[int, int] = field(default_factory=dict)
    stood: dict[int, float] = field(default_factory=dict)
    forking: set[int] = field(default_factory=set)
    types: list[TypeCounts] = field(default_factory=list)
    marks: dict[int, set[bytes]] = field(default_factory=dict)
    objects: dict[int, Counter[str]] = field(default_factory=dict)
    parents: dict[int, tuple[set[bytes], Counter[str]]] = field(default_factory=dict)
    parent_of: dict[int, int] = field(default_factory=dict)


def family(
    processes: Sequence[Named],
    limit: float | None,
    quick: bool = False,
    progress: Progress | None = None,
    verdict_of: Verdict | None = None,
) -> Family:
    """Of these processes, each of which is stopped for at most ``limit`` seconds at a time. ``quick``: only what the
    kernel counts. ``verdict_of``: puts a first page into a sentence; without it no holders are looked for. Raises
    NoTarget where none of them is there."""
    held, left_out = _held(processes)
    rows = _counted(held, limit)
    members = [_member(row, held[row.pid]) for row in rows]
    pids = dict.fromkeys(int(str(process)) for process in processes)
    counted = {row.pid for row in rows}
    members += [_absent(pid, held.get(pid), left_out.get(pid)) for pid in pids if pid not in counted]
    if not rows:
        reason = next(iter(left_out.values()), None)
        if reason is not None:
            raise GdbheapError(reason)
        raise NoTarget(f"none of {len(pids)} processes is there: ps -e lists those that run")
    looks = _Looks(held, limit, verdict_of, progress)
    if not quick:
        known = [member for member in members if member.pss is not None]
        looks.beside = _relatives(known, held)
        looks.forking = {member.parent_pid for member in known if looks.beside.get(member.pid) == member.parent_pid}
        looked = {member.pid: _looked(member, looks) for member in known}
        members = [looked.get(member.pid, member) for member in members]
    members.sort(key=lambda member: -(member.rss or 0))
    compared = [member for member in members if member.written is not None]
    written = total_written(member.written for member in compared if member.written) if compared else None
    sums = _sums(members)
    advice = [
        row for row in (_freeze(compared), _preload(looks)) if 100 * (row.most_saved or 0) > MIN_PERCENT * sums.pss
    ]
    return Family(members, sums, written, total_types(looks.types), advice)


def _held(processes: Sequence[Named]) -> tuple[dict[int, ProcessFolder], dict[int, str]]:
    """Those that are there, and why others could not be held."""
    found, left_out = {}, {}
    for process in processes:
        try:
            found[int(str(process))] = held_of_many(process)
        except (NoTarget, NotPermitted):
            continue
        except GdbheapError as error:
            left_out[int(str(process))] = str(error)
    return found, left_out


def _counted(held: dict[int, ProcessFolder], limit: float | None) -> list[ProcessAccount]:
    """What the kernel says of them while they all stand still: those that cannot be stopped run on."""
    with ExitStack() as standing:
        standing.enter_context(stopping.undisturbed())
        for folder in held.values():
            with suppress(OSError, TimeoutError):
                standing.callback(Stop(folder, limit or LONGEST_STOP).release)
        # By number: of one that is there afterwards it was its own.
        return [row for row in accounts.read(list(held)) if held[row.pid].is_there()]


def _member(row: ProcessAccount, folder: ProcessFolder) -> Member:
    name = row.name.decode("utf-8", "replace")
    program, memory = program_of(folder) or name, row.memory
    if memory is None:
        note = EXHAUSTED.get(row.error, NOT_READ)
        return Member(row.pid, row.parent, program, _rss(folder), None, None, None, note=note)
    swap = memory.swap if memory.swap_share is None else memory.swap_share
    return Member(row.pid, row.parent, program, memory.rss, memory.pss, memory.private, swap)


def _rss(folder: ProcessFolder) -> int | None:
    """What everybody may know of a process."""
    with suppress(OSError):
        living = folder.living()
        return None if living is None else procfs.kib(living[1].get("VmRSS"))
    return None


def _absent(pid: int, folder: ProcessFolder | None, left_out: str | None) -> Member:
    """One that is gone, or has no memory, or was ``left_out`` for this reason."""
    found = running(pid)
    if found is not None and left_out is not None:
        return Member(pid, found.parent, found.name, None, None, None, None, note=left_out)
    if found is None or folder is None or not folder.is_running():
        return Member(pid, 0, "", None, None, None, None, note="it has ended")
    what = "a kernel thread has no memory of its own" if found.is_kernels else "it has no memory any more"
    return Member(pid, found.parent, found.name, None, None, None, None, note=what)


def _sums(members: Iterable[Member]) -> Sums:
    known = [member for member in members if member.pss is not None]
    rss, pss, uss, swap = (
        sum(getattr(member, name) or 0 for member in known) for name in ("rss", "pss", "uss", "swapped")
    )
    return Sums(len(known), rss, pss, uss, max(0, pss - uss), swap)


def _relatives(members: Sequence[Member], held: dict[int, ProcessFolder]) -> dict[int, int]:
    """By process whose pages it may have had at the fork: its parent, else the sibling with the least of its own. None
    of another exec: that would stand still for nothing."""
    execs = {member.pid: exec_of(held[member.pid]) for member in members}
    forked: dict[object, list[int]] = {}
    for member in sorted(members, key=lambda member: (member.uss or 0, member.pid)):
        forked.setdefault((execs[member.pid], member.parent_pid), []).append(member.pid)
    found = {}
    for member in members:
        own = execs[member.pid]
        siblings = [pid for pid in forked[own, member.parent_pid][:2] if pid != member.pid]
        nearest = [member.parent_pid] if execs.get(member.parent_pid) == own else siblings[:1]
        if own is not None and nearest:
            found[member.pid] = nearest[0]
    return found


def _looked(member: Member, looks: _Looks) -> Member:
    """The member with what its memory says."""
    try:
        other = _prepared(looks.held.get(looks.beside.get(member.pid, 0)))
        with stopped(looks.held[member.pid], looks.limit) as process:
            heap = Heap(process)
            heap.progress = looks.progress
            if process.refusal is not None:
                return replace(member, note=str(process.refusal))
            found = _used(member, heap, looks.verdict_of)
            if member.pid in looks.forking:
                looks.parents[member.pid] = page_marks(process, shared=True), _by_type(heap)
            found = found if other is None else _compared(found, heap, other, looks)
            return replace(found, note=found.note or process.cut_short)
    except Exception as error:
        return replace(member, note=reason_of(error))


def _prepared(folder: ProcessFolder | None) -> Preparation | None:
    """What is there to be known of a process before it is stopped; None where it cannot be looked into."""
    with suppress(GdbheapError):
        return None if folder is None else Preparation(folder)
    return None


def _used(member: Member, heap: Heap, verdict_of: Verdict | None) -> Member:
    """The member with its heap, as far as its blocks can be walked."""
    with suppress(GdbheapError):
        if verdict_of is None:
            return replace(member, heap=heap_use(heap))
        page = ledger(heap, budget=BUDGET)
        use = None if page.summary is None else use_of(page.summary, page.findings)
        return replace(member, heap=use, verdict=verdict_of(page), holders=_holders(page))
    return member


def _holders(page: Ledger) -> list[MainHolder]:
    """Return the holders of a first page, the largest first, with the interpreter and packages, which it has last."""
    imported = [] if page.imported is None else [page.imported]
    return sorted([*imported, *page.holders], key=lambda row: -(row.bytes if row.resident is None else row.resident))


def _compared(found: Member, heap: Heap, ready: Preparation, looks: _Looks) -> Member:
    """With what its pages differ in from another's, if both come from one exec; noted where the other may not stand
    still any longer."""
    pid, limit, comparison = ready.folder.pid, looks.limit, Comparison(heap)
    stood, is_read = looks.stood.get(pid, 0.0), False
    if limit is None or stood < limit:
        begun = time.monotonic()
        try:
            with stopped(ready.folder, None if limit is None else limit - stood, preparation=ready) as other:
                is_read = comparison.read(other)
                is_read = is_read and heap.target.cut_short is None and other.cut_short is None
        except GdbheapError:
            is_read = False
        finally:
            looks.stood[pid] = stood + time.monotonic() - begun
    if not is_read:
        is_up = limit is not None and looks.stood.get(pid, 0.0) >= limit
        return replace(found, note=NOT_COMPARED.format(pid, limit)) if is_up else found
    written, types = comparison.answer()
    looks.types += types
    if pid == found.parent_pid:
        looks.marks[found.pid], looks.objects[found.pid] = _marks(heap), _by_type(heap)
        looks.parent_of[found.pid] = pid
    return replace(found, beside=pid, written=written)


def _freeze(compared: Sequence[Member]) -> Advice:
    """gc.freeze() before the fork: then the collector leaves alone what was there."""
    rows = [member.written for member in compared if member.written is not None and member.written.collector]
    saves, most = sum(row.freezing for row in rows), sum(row.collector for row in rows)
    return Advice(FREEZE, saves, len(rows), most_saved=most)


def _preload(looks: _Looks) -> Advice:
    """What several workers have and their parent has not: one copy would do. As many bytes of objects of each type as
    all workers have beyond the parent; proven are pages of values that are equal, byte for byte: what is mutable may be
    equal by chance. Nothing where these are more: then the workers have no more than the parent, and have written the
    same to what they had from it."""
    least = most = workers = 0
    for parent, (marks, objects) in looks.parents.items():
        forked = [pid for pid, other in looks.parent_of.items() if other == parent]
        if not forked:
            continue
        holders = Counter(mark for pid in forked for mark in looks.marks[pid] - marks)
        least += sum(count - 1 for count in holders.values() if count > 1) * resource.getpagesize()
        common = {kind: min(looks.objects[pid][kind] for pid in forked) for kind in looks.objects[forked[0]]}
        most += sum(max(0, size - objects[kind]) for kind, size in common.items()) * (len(forked) - 1)
        workers += len(forked) if len(forked) > 1 else 0
    return Advice(PRELOAD, least, workers, most_saved=most if most > least else 0, least_saved=least)


def _marks(heap: Heap) -> set[bytes]:
    """Return the marks of pages that only values lie on; none without Python's objects."""
    try:
        return value_marks(heap)
    except GdbheapError:
        return set()


def _by_type(heap: Heap) -> Counter[str]:
    """Bytes of the Python objects by type, with the buffers that they own; none where there are none."""
    try:
        return Counter({row.type: row.own + row.buffers for row in pyobjects(heap).rows})
    except GdbheapError:
        return Counter()
