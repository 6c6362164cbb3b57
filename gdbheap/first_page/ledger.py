"""The memory table of ``heap``, called the ledger. Every byte of the address space, resident or not, is in exactly one
line.

A line also counts the bytes of the whole pages that belong to it (see ``partition``). For free memory, these pages
could be returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from gdbheap.allocators.allocator import State
from gdbheap.allocators.line_ids import BREAK_OF_OTHERS, UNEXPLAINED, LineId, line_below
from gdbheap.allocators.registry import OF_C_LIBRARIES
from gdbheap.answers.aborted import Abort
from gdbheap.answers.accounting.partition import (
    CODE,
    DATA,
    ENDED_STACKS,
    FILES,
    MISSING,
    OF_ALLOCATOR,
    OF_KERNEL,
    OF_RUNTIME,
    OTHER,
    READ_ONLY,
    REST,
    SHARED,
    SHARED_FILES,
    STACKS,
    Sum,
    Sums,
    line_states,
    main_runtime,
    other_allocator,
    partition,
    total,
)
from gdbheap.answers.container import MOST_FILES, Container, container
from gdbheap.answers.holder_change import Since
from gdbheap.dataclass import dataclass
from gdbheap.documents import renamed_keys
from gdbheap.findings.finding import Evidence, Finding
from gdbheap.findings.holder.rule import LEFT, MainHolder, with_room
from gdbheap.findings.leak_like.rule import with_holders
from gdbheap.findings.mappings.rule import with_variable
from gdbheap.findings.registry import findings, findings_with_unknown
from gdbheap.findings.settlement import ordered, placed
from gdbheap.first_page.main_holders import BLOCKS_A_SECOND, MainHolders, main_holders
from gdbheap.first_page.next_lines import next_lines
from gdbheap.first_page.outside import IN_USE, outside_holders
from gdbheap.first_page.summary import Summary, reclaimable, summary, with_mapped
from gdbheap.heap import Heap
from gdbheap.host.cgroup import find_group
from gdbheap.host.procfs import Named
from gdbheap.host.procfs import Rss as Known
from gdbheap.host.program_name import program_name
from gdbheap.host.tmpfs import find_tmpfs_files
from gdbheap.host.usage import usage_of
from gdbheap.refusals.refusal import open_folder
from gdbheap.targets.process import program_of
from gdbheap.targets.target import Meanwhile

Name = tuple[LineId, "LineId | None", str]
"""A line's id, its parent's id, and its name."""
FIRST: tuple[Name, ...] = (
    (FILES, None, "program and library files"),
    (STACKS, None, "thread stacks"),
    (SHARED, None, "shared memory"),
)
LAST: tuple[Name, ...] = (
    (OTHER, None, "other mmap"),
    (UNEXPLAINED, None, "unexplained"),
)
# The name of the line of files if data files have at least MIN_PERCENT_OF_DATA of its resident bytes.
WITH_DATA, MIN_PERCENT_OF_DATA = "program, library and data files", 10
ENDED: Name = (ENDED_STACKS, None, "stacks of ended threads")
CUT_OFF: Name = (MISSING, None, "missing from the core")
DETAILS = {
    CODE: "code",
    DATA: "writable data, .bss",
    READ_ONLY: "read-only data",
    SHARED_FILES: "shared file mappings",
    BREAK_OF_OTHERS: "sbrk() by others",
    OF_KERNEL: "vdso",
    REST: "other anonymous memory",
}


@dataclass(frozen=True)
class Rss:
    """Resident and swapped bytes, as the kernel reports them."""

    bytes: int | None
    swapped: int | None
    source: str
    lazily_freed: int | None = None
    anonymous: int | None = None
    file_clean: int | None = None
    file_dirty: int | None = None
    shared: int | None = None
    locked: int | None = None
    huge_pages: int | None = None

    @classmethod
    def from_older(cls, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return ``content`` of a format 1 file with today's key names."""
        return renamed_keys(content, {"swap": "swapped", "lazy": "lazily_freed"})


def rss_of(known: Known) -> Rss:
    """Return the kernel's figures of the memory, split by kind.

    Anonymous pages are dirty, except those freed with MADV_FREE. Shared memory is dirty too. All other dirty bytes are
    on pages of files.
    """
    file = dirty = None
    if known.bytes is not None and known.anonymous is not None and known.shmem is not None:
        file = max(0, known.bytes - known.anonymous - known.shmem)
        if known.dirty is not None:
            dirty = min(file, max(0, known.dirty - (known.anonymous - (known.lazy or 0)) - known.shmem))
    clean = None if file is None or dirty is None else file - dirty
    return Rss(
        known.bytes, known.swap, known.source, known.lazy, known.anonymous, clean, dirty, known.shmem, known.locked,
        known.huge,
    )  # fmt: skip


