"""Find the few holders of most memory in use, for the first page.

They are variables, packages, globals, threads and runtimes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import field

from gdbheap.answers.accounting.partition import OF_ALLOCATOR, OF_RUNTIME, main_runtime, other_allocator, total
from gdbheap.answers.accounting.source_paths import source_path
from gdbheap.answers.owners import Owners, owners
from gdbheap.answers.shared_out import NOBODY
from gdbheap.contents.python.names.packages import INTERPRETER_ITSELF, PACKAGE, STANDARD, THREAD
from gdbheap.dataclass import dataclass
from gdbheap.errors import GdbheapError
from gdbheap.findings.finding import Evidence, Finding
from gdbheap.findings.holder.rule import CODE, OTHERS, RUNTIME, MainHolder, found_of
from gdbheap.first_page.alike_holders import fold_alike
from gdbheap.first_page.also_held import with_others
from gdbheap.first_page.first_holders import FirstHolders, first_holders, length_at, limit_of
from gdbheap.first_page.outside import unowned_holders
from gdbheap.first_page.traits import with_traits
from gdbheap.heap import Heap

__all__ = ["BLOCKS_A_SECOND", "BUDGET", "MainHolders", "main_holders", "most_is_imported", "seconds_for"]

BUDGET = 3.0
"""Seconds of CPU time that may be spent on holders by default."""
# About how many blocks one CPU core follows in a second. On one machine 15.7 million blocks of Python took 4.7 s, and 9
# million of C took 4.3 s.
BLOCKS_A_SECOND = 2_500_000
MOST, MIN_PERCENT = 5, 5
IMPORTED = (PACKAGE, STANDARD, INTERPRETER_ITSELF)
OTHER_CODE = "the interpreter, its library and other packages"
# Rows of these kinds are not holders that a program could release. In a program without Python, a stack counts as a
# holder too.
NOT_NAMED = (INTERPRETER_ITSELF, STANDARD, NOBODY)
# In the programs that were measured, an interpreter with its library and a few packages has up to 30 MiB.
MOST_OF_CODE = 32 << 20


@dataclass(frozen=True)
class MainHolders:
    """The main holders, the largest first, and the findings about them.

    ``rows``: at most MOST, each with at least MIN_PERCENT of RSS. ``not_looked``: the number of blocks in use if there
    are too many to follow all references, otherwise None. ``not_examined``: the bytes in use without a proven holder,
    because not all references were read. ``finishing``: command lines that would examine these bytes; empty if they
    were left out for lack of time. ``every``: all holders of blocks, including those that no program could release;
    None if not all references were followed. ``imported``: the interpreter, its library and packages that are not in
    ``rows``; ``others``: all other holders that are not in ``rows``. Each of these two is None below MIN_PERCENT of
    RSS.
    """

    rows: list[MainHolder] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    not_looked: int | None = None
    not_examined: int = 0
    finishing: list[str] = field(default_factory=list)
    every: list[MainHolder] | None = None
    imported: MainHolder | None = None
    others: MainHolder | None = None


def main_holders(
    heap: Heap,
    evidence: Evidence,
    found: Sequence[Finding] = (),
    budget: float = BUDGET,
    outside: Sequence[MainHolder] = (),
) -> MainHolders:
    """Return the main holders, including those ``outside`` the allocators. ``found``: the other findings.

    All references are followed if this takes at most about ``budget`` seconds of CPU time, or if all details are
    wanted. Otherwise the holders of a program without Python stay unknown. In a Python program, gdbheap then lists the
    holders that it can confirm by reference counts within the budget. Runtimes are found by their mappings."""
    runtimes = list(_runtimes(heap, evidence))
    rows = [*runtimes, *outside]
    not_looked, whole, every, first = None, Owners([], 0, 0), None, FirstHolders()
    named: list[MainHolder] = []
    always = evidence.detail or budget == math.inf
    try:
        if heap.target.refusal is None and (not heap.target.remote or always):
            count = heap.used_blocks
            not_looked = count if count > budget * BLOCKS_A_SECOND and not always else None
            if not_looked is None:
                whole = owners(heap, None, None)
                every = [*runtimes, *_of_graph(heap, whole)]
                unnamed = (*NOT_NAMED, THREAD) if heap.is_python else NOT_NAMED
                named = rows = fold_alike([row for row in every if row.kind not in unnamed])
                rows += unowned_holders(evidence, outside)
            elif heap.is_python:
                first = first_holders(heap, budget)
                rows += first.rows
    except GdbheapError as error:
        heap.note("holders-not-known", error=str(error))
    # If residency is unknown, the shares refer to the memory in use.
    listed = sum(row.bytes for row in ([*every, *outside] if every else rows))
    rss = heap.target.rss.bytes or (listed if every else max(listed, evidence.in_use))
    rows = sorted((row for row in rows if _is_much(row, rss)), key=_rank)[:MOST]
    imported = [row for row in every or [] if row.kind in IMPORTED and row not in rows]
    left = [row for row in named if row.kind not in (*IMPORTED, CODE) and row not in rows]
    together = (
        _together(OTHER_CODE, STANDARD, imported, heap),
        _together(f"{len(left):,} more holder{'s' * (len(left) != 1)}", OTHERS, left, heap),
    )
    code, others = (one if one is not None and _is_much(one, rss) else None for one in together)
    rows = _shared(heap, rows) if every is not None else rows
    rest = first.not_examined or whole.not_examined
    return MainHolders(rows, found_of(evidence, rows, found, rss), not_looked, rest, whole.next, every, code, others)


def _shared(heap: Heap, rows: list[MainHolder]) -> list[MainHolder]:
    """Return the rows, each with the other holders of its memory and with facts about its objects, if these are
    known.
    """
    try:
        return with_traits(heap, with_others(heap, rows))
    except GdbheapError as error:
        heap.note("others-hold-not-known", error=str(error))
        return rows


def _rank(row: MainHolder) -> tuple[bool, int, int, str]:
    """Return the sort key of a row: its resident bytes. Rows of code, which the kernel can drop, come last."""
    return row.kind == CODE, -(row.bytes if row.resident is None else row.resident), -row.bytes, row.path


def seconds_for(blocks: int) -> int:
    """Return the estimated seconds of CPU time for finding the holders of this number of blocks."""
    return math.ceil(blocks / BLOCKS_A_SECOND)


def _together(name: str, kind: str, rows: list[MainHolder], heap: Heap) -> MainHolder | None:
    """Return one row for all of ``rows``, with this name and kind; None if ``rows`` is empty."""
    if not rows:
        return None
    known = [row.resident for row in rows if row.resident is not None]
    resident = sum(known) if len(known) == len(rows) else None
    size = sum(row.bytes for row in rows)
    return MainHolder(size, resident, _share(heap, resident), name, None, None, kind)


def most_is_imported(imported: MainHolder | None, rss: int | None) -> bool:
    """Return whether the interpreter and packages have at least half of RSS, and more bytes than their code alone
    needs.
    """
    return imported is not None and imported.bytes >= MOST_OF_CODE and 2 * imported.bytes >= (rss or 0) > 0


def _share(heap: Heap, resident: int | None) -> float | None:
    rss = heap.target.rss.bytes
    return min(resident / rss, 1.0) if resident is not None and rss else None


def _is_much(row: MainHolder, rss: int | None) -> bool:
    size = row.bytes if row.resident is None else row.resident
    return rss is None or 100 * size >= MIN_PERCENT * rss


def _of_graph(heap: Heap, whole: Owners) -> Iterator[MainHolder]:
    for row in whole.groups:
        if row.root is None or row.kind is None:
            continue
        limit = limit_of(heap, row.address, row.type)
        count = row.variables if row.variables > 1 else length_at(heap, row.address) if limit is None else limit.entries
        array = row.array
        yield MainHolder(
            row.bytes,
            row.resident,
            row.share,
            source_path(row.root),
            row.type if array is None else array.what,
            count,
            row.kind,
            row.address,
            [] if array is None else list(array.shape),
            row.parts,
            row.way,
            row.at_least,
            None if limit is None else limit.maximum,
            row.largest_block,
        )


def _runtimes(heap: Heap, evidence: Evidence) -> Iterator[MainHolder]:
    """Yield the memory of an allocator and of a runtime that are recognised but not walked."""
    other, runtime = other_allocator(heap), main_runtime(heap)
    known = heap.target.pages is not None
    for owner, name in (
        (OF_ALLOCATOR, other.title if other is not None else None),
        (OF_RUNTIME, runtime.title if runtime is not None else None),
    ):
        whole = total(evidence.sums, owner)
        if name is not None and whole.virtual:
            size, resident = whole.resident if known else whole.virtual, whole.resident if known else None
            yield MainHolder(size, resident, _share(heap, resident), name, None, None, RUNTIME)
