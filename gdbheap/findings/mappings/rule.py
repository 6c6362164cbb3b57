"""Memory that no malloc handed out: mappings of the program or a library, shared memory, files."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import field, replace
from os.path import commonprefix, dirname

from gdbheap.allocators.runtimes import ANONYMOUS
from gdbheap.answers.accounting.partition import READ_ONLY, REST, SHARED, SHARED_FILES
from gdbheap.answers.shared_out import VARIABLE
from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import UNLISTED, Evidence, Figures, Finding, FindingClaim
from gdbheap.findings.holder.rule import SHARED_MEMORY as OF_SHARED_MEMORY
from gdbheap.findings.holder.rule import MainHolder
from gdbheap.host.tmpfs import TmpfsFile, find_tmpfs_files
from gdbheap.targets.mappings import Mapping
from gdbheap.targets.ranges import Ranges, joined, subtract

# The least percentage of RSS for a finding about mapped memory; smaller amounts are normal.
MIN_PERCENT_OF_RSS = 25
MAPPED_MEMORY, SHARED_MEMORY, MAPPED_FILES = "mapped-memory", "shared-memory", "mapped-files"
# The ledger lines of each kind of mapped memory.
KINDS = {MAPPED_MEMORY: (REST,), SHARED_MEMORY: (SHARED,), MAPPED_FILES: (READ_ONLY, SHARED_FILES)}


@dataclass(frozen=True)
class Mapped(Figures):
    """Memory of one kind that no malloc handed out. ``kind``: the finding's id.

    Fields about the largest range: ``address``, ``virtual`` and ``resident`` bytes, and the ``name`` of its mapping.
    Fields about all ranges: ``mappings``: the number of resident mappings; ``alike`` of them have ``each`` virtual
    bytes, the most frequent size. ``lazily_freed``: further bytes of this kind that MADV_FREE freed. ``repeated``: the
    bytes that RSS counts twice or more, because file pages are mapped at several addresses. ``written``: whether the
    program may write to some of the files.

    Fields for mapped memory: ``runtimes``: the runtimes to which it may belong. ``traced``: whether a system call
    tracer can show which code maps it. Fields for shared memory: ``left``: files in the same folders that the process
    does not map. ``holder``: the variable that holds at least half of it, or None."""

    ids = (MAPPED_MEMORY, SHARED_MEMORY, MAPPED_FILES)
    address: int
    virtual: int
    resident: int
    kind: str
    name: str
    runtimes: list[str]
    traced: bool
    lazily_freed: int = 0
    repeated: int = 0
    written: bool = False
    left: list[TmpfsFile] = field(default_factory=list)
    mappings: int = field(default=0, metadata=UNLISTED)
    alike: int = field(default=0, metadata=UNLISTED)
    each: int = field(default=0, metadata=UNLISTED)
    holder: str | None = None

    @property
    def beyond(self) -> int:
        return sum(file.bytes for file in self.left)


def find(evidence: Evidence) -> list[FindingClaim]:
    """Return a list with a finding for each kind of mapped memory that has at least a quarter of RSS.

    The list is empty if no kind has that much, or if residency is unknown."""
    if evidence.heap.target.pages is None:
        return []
    return [finding for kind in KINDS for finding in _of(evidence, kind)]


def _of(evidence: Evidence, kind: str) -> list[FindingClaim]:
    pieces = pieces_of(evidence, kind)
    lazy = lazily_freed_of(evidence, pieces)
    # Memory of another allocator is not subtracted from ``pieces``, but these owners' pages do not include it.
    owned = sum(map(evidence.resident, KINDS[kind]))
    size = min(owned - lazy, sum(resident for resident, *_ in pieces))
    if not evidence.worth(size) or 100 * size < MIN_PERCENT_OF_RSS * evidence.rss:
        return []
    resident, start, end = max(pieces)
    found = ((evidence.heap.target.mappings.find(start), resident) for resident, start, _end in pieces)
    by_mapping = [(mapping, resident) for mapping, resident in found if mapping is not None]
    mappings = list(dict.fromkeys(mapping for mapping, _resident in by_mapping))
    sizes = Counter(one.end - one.start for one in dict.fromkeys(one for one, resident in by_mapping if resident > 0))
    each, alike = max(sizes.items(), key=lambda row: (row[1], row[0]), default=(0, 0))
    name = next((mapping.name for mapping in mappings if start in mapping), "")
    runtimes, commands = _by_whom(evidence) if kind == MAPPED_MEMORY else ([], [])
    repeated = min(size, _repeated(evidence, mappings)) if kind != MAPPED_MEMORY else 0
    figures = Mapped(
        start, end - start, resident, kind, name, runtimes, bool(commands) and not runtimes, lazy, repeated,
        kind == MAPPED_FILES and any(mapping.writable for mapping in mappings),
        _left(evidence, pieces) if kind == SHARED_MEMORY else [], sum(sizes.values()), alike, each,
    )  # fmt: skip
    finding = Finding(kind, size - repeated, figures, commands)
    return [FindingClaim(finding, lambda: [(start, end) for _resident, start, end in pieces])]


def with_variable(found: Sequence[Finding], rows: Sequence[MainHolder]) -> list[Finding]:
    """Return the findings, with the variable that holds most of the shared memory.

    ``rows``: the main holders of the process.
    """
    of_variables = [
        row for row in rows if row.kind == VARIABLE and any(one.kind == OF_SHARED_MEMORY for one in row.traits)
    ]
    first = max(of_variables, key=lambda row: row.resident or 0, default=None)
    return [_held_by(one, first) if first is not None else one for one in found]


def _held_by(finding: Finding, row: MainHolder) -> Finding:
    figures = finding.figures
    if not isinstance(figures, Mapped) or figures.kind != SHARED_MEMORY or 2 * (row.resident or 0) < finding.bytes:
        return finding
    return replace(finding, figures=replace(figures, holder=row.path))


def _repeated(evidence: Evidence, mappings: Sequence[Mapping]) -> int:
    """Return how many resident bytes of files RSS counts more than once, because the process maps them at several
    addresses.
    """
    places: defaultdict[tuple[str, int], list[Mapping]] = defaultdict(list)
    for mapping in mappings:
        if mapping.inode:
            places[mapping.device, mapping.inode].append(mapping)
    found = 0
    for several in places.values():
        if len(several) > 1:
            parts = sorted(part for mapping in several for part in _in_file(evidence, mapping))
            found += _size(parts) - _size(joined(parts))
    return found


def _in_file(evidence: Evidence, mapping: Mapping) -> Ranges:
    """Return the parts of a mapping's file, [start, end), that are resident through this mapping."""
    pages, distance = evidence.heap.target.pages, mapping.offset - mapping.start
    runs = [] if pages is None else pages.runs(mapping.start, mapping.end)
    there = [run for run in runs if pages is not None and pages.count(run.start, run.end).resident]
    return [(run.start + distance, run.end + distance) for run in there]