@dataclass(frozen=True)
class Line:
    """One line of the ledger.

    ``parent``: the id of the line that includes it. ``reclaimable``: for free memory, the bytes that a call of the
    allocator's own function would return now; None for all other memory, and in old snapshots.
    """

    id: str
    parent: str | None
    name: str
    virtual: int
    resident: int | None
    swapped: int | None
    pages: int = 0
    zero: int | None = None
    huge: int | None = None
    whole: int | None = None
    state: str | None = None
    reclaimable: int | None = None

    @property
    def is_free(self) -> bool:
        """Whether the line is free memory of an allocator, including the top."""
        return self.state in (State.FREE.value, State.TOP.value)


@dataclass(frozen=True)
class Page:
    """The JSON document of ``heap``, the first page about a target.

    ``in_use``, ``free`` and ``reclaimable``: sums over all allocators in bytes, None without a ``summary``."""

    verdict: str
    rss: Rss
    in_use: int | None
    free: int | None
    reclaimable: int | None
    holders: list[MainHolder]
    findings: list[Finding]
    next: list[str]
    ledger: list[Line]
    program: str
    summary: Summary | None
    control_group: Container | None
    not_looked: int | None
    not_examined: int
    imported: MainHolder | None
    abort: Abort | None
    since: Since | None
    meanwhile: Meanwhile | None
    others: MainHolder | None
    unknown_findings: list[str]


@dataclass(frozen=True)
class Ledger:
    """The answer of ``heap``: the first page.

    ``unknown_findings``: the ids of findings that were not searched for; an id may end in ``*``.
    """

    rss: Rss
    ledger: list[Line]
    findings: list[Finding]
    trim: int | None = None
    summary: Summary | None = None
    container: Container | None = None
    holders: list[MainHolder] = field(default_factory=list)
    not_looked: int | None = None
    program: str = ""
    pid: int | None = None
    next: list[str] = field(default_factory=list)
    verdict: str = ""
    abort: Abort | None = None
    not_examined: int = 0
    imported: MainHolder | None = None
    since: Since | None = None
    meanwhile: Meanwhile | None = None
    others: MainHolder | None = None
    unknown_findings: list[str] = field(default_factory=list)

    def as_document(self) -> Page:
        """Return the JSON document. It also has the bytes in use and free bytes, over all allocators."""
        told = self.summary
        return Page(
            self.verdict, self.rss, told.used if told else None, told.free if told else None,
            told.returnable if told else None, self.holders, self.findings, self.next, self.ledger, self.program,
            told, self.container, self.not_looked, self.not_examined, self.imported, self.abort, self.since,
            self.meanwhile, self.others, self.unknown_findings,
        )  # fmt: skip

    @property
    def looks_past(self) -> bool:
        """Whether more than half of the memory is in blocks that are not walked.

        Files, and pages freed with MADV_FREE, do not count.
        """
        unknown = self.summary.unknown if self.summary is not None else None
        if unknown is None:
            return False
        known = unknown.bytes is not None
        rows = {line.id: (line.resident or 0) if known else line.virtual for line in self.ledger}
        # Without details, such memory belongs to the line above it.
        line = rows.get(unknown.id, rows.get(unknown.id.rpartition(".")[0], 0))
        own = unknown.bytes if unknown.bytes is not None else line
        roots = [line.id for line in self.ledger if line.parent is None and line.id not in (FIRST[0][0], MISSING)]
        return 2 * own > sum(rows[root] for root in roots) - (self.rss.lazily_freed or 0)

    @property
    def is_blind(self) -> bool:
        """Whether the answer cannot say which memory could be returned.

        This is true if ``looks_past`` is true, no malloc was walked or recognised, and there is no finding.
        """
        summary = self.summary
        walked = summary is not None and not OF_C_LIBRARIES.isdisjoint(summary.allocators)
        unknown = summary.unknown if summary is not None and not walked else None
        return unknown is not None and not unknown.name and not self.findings and self.looks_past


def ledger(heap: Heap, detail: bool = False, patient: bool | None = None, budget: float = 0) -> Ledger:
    """Return the ledger that ``ledger_and_holders`` computes, without the holders."""
    return ledger_and_holders(heap, detail, patient, budget)[0]


