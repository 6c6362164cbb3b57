"""The text of ``gdbheap processes``: the table, the shared memory, the pages written since the fork, and advice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gdbheap.errors import one_line
from gdbheap.report.text.numbers import counted
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, join, table
from gdbheap.report.text.unfinished import at_least
from gdbheap.report.words.main_holders import described

if TYPE_CHECKING:
    from gdbheap.processes.family import Advice, MemberProcess, ProcessFamily
    from gdbheap.processes.written_pages import TypeCounts, WrittenBytes

__all__ = ["advice_sentence", "counts_sentence", "render", "shared_sentence", "verdict_line", "written_kinds"]

NAMES = ("RSS", "PSS", "USS", "swap")
OF_HEAP = ("in use", "free", "reclaimable", "kept")
PROGRAM_WIDTH = 40
TYPES = 5
CHANGED = "Reference counts have changed in objects of these types:"
RECOUNTED = "These types have objects on pages where reference counts rose and fell again (a page may have several):"
# Savings below this percentage of PSS are not mentioned.
MIN_PERCENT = 1
COUNTS = (
    "Reading un-shared {}: each use of an object changes its reference count, which is stored in the object. An array "
    "has one count for all its numbers: use array.array, numpy, Arrow or an mmap for large tables that workers only "
    "read. gc.freeze() does not help here: it stops the collector, not reference counts."
)
# The kinds of writes to a page, in words, by the field of the answer's record.
KINDS = {
    "collector": "only the collector's headers",
    "counts_only": "only reference counts",
    "both": "reference counts and the collector's headers",
    "data": "real writes",
    "recounted": "reference counts that rose and fell again",
    "restored": "writes that were undone",
}


def render(answer: ProcessFamily, whole: ProcessFamily, left_out: int, quick: bool, style: Style) -> str:
    """Return the text of the answer: the memory of all processes, each process's verdict, a row for each process, and
    advice.

    ``answer`` has the rows to show, ``whole`` all rows; ``left_out``: how many rows are not shown; ``quick``: the heaps
    were not read.
    """
    heads = [Column("pid"), Column("program", True), *map(Column, NAMES)]
    heads += [] if quick else [*map(Column, OF_HEAP), Column("largest finding", True)]
    rows = [_row(member, quick, style) for member in answer.rows]
    rest = f"{counted(left_out, 'more process', 'more processes')} (--top=all lists all)" if left_out else ""
    return join(
        style.filled(shared_sentence(whole, style)),
        "\n".join(style.filled(verdict_line(member, style)) for member in answer.rows if member.verdict),
        table(heads, rows, style, _total(whole, quick, style)),
        rest,
        _written(whole, style),
        style.filled(counts_sentence(whole, style)),
        "\n".join(style.filled(advice_sentence(row, style)) for row in whole.savings),
        "\n".join(style.filled(_note(member)) for member in whole.rows if member.note is not None),
    )


def verdict_line(member: MemberProcess, style: Style) -> str:
    """Return a process's verdict, and a sentence about its largest holder."""
    if not member.holders:
        return member.verdict
    first = member.holders[0]
    what = described(first)
    size = at_least(style.bytes(first.bytes if first.resident is None else first.resident), first.at_least)
    return f"{member.verdict} Largest holder: {first.path}, {size}{f' ({what})' if what else ''}."


def _row(member: MemberProcess, quick: bool, style: Style) -> list[str]:
    sizes = [style.size(size) for size in (member.rss, member.pss, member.uss, member.swapped)]
    row = [str(member.pid), one_line(member.program, PROGRAM_WIDTH), *sizes]
    if quick:
        return row
    heap = member.heap
    if heap is None:
        return [*row, *["-"] * len(OF_HEAP), "-"]
    trim = "-" if heap.reclaimable is None else style.size(heap.reclaimable)
    finding = "-" if heap.finding is None else f"{heap.finding.id} {style.size(heap.finding.bytes)}"
    return [*row, style.size(heap.in_use), style.size(heap.free), trim, style.size(heap.kept), finding]


def _total(answer: ProcessFamily, quick: bool, style: Style) -> list[str]:
    total, heaps = answer.total, [member.heap for member in answer.rows if member.heap is not None]
    known = (total.rss, total.pss, total.uss, total.swapped) if total.processes else [None] * len(NAMES)
    row = ["", "total", *map(style.size, known)]
    if quick:
        return row
    sums = [
        sum(sizes) for sizes in zip(*((heap.in_use, heap.free, heap.reclaimable or 0, heap.kept) for heap in heaps))
    ]
    return [*row, *(map(style.size, sums) if heaps else ["-"] * len(OF_HEAP)), ""]


