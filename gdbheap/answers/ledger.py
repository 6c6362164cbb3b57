"""Where did the memory go? Every byte of the address space, and every resident page, in exactly one line.

Which owner gets a page that several touch is said in ``partition``: what is resident under "free" are whole pages that
nobody holds.
"""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap.answers.findings import Evidence, Finding, findings
from gdbheap.answers.partition import Sum, Sums, main_runtime, other_allocator, partition, total
from gdbheap.answers.summary import Summary, summary
from gdbheap.heap import Heap

NAMES = (
    ("file", None, "files: programs, libraries, mapped files"),
    ("stacks", None, "stacks of threads"),
    ("shared", None, "shared memory"),
    ("glibc", None, "glibc malloc"),
    ("glibc.used", "glibc", "chunks in use"),
    ("glibc.mmapped", "glibc", "chunks with a mapping of their own"),
    ("glibc.free", "glibc", "free chunks, also in thread caches and fast bins"),
    ("glibc.top", "glibc", "top chunks"),
    ("glibc.overhead", "glibc", "arenas' own data, and address space reserved for them"),
    ("pymalloc", None, "Python's pymalloc"),
    ("pymalloc.used", "pymalloc", "blocks in use"),
    ("pymalloc.free", "pymalloc", "free blocks and pools"),
    ("pymalloc.overhead", "pymalloc", "pool headers and padding"),
    ("mimalloc", None, "Python's mimalloc"),
    ("mimalloc.used", "mimalloc", "blocks in use"),
    ("mimalloc.free", "mimalloc", "free blocks, pages and segments, and address space reserved for them"),
    ("mimalloc.overhead", "mimalloc", "segment headers and padding"),
    ("other", None, "other memory that a program or library mapped"),
    ("unexplained", None, "unexplained"),
)
DETAILS = {
    "file.text": "code of files",
    "file.data": "data of files that may be written, .bss",
    "file.readonly": "data of files that is only read",
    "glibc.free.mmapped": "chunks with a mapping of their own, in a thread's cache",
    "pymalloc.free.blocks": "free blocks in pools in use",
    "pymalloc.free.pools": "free pools",
    "mimalloc.free.blocks": "free blocks of pages",
    "mimalloc.free.spans": "spans without a page",
    "mimalloc.free.reserve": "reserved beside the segments",
    "other.break": "other users' part of the break",
    "other.kernel": "the kernel's vdso and its data",
    "other.rest": "the rest",
}
REST = "other.rest"


@dataclass(frozen=True)
class Rss:
    """What the kernel says: resident and swapped bytes, and where that was read."""

    bytes: int | None
    swap: int | None
    source: str


@dataclass(frozen=True)
class Line:
    """One line of the ledger; sizes in bytes, None where residency is not known.

    ``pages``: the whole pages that belong to this line; of those the resident ones, the swapped ones, and ``zero``, for
    which the kernel's zero page stands in and which are not resident. ``huge``: of the resident ones those
    mapped by huge pages, None also where the kernel does not say."""

    id: str
    parent: str | None
    name: str
    virtual: int
    resident: int | None
    swapped: int | None
    pages: int = 0
    zero: int | None = None
    huge: int | None = None


@dataclass(frozen=True)
class Ledger:
    """The answer of ``heap``. ``trim``: what malloc_trim(0) would give back; None where that is not known. ``summary``:
    what is used and what is free, in all allocators; None where memory cannot be read."""

    rss: Rss
    ledger: list[Line]
    findings: list[Finding]
    trim: int | None = None
    summary: Summary | None = None


def ledger(heap: Heap, detail: bool = False) -> Ledger:
    """The whole address space. What cannot be looked into (no glibc, no memory) stays under files, stacks and other.

    ``detail``: a line for each arena's part, kind of file mapping and kind of free memory, and findings that take
    longer."""
    (sums,) = partition(heap)
    evidence = Evidence(heap, _settle(heap, sums), detail)
    told = summary(heap, evidence) if heap.target.refusal is None else None
    sums = _renamed(heap, evidence.sums, detail)
    lines = [_line(heap, name, parent, text, sums) for name, parent, text in _names(heap, sums, detail)]
    rss = Rss(heap.target.rss.bytes, heap.target.rss.swap, heap.target.rss.source)
    shown = [line for line in lines if line.virtual or not line.parent]
    return Ledger(rss, shown, findings(evidence), evidence.trim.predicted if evidence.trim else None, told)


def judged(heap: Heap) -> tuple[Evidence, list[Finding]]:
    """The findings without the ledger, and what they rest on."""
    (sums,) = partition(heap)
    evidence = Evidence(heap, _settle(heap, sums))
    return evidence, findings(evidence)


def _names(heap: Heap, sums: Sums, detail: bool) -> list[tuple[str, str | None, str]]:
    """``NAMES``, and the children that there are beyond them: in detail of every line, else of the other memory where
    an allocator or a runtime is known to be in it."""
    other, runtime = other_allocator(heap), main_runtime(heap)
    titles = dict(DETAILS)
    titles |= {f"other.{other.id}": other.title} if other else {}
    titles |= {f"other.{runtime.kind.id}": runtime.title} if runtime else {}
    known = {name for name, _parent, _text in NAMES}
    names: list[tuple[str, str | None, str]] = []
    for row in NAMES:
        # mimalloc has its lines only where it is in use.
        if row[0].startswith("mimalloc") and heap.mimalloc is None:
            continue
        names.append(row)
        if detail or (row[0] == "other" and (other or runtime)):
            below = [owner for owner in sums if owner.rpartition(".")[0] == row[0] and owner not in known]
            names += [(owner, row[0], titles.get(owner) or _arena(owner)) for owner in below]
    return names


def _arena(owner: str) -> str:
    index = owner.rpartition(".")[2]
    return f"arena {index}" if index != "0" else "the main arena"


def _renamed(heap: Heap, sums: Sums, detail: bool) -> Sums:
    """The allocator and the runtime in the other memory by their names; what is other besides in one line, unless in
    ``detail``."""
    other, runtime = other_allocator(heap), main_runtime(heap)
    found = dict(sums)
    if "other.runtime" in found and runtime is not None:
        found[f"other.{runtime.kind.id}"] = found.pop("other.runtime")
    if "other.allocator" in found and other is not None:
        found[f"other.{other.id}"] = found.pop("other.allocator")
    if not detail:
        rest = [found.pop(owner, Sum()) for owner in ("other.break", "other.kernel")]
        found[REST] = sum(rest, found.get(REST, Sum()))
    return found


def _line(heap: Heap, name: str, parent: str | None, text: str, sums: Sums) -> Line:
    pages, found = heap.target.pages, total(sums, name)
    if pages is None:
        return Line(name, parent, text, found.virtual, None, None, found.pages)
    huge = found.huge if pages.knows_huge else None
    return Line(name, parent, text, found.virtual, found.resident, found.swapped, found.pages, found.zero, huge)


def _settle(heap: Heap, sums: Sums) -> Sums:
    """Sets the pages found beside what the kernel says; what it says beyond them is unexplained."""
    rss = heap.target.rss
    if heap.target.pages is None or rss.bytes is None:
        return sums
    found = total(sums)
    missing = rss.bytes - found.resident
    swapped = (rss.swap or 0) - found.swapped
    if missing < 0:
        heap.note(f"zero pages cannot be told apart: the lines add up to {-missing} bytes more than the kernel's Rss")
    beyond = Sum(resident=max(0, missing), swapped=max(0, swapped))
    return {**sums, "unexplained": sums.get("unexplained", Sum()) + beyond}