def ledger_and_holders(
    heap: Heap, detail: bool = False, patient: bool | None = None, budget: float = 0
) -> tuple[Ledger, MainHolders]:
    """Return the ledger of the whole address space, and all holders that were found.

    If no malloc is found, or if memory cannot be read, all memory counts as files, stacks or other mappings.
    ``detail``: add a line for each part of an arena, kind of file mapping and kind of free memory. ``patient``: also
    look for findings that take longer; None: only if ``detail`` is true. ``budget``: seconds of CPU time for finding
    holders; 0: find none.
    """
    (sums,) = partition(heap)
    follows = budget > 0 and heap.target.refusal is None and heap.used_blocks <= budget * BLOCKS_A_SECOND
    evidence = Evidence(heap, _settle(heap, sums), detail if patient is None else patient, follows)
    told = summary(heap, evidence) if heap.target.refusal is None else None
    sums = _renamed(heap, evidence.sums, detail)
    states = line_states(heap.allocators)
    given = {line: size for each in heap.allocators for line, size in reclaimable(each, sums).items()}
    lines = [_line(heap, name, sums, states, given) for name in _names(heap, sums, detail)]
    known = heap.target.rss
    rss = rss_of(known)
    shown = [line for line in lines if line.virtual or not line.parent]
    trim = evidence.trim.predicted if evidence.trim else None
    found, unknown = findings_with_unknown(evidence)
    outside = outside_holders(evidence)
    told = replace(told, outside=_sum_of(outside, IN_USE), stacks_left=_sum_of(outside, (LEFT,))) if told else None
    held = main_holders(heap, evidence, found, budget, outside) if budget else MainHolders()
    told = with_mapped(told, evidence) if told is not None and held.every is not None else told
    found = with_variable(with_holders(found, held.rows), held.rows)
    found = ordered(placed(with_room([*found, *held.findings], held.rows)))
    answer = Ledger(
        rss,
        shown,
        found,
        trim,
        told,
        _container(heap),
        holders=held.rows,
        not_looked=held.not_looked,
        program=program_name(heap.target.arguments, heap.target.exe),
        pid=heap.target.pid,
        next=next_lines(evidence, held, told.kept if told else []) if budget else [],
        not_examined=held.not_examined,
        imported=held.imported,
        meanwhile=heap.target.meanwhile() if budget else None,
        others=held.others,
        unknown_findings=unknown,
    )
    return answer, held


def without_memory(process: Named) -> Ledger:
    """Return the facts about a process that every user may read: its size, and the memory of its control group.

    Raises NoTarget, and OSError if these cannot be read either.
    """
    folder = open_folder(process)
    usage = usage_of(folder)
    known = Known(usage.rss, usage.swap, "status", anonymous=usage.anonymous)
    rss = rss_of(known)
    group = find_group(folder.place)
    return Ledger(rss, [], [], container=container(group, known), program=program_of(folder), pid=folder.pid)


def _sum_of(rows: Sequence[MainHolder], kinds: tuple[str, ...]) -> int:
    return sum(row.resident or 0 for row in rows if row.kind in kinds)


def _container(heap: Heap) -> Container | None:
    target = heap.target
    if target.proc is None:
        return None
    mapped = ((mapping.device, mapping.inode) for mapping in target.mappings if mapping.inode)
    return container(find_group(target.proc), target.rss, find_tmpfs_files(target.proc, mapped)[:MOST_FILES])


def judged(heap: Heap) -> tuple[Evidence, list[Finding]]:
    """Return the findings and the evidence for them, without computing a ledger."""
    (sums,) = partition(heap)
    evidence = Evidence(heap, _settle(heap, sums))
    return evidence, findings(evidence)


def _names(heap: Heap, sums: Sums, detail: bool) -> list[Name]:
    """Return the names of the ledger's lines: the fixed lines, the lines of the allocators, and the children of both.

    If ``detail`` is true, every line has children. Otherwise only the fixed line "other" has children, and only if a
    known allocator or runtime has memory there.
    """
    other, runtime = other_allocator(heap), main_runtime(heap)
    titles = dict(DETAILS)
    titles |= {line_below(OTHER, other.id): other.title} if other else {}
    titles |= {line_below(OTHER, runtime.kind.id): runtime.title} if runtime else {}
    names: list[Name] = []
    cut_off, ended = [CUT_OFF] * (MISSING in sums), [_of_ended(heap)] * (ENDED_STACKS in sums)
    for row in (*FIRST, *ended, *_of_allocators(heap, sums, detail), *LAST, *cut_off):
        is_data = row[0] == FILES and _has_data_files(heap, total(sums, FILES).resident)
        names.append((FILES, None, WITH_DATA) if is_data else row)
        if row in FIRST + LAST and (detail or (row[0] == OTHER and (other or runtime))):
            below = [owner for owner in sums if owner.rpartition(".")[0] == row[0]]
            names += [(owner, row[0], titles[owner]) for owner in below]
    return names


