"""What a program asks about the memory of a process, a core or a snapshot."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from dataclasses import replace
from html import escape
from types import TracebackType
from typing import Any

from gdbheap.answers import at, block_kinds, chunks, holes, owners, pyobjects, retained
from gdbheap.answers.aborted import abort_of
from gdbheap.api import converting, writing
from gdbheap.api.reading import Reading
from gdbheap.api.rows import Block, Finding, Holder, Hole, Object, Retained, TypeRow
from gdbheap.api.table import Table
from gdbheap.api.values import Size, size_of
from gdbheap.errors import NotAPython, UsageError, or_none
from gdbheap.findings import ordered, placed
from gdbheap.first_page.ledger import Ledger, Line, arranged, ledger, ledger_and_holders, without_details
from gdbheap.first_page.main_holders import BUDGET
from gdbheap.first_page.next_lines import next_of_snapshot
from gdbheap.report.text.style import Style
from gdbheap.report.words.ledger import render
from gdbheap.report.words.remarks import sentence_of
from gdbheap.report.words.verdict import plain_verdict
from gdbheap.text import IN_SHELL, printable_record

__all__ = ["Heap", "reading_of"]

MIB = 1 << 20
MOST_RETAINED = 1000


class Heap:
    """The memory of a process, a core or a snapshot, as ``gdbheap.open`` gives it.

    Nothing is read before it is asked for. A process stands only while its bytes are copied, at the first question; all
    answers are about that moment. ``close``, or the end of a ``with`` block, lets go of everything; afterwards each
    question raises ValueError. Sizes are in bytes; arguments that are sizes take texts such as "1M" too.

    What goes wrong is a GdbheapError: its text is a line for people, ``status`` the exit status that the command has
    for it, and ``next`` what to do. ``print(heap)`` is the first page of ``gdbheap PID``."""

    def __init__(self, reading: Reading, path: str = "") -> None:
        self._reading, self._path = reading, path
        self._page: Ledger | None = None
        self._books: Ledger | None = None

    def __enter__(self) -> Heap:
        self._reading.check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the target and of all that was read of it. A second time does nothing."""
        self._page = self._books = None
        self._reading.close()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._reading.closed

    def __repr__(self) -> str:
        return f"<gdbheap.Heap of {self._reading.name}{', closed' if self.closed else ''}>"

    def __str__(self) -> str:
        return render(printable_record(self._first_page()), self._style())

    def _repr_html_(self) -> str:
        page = self._first_page()
        found = "".join(
            f"<li>{escape(one.text)}: {escape(one.advice)}</li>" for one in converting.findings_of(page.findings)
        )
        findings = f"<p>Findings</p><ol>{found}</ol>" if found else ""
        return f"<p>{escape(plain_verdict(printable_record(page)))}</p>{self.holders()._repr_html_()}{findings}"

    # What is there.

    @property
    def target(self) -> dict[str, Any]:
        """What tells the target from all others: ``kind``, ``pid``, ``core``, ``exe``, ``host``, ``python`` …, as the
        key "target" of a JSON document."""
        look = self._reading.stored()
        if look is not None:
            return dict(look.snapshot.target)
        with self._reading.asked() as heap:
            return {**heap.target.describe(), **heap.versions}

    @property
    def pid(self) -> int | None:
        """The id of the process; None of a core that does not say it."""
        found: int | None = self.target.get("pid")
        return found

    @property
    def rss(self) -> int | None:
        """The resident bytes, as the kernel counts them; of a core those of private memory. None where they are not
        known."""
        return self._known().rss.bytes

    @property
    def in_use(self) -> int | None:
        """The bytes of all blocks in use, of every allocator. None where memory could not be read."""
        found = self._known().summary
        return None if found is None else found.used

    @property
    def free(self) -> int | None:
        """The bytes that allocators have and nobody uses. None where memory could not be read."""
        found = self._known().summary
        return None if found is None else found.free

    @property
    def verdict(self) -> str:
        """The first line of the first page."""
        return plain_verdict(printable_record(self._known()))

    @property
    def warnings(self) -> list[str]:
        """What the answers so far may lack, a sentence each."""
        look = self._reading.stored()
        if look is not None:
            return [sentence_of(each) for each in look.snapshot.warnings]
        with self._reading.asked() as heap:
            return [sentence_of(each) for each in heap.warnings]

    @property
    def partial(self) -> bool:
        """Whether an answer so far may lack something."""
        look = self._reading.stored()
        if look is not None:
            return look.snapshot.partial
        with self._reading.asked() as heap:
            return heap.partial

    # Who has it.

    def holders(self) -> Table[Holder]:
        """The few variables, modules, classes, threads and other holders that have most of what is in use, the largest
        first: those of the first page, each with 1 % of RSS or more."""
        return Table(map(converting.holder_of, self._first_page().holders), Holder)

    def owners(self, top: int | None = None) -> Table[Holder]:
        """All holders of what is in use, the largest first; the first ``top``. Reads all references, once for a heap.
        Raises Unsupported where no allocator is known, and for a snapshot."""
        with self._reading.asked("who holds what; 'holders' has the largest") as heap:
            found = owners.owners(heap, None, top)
        return Table(map(converting.owner_row_of, found.groups), Holder)

    def findings(self) -> Table[Finding]:
        """What could be given back or avoided, the largest first: those of the first page."""
        return Table(converting.findings_of(self._first_page().findings), Finding)

    def types(self, top: int | None = None) -> Table[TypeRow]:
        """Which types hold the memory, the largest first; the first ``top``. A program without Python has kinds of
        blocks instead: classes, containers, what libraries keep. Raises Unsupported where neither is known."""
        look = self._reading.stored()
        if look is not None:
            if look.snapshot.objects is None:
                raise self._reading.lacks("types of a program without Python")
            rows: list[Any] = look.snapshot.objects.rows
        else:
            with self._reading.asked() as heap:
                try:
                    rows = pyobjects.pyobjects(heap, most=0).rows
                except NotAPython:
                    rows = block_kinds.block_kinds(heap).rows
        return Table(map(converting.type_of, rows[:top]), TypeRow, len(rows))

    def retained(self, by: str = "object", top: int | None = MOST_RETAINED) -> Table[Retained]:
        """What would free the most if it went, the largest first; the first ``top``. ``by``: "object", "type" or
        "module"; of a program without Python "object" (a block), "type", "global" or "thread". Reads all references,
        once for a heap. Raises UsageError for another word."""
        look = self._reading.stored()
        if look is not None:
            if by != retained.OBJECT or look.snapshot.owners is None:
                raise self._reading.lacks(f"what is retained by {by}")
            rows = look.snapshot.owners[:top]
        else:
            with self._reading.asked() as heap:
                rows = retained.retained(heap, by, top).rows
        return Table(map(converting.retained_of, rows), Retained)

    # Blocks.

    def blocks(
        self,
        min: Size = MIB,
        max: Size | None = None,
        state: str | Iterable[str] | None = None,
        type: str | None = None,
        top: int | None = None,
    ) -> Table[Block]:
        """The blocks of at least ``min`` bytes (1 MiB; 0 for all, which may be millions) and at most ``max``, the
        largest first; the first ``top``. ``state``: one of "used", "mmapped", "free", "tcache" and those of glibc, or
        several; ``type``: a pattern with *, ? and [...] for what is in them. Raises UsageError for an unknown state,
        Unsupported where no allocator is known, and for a snapshot."""
        states = chunks.STATES if state is None else (state,) if isinstance(state, str) else tuple(state)
        for one in states:
            if one not in chunks.STATES:
                raise UsageError(f"{one!r} is no state of a block: {', '.join(chunks.STATES)} are")
        selection = chunks.Selection(states, size_of(min), None if max is None else size_of(max), None, type)
        with self._reading.asked("blocks") as heap:
            found = chunks.chunks(heap, selection, "size", top)
        return Table(converting.blocks_of(self._reading, found.rows), Block, found.count)

    def holes(self, min: Size = MIB, top: int | None = None) -> Table[Hole]:
        """Free memory that is not given back: holes of at least ``min`` bytes, the largest first; the first ``top``.
        Raises Unsupported where no allocator is known. A snapshot has the 1,000 largest of at least 64 KiB."""
        least, look = size_of(min), self._reading.stored()
        if look is not None:
            if look.snapshot.holes is None:
                raise self._reading.lacks("holes")
            rows = [hole for hole in look.snapshot.holes.rows if hole.size >= least]
            return Table(map(converting.hole_of, rows[:top]), Hole, len(rows))
        with self._reading.asked() as heap:
            found = holes.holes(heap, least, top)
        return Table(map(converting.hole_of, found.rows), Hole, found.count)

    def block_at(self, address: int) -> Block:
        """The block that holds an address. Raises UsageError where there is none."""
        with self._reading.asked("blocks") as heap:
            found = at.find_block(heap, address)
        if found is None:
            raise UsageError(f"{address:#x} is in no block of an allocator that is known")
        return converting.block_of(self._reading, found)

    def object_at(self, address: int) -> Object:
        """The object whose block holds an address; where no object of Python is there, the used block, by what it is.
        Raises UsageError where nothing in use is there."""
        return self._reading.object_at(address)

    # Files.

    def save(self, path: str | os.PathLike[str], blocks: bool = False, owners: bool | None = None) -> None:
        """Write a snapshot, which ``gdbheap.open`` and ``gdbheap.diff`` take later: what ``gdbheap snapshot`` writes,
        without contents of strings, bytes and keys. ``blocks``: also each block; ``owners``: also what needs all
        references, None where that is quick. Raises UsageError where the file cannot be written."""
        look = self._reading.stored()
        if look is not None:
            writing.written(os.fspath(path), look)
            return
        with self._reading.asked() as heap:
            writing.write_snapshot(heap, os.fspath(path), owners, blocks)

    def write_report(self, path: str | os.PathLike[str], owners: bool | None = None) -> None:
        """Write one HTML page with all answers, which needs nothing else: what ``gdbheap report`` writes, without
        contents. ``owners`` as for ``save``. Raises UsageError where the file cannot be written."""
        look = self._reading.stored()
        if look is not None:
            writing.write_page(os.fspath(path), writing.look_report(look))
            return
        with self._reading.asked() as heap:
            writing.write_page(os.fspath(path), writing.target_report(heap, owners))

    # How it is read.

    def _known(self) -> Ledger:
        """The ledger without holders, unless these are known."""
        look = self._reading.stored()
        if look is not None:
            return look.snapshot.ledger
        if self._page is None and self._books is None:
            with self._reading.asked() as heap:
                self._books = ledger(heap)
        found = self._page or self._books
        assert found is not None
        return found

    def _first_page(self) -> Ledger:
        """The first page, found once."""
        look = self._reading.stored()
        if look is not None:
            kept, later = look.snapshot.ledger, next_of_snapshot(look.snapshot.target, self._path)
            lines = arranged(without_details(kept.ledger), _largest_first)
            return replace(kept, ledger=lines, findings=ordered(kept.findings), next=later)
        if self._page is None:
            with self._reading.asked() as heap:
                found, _held = ledger_and_holders(heap, budget=BUDGET)
                abort = or_none(lambda: abort_of(heap))
                told = ordered(placed(found.findings))
                self._page = replace(found, ledger=arranged(found.ledger, _largest_first), findings=told, abort=abort)
        return self._page

    def _style(self) -> Style:
        is_core = self.target.get("kind") == "core"
        width = shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None
        return Style(width=width, rss=self._known().rss.bytes, private=is_core, command=IN_SHELL)


def _largest_first(line: Line) -> tuple[bool, int]:
    """Return the order of siblings in the ledger, by what is resident; what is not known comes last."""
    return line.resident is None, -(line.resident or 0)


def reading_of(heap: Heap) -> Reading:
    """Return what a heap reads, for those that take heaps."""
    return heap._reading
