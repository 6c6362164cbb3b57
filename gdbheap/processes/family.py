"""Several processes in one answer: the memory of each process, their shared memory, and memory that they could share.

The kernel's figures are read while all processes are stopped, so that they are from the same moment. Then the processes
are read one by one. Each is compared with a relative whose pages it had at the fork: its parent or a sibling.

The relative is stopped only while pages are compared, and only if both processes come from one exec. All comparisons
with one relative together stop it for no longer than a process may be stopped at a time.
"""

from __future__ import annotations

import resource
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import field, replace
from typing import Any, Final, Literal

from gdbheap._native import ProcessAccount, Stop
from gdbheap.answers.pyobjects import pyobjects
from gdbheap.dataclass import dataclass
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
    WrittenBytes,
    exec_of,
    page_marks,
    total_types,
    total_written,
    value_marks,
)
from gdbheap.targets import stopping
from gdbheap.targets.chosen_processes import held as held_of_many
from gdbheap.targets.process import Preparation, program_of, stopped
from gdbheap.targets.running_processes import running

__all__ = ["Advice", "ProcessFamily", "MemberProcess", "FamilySums", "family"]

FREEZE: Final = "freeze"
PRELOAD: Final = "preload"
LONGEST_STOP = 1.0
# Advice that saves at most this percentage of the total PSS is not given.
MIN_PERCENT = 1

NOT_COMPARED = (
    "it was not compared with process {}, which the comparison had stopped for {:.1f} s: allow more time"
    " (--max-stop=SECONDS, 0 for no limit)"
)
# The note for a process whose memory belongs to another user or may not be read.
NOT_READ = "its memory cannot be read: 'gdbheap doctor PID' shows why"

Progress = Callable[[str, int, int], object]
Verdict = Callable[[Ledger], str]


@dataclass(frozen=True)
class MemberProcess:
    """One process of the answer.

    ``beside``: the id of the process with which its pages were compared.
    ``note``: why a part of the answer is missing for this process; None if all is known.
    ``verdict``, ``holders``: the verdict and the holders on its first page; "" and empty if its heap was not read.
    """

    pid: int
    parent_pid: int
    program: str
    rss: int | None
    pss: int | None
    uss: int | None
    swapped: int | None
    heap: HeapUse | None = None
    beside: int | None = None
    written: WrittenBytes | None = None
    note: str | None = None
    verdict: str = ""
    holders: list[MainHolder] = field(default_factory=list)


@dataclass(frozen=True)
class FamilySums:
    """The sums over the processes whose figures are known, in bytes.

    ``pss``: the total memory of these processes, provided that they share no memory with other processes."""

    processes: int
    rss: int
    pss: int
    uss: int
    shared: int
    swapped: int


@dataclass(frozen=True)
class Advice:
    """The memory that an action before the fork would save.

    ``id``: "freeze" (call gc.freeze()), or "preload" (load data before the fork that each worker now loads for itself).
    ``saves``, ``most_saved``, ``least_saved``: bytes.
    """

    id: Literal["freeze", "preload"]
    saves: int
    workers: int
    most_saved: int | None = None
    least_saved: int | None = None


@dataclass(frozen=True)
class ProcessFamily:
    """The answer of ``gdbheap processes``: a row for each process, the sums over all, and what was written to pages
    that they had shared."""

    rows: list[MemberProcess]
    total: FamilySums
    written: WrittenBytes | None
    types: list[TypeCounts]
    savings: list[Advice]

    @property
    def targets(self) -> list[dict[str, Any]]:
        """The processes of the answer, as the key "targets" of a JSON document."""
        return [{"kind": "process", "pid": row.pid} for row in self.rows]

    @property
    def ok(self) -> bool:
        """Whether everything that was requested is known: no row has a note about missing data."""
        return all(member.note is None for member in self.rows)

    @property
    def is_refused(self) -> bool:
        """Whether there are processes, but the kernel does not let gdbheap read the memory of any of them."""
        return not self.total.processes and any(member.note == NOT_READ for member in self.rows)


@dataclass
class _Looks:
    """The facts about the ``held`` processes, collected one by one.

    ``beside``: for each process, the id of the relative with which it is compared.
    ``stood``: for each relative, how many seconds it was stopped for comparisons.
    ``forking``: the relatives that are parents.
    ``types``: types whose reference counts were written.
    ``marks``: for each worker, the hashes of its pages that contain only values, such as strings.
    ``objects``: for each worker, the bytes of its objects by type.
    ``parents``: for each parent, the hashes of its pages, and the bytes of its objects by type.
    """

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
) -> ProcessFamily:
    """Return the answer for these processes, each of which is stopped for at most ``limit`` seconds at a time.

    ``quick``: read only the kernel's figures.
    ``verdict_of``: a function that returns the verdict of a first page as a sentence. Without it no holders are
    searched.

    Raises GdbheapError if the kernel shows no figures at all, and one of the processes could not be opened. Raises
    NoTarget if none of the processes exists.
    """
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
        raise NoTarget("none of these processes exists: ps -e lists the running processes")
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
    return ProcessFamily(members, sums, written, total_types(looks.types), advice)


def _held(processes: Sequence[Named]) -> tuple[dict[int, ProcessFolder], dict[int, str]]:
    """Open the folders of the processes. Return them by id and, for each process that could not be held open, the
    reason.

    Processes that do not exist or may not be seen are in neither dict.
    """
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
    """Return the kernel's figures, read while all processes are stopped, so that they are from the same moment.

    A process that cannot be stopped continues to run; its figures are read nevertheless.
    """
    with ExitStack() as standing:
        standing.enter_context(stopping.undisturbed())
        for folder in held.values():
            with suppress(OSError, TimeoutError):
                standing.callback(Stop(folder, limit or LONGEST_STOP).release)
        # The figures are read by process id. If the process still exists afterwards, the id was its own.
        return [row for row in accounts.read(list(held)) if held[row.pid].is_there()]


