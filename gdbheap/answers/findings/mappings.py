"""Memory that no malloc handed out: what a program or a library mapped, shared memory, files."""

from __future__ import annotations

from dataclasses import dataclass, field
from os.path import commonprefix, dirname

from gdbheap.allocators.runtimes import ANONYMOUS
from gdbheap.answers.findings.finding import Claim, Evidence, Figures, Finding
from gdbheap.target.mappings import Mapping
from gdbheap.target.ranges import Ranges, subtract
from gdbheap.target.tmpfs import TmpfsFile, find_tmpfs_files

# Such memory is normal in small amounts: a quarter of RSS is remarkable.
MIN_PERCENT_OF_RSS = 25
MAPPED_MEMORY, SHARED_MEMORY, MAPPED_FILES = "mapped-memory", "shared-memory", "mapped-files"
# By the line of the ledger that has such memory.
KINDS = {"other.rest": MAPPED_MEMORY, "shared": SHARED_MEMORY, "file.readonly": MAPPED_FILES}


@dataclass(frozen=True)
class Mapped(Figures):
    """The largest piece: its ``address``, ``virtual`` and ``resident`` bytes, and the ``name`` of its mapping.
    ``kind``: the finding's id. For mapped memory also the ``runtimes`` that it may belong to, and whether a tracer of
    system calls shows who maps it (``traced``). ``lazily_freed``: what such memory has besides that was given back by
    MADV_FREE. ``left``: of shared memory, the files next to those that the process maps, which it does not map."""

    ids = (MAPPED_MEMORY, SHARED_MEMORY, MAPPED_FILES)
    address: int
    virtual: int
    resident: int
    kind: str
    name: str
    runtimes: list[str]
    traced: bool
    lazily_freed: int = 0
    left: list[TmpfsFile] = field(default_factory=list)


def find(evidence: Evidence) -> list[Claim]:
    """Each kind that is a quarter of RSS or more, with its largest mapping."""
    if evidence.heap.target.pages is None:
        return []
    return [finding for owner in KINDS for finding in _of(evidence, owner)]


def _of(evidence: Evidence, owner: str) -> list[Claim]:
    pieces = _pieces(evidence, owner)
    lazy = min(evidence.heap.target.rss.lazy or 0, sum(evidence.lazily_freed(*piece) for _resident, *piece in pieces))
    # Another allocator's memory is no piece of its own: it is not among the owner's pages.
    size = min(evidence.resident(owner) - lazy, sum(resident for resident, *_ in pieces))
    if not evidence.worth(size) or 100 * size < MIN_PERCENT_OF_RSS * evidence.rss:
        return []
    resident, start, end = max(pieces)
    mapping = evidence.heap.target.mappings.find(start)
    name = mapping.name if mapping else ""
    runtimes, commands = _by_whom(evidence) if KINDS[owner] == MAPPED_MEMORY else ([], [])
    traced = bool(commands) and not runtimes
    left = _left(evidence, pieces) if KINDS[owner] == SHARED_MEMORY else []
    figures = Mapped(start, end - start, resident, KINDS[owner], name, runtimes, traced, lazy, left)
    finding = Finding(KINDS[owner], size, figures, commands)
    return [Claim(finding, lambda: [(start, end) for _resident, start, end in pieces])]


def _left(evidence: Evidence, pieces: list[tuple[int, int, int]]) -> list[TmpfsFile]:
    """Return the files in tmpfs that lie in a folder with one of the ``pieces``, and that the process does not map,
    those whose names are most alike first."""
    target = evidence.heap.target
    if target.proc is None:
        return []
    mapped = [(mapping.device, mapping.inode) for mapping in target.mappings if mapping.inode]
    names = [mapping.name for piece in pieces if (mapping := target.mappings.find(piece[1])) is not None]
    folders = set(map(dirname, names))
    found = [file for file in find_tmpfs_files(target.proc, mapped) if dirname(file.path) in folders]
    return sorted(found, key=lambda file: -max(len(commonprefix([file.path, name])) for name in names))


def _by_whom(evidence: Evidence) -> tuple[list[str], list[str]]:
    """The runtimes that may have mapped such memory, and lines to paste that tell: theirs, or a tracer's."""
    target = evidence.heap.target
    pid = target.pid if target.kind == "process" else None
    may = [runtime for runtime in evidence.heap.runtimes if runtime.kind.memory == ANONYMOUS]
    if may:
        return [runtime.kind.name for runtime in may], [line for runtime in may for line in runtime.commands(target)]
    return [], [] if pid is None else [f"strace -f -k -e trace=mmap,mremap,munmap -p {pid}"]


def _pieces(evidence: Evidence, owner: str) -> list[tuple[int, int, int]]:
    """(resident bytes, start, end) of what is of that kind and no part of a heap, a stack or a loaded object."""
    target, taken = evidence.heap.target, _taken(evidence)
    if target.pages is None or taken is None:
        return []
    of_kind = [(mapping.start, mapping.end) for mapping in target.mappings if _is_of(mapping, owner)]
    found = [(target.pages.count(*piece).resident, *piece) for piece in subtract(of_kind, taken)]
    return [(resident - evidence.lazily_freed(start, end), start, end) for resident, start, end in found]


def _taken(evidence: Evidence) -> Ranges | None:
    """What allocators, stacks and loaded objects have; None where an allocator is there and not known."""
    heap = evidence.heap
    if heap.target.refusal is not None or evidence.glibc is None:
        return None
    if heap.unknown_allocators:
        return None
    taken = heap.owned_ranges() + heap.single_blocks()
    taken += [(mapping.start, mapping.end) for loaded in heap.target.objects for mapping in loaded.mappings]
    return sorted(taken)


def _is_of(mapping: Mapping, owner: str) -> bool:
    if owner == "shared":
        return not mapping.private
    if owner == "file.readonly":
        return mapping.private and not mapping.anonymous and not mapping.writable and not mapping.executable
    return mapping.private and mapping.anonymous
