"""The page of several processes: the memory of each, what they share, and what was written to pages since the fork."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gdbheap.errors import one_line, own_line
from gdbheap.report.page.html import COUNT, SIZE, Column, Section, bar, listed, paragraph, safe, table
from gdbheap.report.page.skeleton import fitted, page
from gdbheap.report.page.target import moment
from gdbheap.report.text.numbers import counted, size_text
from gdbheap.report.text.style import Style
from gdbheap.report.words.processes import (
    advice_sentence,
    counts_sentence,
    shared_sentence,
    verdict_line,
    written_kinds,
)
from gdbheap.text import printable_record

if TYPE_CHECKING:
    from gdbheap.processes.family import MemberProcess, ProcessFamily

__all__ = ["processes_page"]

PROCESSES = (
    Column("pid", "pid"), Column("program", "program"), Column("rss", "RSS", SIZE), Column("pss", "PSS", SIZE),
    Column("uss", "USS", SIZE), Column("swap", "swap", SIZE), Column("in_use", "in use", SIZE),
    Column("free", "free", SIZE), Column("trim", "reclaimable", SIZE), Column("kept", "kept", SIZE),
    Column("finding", "largest finding"), Column("finding_bytes", "worth", SIZE),
)  # fmt: skip
WRITTEN = (Column("kind", "kind of write"), Column("bytes", "bytes", SIZE))
TYPES = (
    Column("type", "type"), Column("objects", "objects", COUNT), Column("bytes", "bytes of pages", SIZE),
    Column("alone", "only counts changed", SIZE), Column("recounted", "counts changed back", SIZE),
)  # fmt: skip


def processes_page(found: ProcessFamily, time: float) -> bytes:
    """Return the HTML page of several processes, encoded. ``time``: when they were read, in seconds since 1970."""
    found = printable_record(found)
    style = Style()
    title = f"Memory of {counted(len(found.rows), 'process', 'processes')}"
    told = [counts_sentence(found, style), *(advice_sentence(row, style) for row in found.savings)]
    advice = listed([sentence for sentence in told if sentence])
    verdicts = listed([verdict_line(member, style) for member in found.rows if member.verdict])
    lead = f'<p class="lead">{safe(shared_sentence(found, style), 1000)}</p>\n{verdicts}{advice}'
    notes = [f"Process {member.pid}: {own_line(member.note)}" for member in found.rows if member.note]
    lead += listed(notes, "warnings")
    return fitted(
        lambda most: page(title, lead, list(_sections(found, most)), f"The processes were read at {moment(time)}.")
    )


def _sections(found: ProcessFamily, most: int) -> Iterator[Section]:
    total = found.total
    sums = ("", "total", total.rss, total.pss, total.uss, total.swapped, "", "", "", "", "", "")
    rows = [_row(member) for member in found.rows]
    body = _bars(found) + table("processes-table", "All processes, the largest first", PROCESSES, rows, most, sums)
    yield Section("processes", "The processes", body)
    if found.written is None:
        return
    written = found.written
    kinds = [(name, size) for name, size in written_kinds(written)]
    told = (
        f"Of the private pages, {size_text(written.shared)} is still shared since the fork, "
        f"{size_text(written.unshared)} "
        f"is no longer shared, and {size_text(written.not_there)} is new since the fork."
    )
    types = [(row.type, row.objects, row.bytes, row.counts_only, row.recounted) for row in found.types]
    body = paragraph(told) + table("written-table", "Pages that are no longer shared", WRITTEN, kinds, most)
    body += table("written-types", "Types of objects whose reference counts have changed", TYPES, types, most)
    yield Section("written", "What wrote to the pages", body)


def _row(member: MemberProcess) -> tuple[object, ...]:
    heap = member.heap
    sizes = (None,) * 4 if heap is None else (heap.in_use, heap.free, heap.reclaimable, heap.kept)
    finding = heap.finding if heap is not None else None
    worth = ("", "") if finding is None else (finding.id, finding.bytes)
    return str(member.pid), member.program, member.rss, member.pss, member.uss, member.swapped, *sizes, *worth


def _bars(found: ProcessFamily) -> str:
    """Return a bar of PSS that shows each process's part of the total."""
    parts = [
        (f"process {member.pid} ({one_line(member.program, 60)}): {size_text(member.pss)} of PSS", member.pss or 0)
        for member in found.rows
    ]
    whole = size_text(sum(size for _text, size in parts))
    return bar(parts, f"PSS of {counted(len(parts), 'process', 'processes')}, {whole} together")