def shared_sentence(answer: ProcessFamily, style: Style) -> str:
    """Return a sentence about the memory of all processes: in total, private and shared."""
    total = answer.total
    if not total.processes:
        return "The private and the shared memory of these processes cannot be read."
    alone = f"{style.bytes(total.uss)} is private, {style.bytes(total.shared)} is shared"
    if total.processes == 1:
        return f"1 process has {style.bytes(total.pss)} (PSS): {alone}. Its RSS is {style.bytes(total.rss)}."
    whose = f"{counted(total.processes, 'process has', 'processes have')} {style.bytes(total.pss)} together (PSS)"
    return (
        f"{whose}: {alone}. Their RSS adds up to {style.bytes(total.rss)}, because RSS counts a shared page in each "
        "process."
    )


def _written(answer: ProcessFamily, style: Style) -> str:
    written = answer.written
    if written is None:
        return ""
    beside = sum(member.written is not None for member in answer.rows)
    start = f"Private pages that {counted(beside, 'process', 'processes')} inherited through fork: "
    still = f"{style.bytes(written.shared)} is still shared"
    new = f" {style.bytes(written.not_there)} is new since the fork." if written.not_there else ""
    if not written.unshared:
        return style.filled(f"{start}{still}.{new}")
    parts = [f"{style.bytes(size)} {name}" for name, size in written_kinds(written)]
    copied = (
        f"{style.bytes(written.unshared)} has been copied since. Copied pages, by what was written to them: "
        f"{', '.join(parts)}."
    )
    line = f"{start}{still}, and {copied}"
    return "\n".join([style.filled(line + new), *_types(answer.types, style)])


def written_kinds(written: WrittenBytes) -> Iterator[tuple[str, int]]:
    """Yield (description, bytes of the pages) for each kind of write to shared pages, the largest kind first."""
    sizes = [(name, getattr(written, key)) for key, name in KINDS.items()]
    yield from sorted(((name, size) for name, size in sizes if size), key=lambda pair: -pair[1])


def _types(types: list[TypeCounts], style: Style) -> Iterator[str]:
    kinds = ((CHANGED, "bytes"), (RECOUNTED, "recounted"))
    for start, key in sorted(kinds, key=lambda kind: -sum(getattr(row, kind[1]) for row in types)):
        sizes = sorted(((getattr(row, key), row.type) for row in types), reverse=True)
        names = [f"{one_line(name, PROGRAM_WIDTH)} ({style.bytes(size)})" for size, name in sizes[:TYPES] if size]
        if names:
            yield style.filled(f"{start} {', '.join(names)}.")


def counts_sentence(answer: ProcessFamily, style: Style) -> str:
    """Return advice about reference counts if most copied pages were copied because of them; "" otherwise."""
    written = answer.written
    counts = 0 if written is None else written.counts_only + written.recounted
    if written is None or 100 * counts < MIN_PERCENT * answer.total.pss or 2 * counts < written.unshared:
        return ""
    return COUNTS.format(style.bytes(counts))


def advice_sentence(row: Advice, style: Style) -> str:
    """Return advice as a sentence: the action, and the bytes that it saves."""
    if row.id == "freeze":
        most = "" if row.most_saved in (None, row.saves) else f", at most {style.bytes(row.most_saved)}"
        return (
            f"gc.freeze() in the parent right before the fork would save {style.bytes(row.saves)}{most}: in "
            f"{counted(row.workers, 'process', 'processes')} only the collector wrote to these pages. Reference "
            "counts still un-share pages, except those of immortal objects (Python 3.12 and later)."
        )
    return " ".join(filter(None, [_at_most(row, style), _at_least(row, style)]))


def _at_most(row: Advice, style: Style) -> str:
    return (
        f"Loading data before the fork, instead of in each of {counted(row.workers, 'worker')}, saves at most "
        f"{style.bytes(row.most_saved)}. This is the size of the objects that every worker has and the "
        "parent lacks, summed over their types. Their contents may differ."
    )


def _at_least(row: Advice, style: Style) -> str:
    """Return the bytes that are certainly saved, as text; "" if that is almost nothing."""
    if 100 * row.saves < MIN_PERCENT * (row.most_saved or 0):
        return ""
    return (
        f"Loading data before the fork saves at least {style.bytes(row.saves)}, because several workers have the "
        "same immutable objects, byte for byte. Using these objects later copies their pages and ends the saving."
    )


def _note(member: MemberProcess) -> str:
    return f"Process {member.pid}: {member.note}"