def _member(row: ProcessAccount, folder: ProcessFolder) -> MemberProcess:
    name = row.name.decode("utf-8", "replace")
    program, memory = program_of(folder) or name, row.memory
    if memory is None:
        note = EXHAUSTED.get(row.error, NOT_READ)
        return MemberProcess(row.pid, row.parent, program, _rss(folder), None, None, None, note=note)
    swap = memory.swap if memory.swap_share is None else memory.swap_share
    return MemberProcess(row.pid, row.parent, program, memory.rss, memory.pss, memory.private, swap)


def _rss(folder: ProcessFolder) -> int | None:
    """Return the RSS of a process in bytes; None if the process has ended. Any user may read it."""
    with suppress(OSError):
        living = folder.living()
        return None if living is None else procfs.kib(living[1].get("VmRSS"))
    return None


def _absent(pid: int, folder: ProcessFolder | None, left_out: str | None) -> MemberProcess:
    """Return the row of a process that has ended, has no memory, or could not be opened (``left_out``: the reason)."""
    found = running(pid)
    if found is not None and left_out is not None:
        return MemberProcess(pid, found.parent, found.name, None, None, None, None, note=left_out)
    if found is None or folder is None or not folder.is_running():
        return MemberProcess(pid, 0, "", None, None, None, None, note="it has ended")
    what = "a kernel thread has no memory of its own" if found.is_kernels else "it has no memory any more"
    return MemberProcess(pid, found.parent, found.name, None, None, None, None, note=what)


def _sums(members: Iterable[MemberProcess]) -> FamilySums:
    known = [member for member in members if member.pss is not None]
    rss, pss, uss, swap = (
        sum(getattr(member, name) or 0 for member in known) for name in ("rss", "pss", "uss", "swapped")
    )
    return FamilySums(len(known), rss, pss, uss, max(0, pss - uss), swap)


def _relatives(members: Sequence[MemberProcess], held: dict[int, ProcessFolder]) -> dict[int, int]:
    """Return, for each process, the id of the relative whose pages it may have had at the fork.

    The relative is the parent, or the sibling with the smallest USS. It must come from the same exec, because processes
    of different execs never shared pages.
    """
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


def _looked(member: MemberProcess, looks: _Looks) -> MemberProcess:
    """Return the member with all that its memory shows: the use of its heap, and the comparison with its relative.

    If the memory could not be read, a note in the member says why.
    """
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
    """Return the data of a process that can be read before it is stopped; None if it cannot be read."""
    with suppress(GdbheapError):
        return None if folder is None else Preparation(folder)
    return None


def _used(member: MemberProcess, heap: Heap, verdict_of: Verdict | None) -> MemberProcess:
    """Return the member with the figures of its heap and, with ``verdict_of``, the verdict and the holders.

    If its blocks cannot be walked, the member is returned unchanged.
    """
    with suppress(GdbheapError):
        if verdict_of is None:
            return replace(member, heap=heap_use(heap))
        page = ledger(heap, budget=BUDGET)
        use = None if page.summary is None else use_of(page.summary, page.findings)
        return replace(member, heap=use, verdict=verdict_of(page), holders=_holders(page))
    return member


def _holders(page: Ledger) -> list[MainHolder]:
    """Return the holders of a first page, largest first.

    The interpreter and packages, which the page lists last, are among them."""
    imported = [] if page.imported is None else [page.imported]
    return sorted([*imported, *page.holders], key=lambda row: -(row.bytes if row.resident is None else row.resident))


def _compared(found: MemberProcess, heap: Heap, ready: Preparation, looks: _Looks) -> MemberProcess:
    """Return the member with the differences between its pages and those of a relative.

    ``ready``: the relative's preparation. If the processes come from different execs, the member is returned unchanged.
    If the relative may not be stopped any longer, a note says so.
    """
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


def _freeze(compared: Sequence[MemberProcess]) -> Advice:
    """Return the bytes that gc.freeze() before the fork would save. The collector then never writes to older objects,
    so their pages stay shared.
    """
    rows = [member.written for member in compared if member.written is not None and member.written.collector]
    saves, most = sum(row.freezing for row in rows), sum(row.collector for row in rows)
    return Advice(FREEZE, saves, len(rows), most_saved=most)


def _preload(looks: _Looks) -> Advice:
    """Return the bytes that loading before the fork would save: data that several workers have and their parent lacks.

    ``most_saved``: for each type, the bytes of objects that every worker has in addition to the parent's.
    ``least_saved``: the bytes of pages of values that are equal in several workers. Pages of mutable objects do not
    count, because they may be equal by chance.

    If ``least_saved`` is larger, ``most_saved`` is 0. The workers then have no more objects than the parent, and wrote
    the same values to pages inherited from it.
    """
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
    """Return the hashes of the pages that contain only values; empty if the process has no Python objects."""
    try:
        return value_marks(heap)
    except GdbheapError:
        return set()


def _by_type(heap: Heap) -> Counter[str]:
    """Return {type: bytes of its Python objects, including the buffers that they own}; empty without Python."""
    try:
        return Counter({row.type: row.own + row.buffers for row in pyobjects(heap).rows})
    except GdbheapError:
        return Counter()