def _size(ranges: Ranges) -> int:
    return sum(end - start for start, end in ranges)


def _left(evidence: Evidence, pieces: list[tuple[int, int, int]]) -> list[TmpfsFile]:
    """Return the tmpfs files that the process does not map, in the folders of files that it maps.

    ``pieces``: the mapped ranges whose folders count. Files whose names resemble those of the mapped files most come
    first."""
    target = evidence.heap.target
    if target.proc is None:
        return []
    mapped = [(mapping.device, mapping.inode) for mapping in target.mappings if mapping.inode]
    names = [mapping.name for piece in pieces if (mapping := target.mappings.find(piece[1])) is not None]
    folders = set(map(dirname, names))
    found = [file for file in find_tmpfs_files(target.proc, mapped) if dirname(file.file) in folders]
    return sorted(found, key=lambda file: -max(len(commonprefix([file.file, name])) for name in names))


def _by_whom(evidence: Evidence) -> tuple[list[str], list[str]]:
    """Return the runtimes that may have mapped anonymous memory, and commands that show which code mapped it.

    The commands are the runtimes' own, or a tracer's."""
    target = evidence.heap.target
    pid = target.pid if target.kind == "process" else None
    may = [runtime for runtime in evidence.heap.runtimes if runtime.kind.memory == ANONYMOUS]
    if may:
        return [runtime.kind.name for runtime in may], [line for runtime in may for line in runtime.commands(target)]
    return [], [] if pid is None else [f"strace -f -k -e trace=mmap,mremap,munmap -p {pid}"]


def lazily_freed_of(evidence: Evidence, pieces: Sequence[tuple[int, int, int]]) -> int:
    """Return the bytes of the ranges in ``pieces`` that MADV_FREE freed and that are still resident."""
    return min(evidence.heap.target.rss.lazy or 0, sum(evidence.lazily_freed(*piece) for _resident, *piece in pieces))


def pieces_of(evidence: Evidence, kind: str) -> list[tuple[int, int, int]]:
    """Return (resident bytes, start, end) of each range of mapped memory to which the finding ``kind`` applies.

    ``kind``: the finding's id. Allocators, stacks and loaded objects are left out. Bytes that MADV_FREE freed do not
    count as resident.
    """
    target, taken = evidence.heap.target, _taken(evidence)
    if target.pages is None or taken is None:
        return []
    of_kind = [(mapping.start, mapping.end) for mapping in target.mappings if _is_of(evidence, mapping, kind)]
    found = [(target.pages.count(*piece).resident, *piece) for piece in subtract(of_kind, taken)]
    return [(resident - evidence.lazily_freed(start, end), start, end) for resident, start, end in found]


def _taken(evidence: Evidence) -> Ranges | None:
    """Return the ranges of allocators, stacks and loaded objects; None if an allocator is unknown."""
    heap = evidence.heap
    if heap.target.refusal is not None or evidence.glibc is None:
        return None
    if heap.unknown_allocators:
        return None
    taken = heap.owned_ranges() + heap.single_blocks()
    taken += [(mapping.start, mapping.end) for loaded in heap.target.objects for mapping in loaded.mappings]
    return sorted(taken)


def _is_of(evidence: Evidence, mapping: Mapping, kind: str) -> bool:
    if not mapping.private:
        return kind == (SHARED_MEMORY if evidence.heap.is_shared_memory(mapping) else MAPPED_FILES)
    if kind == MAPPED_FILES:
        return not mapping.anonymous and not mapping.writable and not mapping.executable
    return kind == MAPPED_MEMORY and mapping.anonymous