def _of_ended(heap: Heap) -> Name:
    """Return the name of the line for stacks of ended threads. The name includes the number of threads that were never
    joined."""
    count = sum(stack.is_joinable for stack in heap.ended_stacks)
    owner, parent, title = ENDED
    return owner, parent, f"{title}, {count:,} never joined" if count else title


def _has_data_files(heap: Heap, resident: int) -> bool:
    """Return whether files that were not loaded as code have much of the ``resident`` bytes of mapped files."""
    target = heap.target
    if target.pages is None or not resident:
        return False
    others = [one for one in target.mappings if not one.anonymous and target.object_of(one.start) is None]
    data = [one for one in others if one.private or not heap.is_shared_memory(one)]
    found = sum(target.pages.count(one.start, one.end).resident for one in data)
    return 100 * found >= MIN_PERCENT_OF_DATA * resident


def without_details(lines: Sequence[Line]) -> list[Line]:
    """Return those lines of a detailed ledger that a ledger without details has too."""
    others = [line.id for line in lines if line.parent == OTHER]
    is_split = any(name not in DETAILS for name in others)
    return [
        line
        for line in lines
        if line.parent is None
        or (line.id.count(".") == 1 and line.state is not None)
        or (is_split and line.parent == OTHER)
    ]


def arranged(lines: Sequence[Line], key: Callable[[Line], Any]) -> list[Line]:
    """Return the lines sorted by ``key`` among lines with the same parent. The children of a line follow the line."""
    children: dict[str | None, list[Line]] = {}
    for line in sorted(lines, key=key):
        children.setdefault(line.parent, []).append(line)

    def below(parent: str | None) -> list[Line]:
        return [found for line in children.pop(parent, []) for found in [line, *below(line.id)]]

    return below(None)


def _of_allocators(heap: Heap, sums: Sums, detail: bool) -> Iterator[Name]:
    """Yield the lines of the target's allocators, and of the absent allocators that the ledger always shows."""
    for kind in heap.kinds:
        found = heap.find_allocator(kind)
        if found is None and not kind.shown_idle:
            continue
        yield kind.name, None, kind.title
        for line in found.all_lines() if found is not None else kind.lines:
            if not line.detail or (detail and total(sums, line.id).virtual):
                yield line.id, line.parent, line.title


def _renamed(heap: Heap, sums: Sums, detail: bool) -> Sums:
    """Return the sums by ledger line.

    An allocator or a runtime without a line of its own gets one below the line for other memory. Without ``detail`` all
    remaining other memory is one line."""
    other, runtime = other_allocator(heap), main_runtime(heap)
    found = dict(sums)
    if OF_RUNTIME in found and runtime is not None:
        found[line_below(OTHER, runtime.kind.id)] = found.pop(OF_RUNTIME)
    if OF_ALLOCATOR in found and other is not None:
        found[line_below(OTHER, other.id)] = found.pop(OF_ALLOCATOR)
    if not detail:
        rest = [found.pop(owner, Sum()) for owner in (BREAK_OF_OTHERS, OF_KERNEL)]
        found[REST] = sum(rest, found.get(REST, Sum()))
    return found


def _line(heap: Heap, name: Name, sums: Sums, states: dict[LineId, str], given: Mapping[LineId, int]) -> Line:
    pages, found = heap.target.pages, total(sums, name[0])
    state = states.get(name[0])
    if pages is None:
        return Line(*name, found.virtual, None, None, found.pages, state=state)
    huge = found.huge if pages.knows_huge else None
    sizes = (found.virtual, found.resident, found.swapped, found.pages, found.zero)
    returned = _returned(name[0], given) if state in (State.FREE.value, State.TOP.value) else None
    return Line(*name, *sizes, huge, found.whole, state, returned)


def _returned(owner: LineId, given: Mapping[LineId, int]) -> int:
    """Return how many bytes of a ledger line could be returned now.

    ``given``: these bytes by ledger line. If the line is not in it, the lines below it are summed."""
    size = given.get(owner)
    return sum(size for line, size in given.items() if line.startswith(f"{owner}.")) if size is None else size


def _settle(heap: Heap, sums: Sums) -> Sums:
    """Return the sums, with a line for the memory that gdbheap cannot explain.

    These are the bytes by which the kernel's RSS and swap exceed the pages that were found."""
    rss = heap.target.rss
    if heap.target.pages is None or rss.bytes is None:
        return sums
    found = total(sums)
    missing = rss.bytes - found.resident
    swapped = (rss.swap or 0) - found.swapped
    if missing < 0:
        heap.note("zero-pages", bytes=-missing)
    beyond = Sum(resident=max(0, missing), swapped=max(0, swapped))
    return {**sums, UNEXPLAINED: sums.get(UNEXPLAINED, Sum()) + beyond}
