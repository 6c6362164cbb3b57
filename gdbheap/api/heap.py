"""The library's questions about the memory of a process, a core or a snapshot."""

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
from gdbheap.api.arguments import Size, address_of, count_of, size_of, word_of
from gdbheap.api.open_target import SharedTarget
from gdbheap.api.rows import Block, Finding, Holder, Hole, Object, Retained, TypeRow
from gdbheap.api.table import Table
from gdbheap.errors import NotAPython, UsageError, or_none
from gdbheap.findings.settlement import ordered, placed
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
    """The memory of a process, a core or a snapshot, returned by ``gdbheap.open``.

    Nothing is read before the first question. Then a process is stopped only while its bytes are copied, and all
    answers are about that moment. ``close``, or the end of a ``with`` block, releases everything; after that each
    question raises ValueError. Sizes are in bytes; arguments that are sizes may also be strings such as "1M".

    Errors are GdbheapErrors. The text of an error is one line, ``status`` is the exit status that the command would
    have, and ``next`` says what to do. ``print(heap)`` prints the first page of ``gdbheap PID``."""

    def __init__(self, reading: SharedTarget, path: str = "") -> None:
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
        """Release the target and all data that was read from it. A second call does nothing."""
        self._page = self._books = None
        self._reading.close()

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called. Each question then raises ValueError."""
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

    # Questions about the target as a whole.

    @property
    def target(self) -> dict[str, Any]:
        """The facts that identify the target: ``kind``, ``pid``, ``core``, ``exe``, ``host``, ``python`` …, as under
        the key "target" of a JSON document."""
        look = self._reading.stored()
        if look is not None:
            return dict(look.snapshot.target)
        with self._reading.asked() as heap:
            return {**heap.target.describe(), **heap.versions}

    @property
    def pid(self) -> int | None:
        """The process id; None for a core that does not record it."""
        found: int | None = self.target.get("pid")
        return found

    @property
    def rss(self) -> int | None:
        """The resident bytes, as the kernel counts them; for a core, the resident bytes of private memory. None if
        unknown."""
        return self._known().rss.bytes

    @property
    def in_use(self) -> int | None:
        """The bytes of all blocks in use, over all allocators. None if memory could not be read."""
        found = self._known().summary
        return None if found is None else found.used

    @property
    def free(self) -> int | None:
        """The bytes that allocators have but that the program does not use. None if memory could not be read."""
        found = self._known().summary
        return None if found is None else found.free

    @property
    def verdict(self) -> str:
        """The first line of the first page: how much memory is resident, in use and free."""
        return plain_verdict(printable_record(self._known()))

    @property
    def warnings(self) -> list[str]:
        """The warnings about what the answers so far may lack, one sentence each."""
        look = self._reading.stored()
        if look is not None:
            return [sentence_of(each) for each in look.snapshot.warnings]
        with self._reading.asked() as heap:
            return [sentence_of(each) for each in heap.warnings]

    @property
    def partial(self) -> bool:
        """Whether any answer so far may be incomplete."""
        look = self._reading.stored()
        if look is not None:
            return look.snapshot.partial
        with self._reading.asked() as heap:
            return heap.partial

    # Questions about holders, findings and types.

    def holders(self) -> Table[Holder]:
        """Return the variables, modules, classes, threads and other holders of most memory in use, largest first.

        They are the holders on the first page: at most five, each with at least 5 % of RSS."""
        return Table(map(converting.holder_of, self._first_page().holders), Holder)

    def owners(self, top: int | None = None) -> Table[Holder]:
        """Return all holders of memory in use, or the first ``top``, largest first.

        Reads all references, once for a heap. Raises Unsupported for a snapshot, or if no allocator is known.
        """
        with self._reading.asked("the holders of all blocks; 'holders' has only the largest ones") as heap:
            found = owners.owners(heap, None, count_of(top))
        return Table(map(converting.owner_row_of, found.groups), Holder)

    def findings(self) -> Table[Finding]:
        """Return the findings of the first page, largest first. A finding names memory that could be freed, or that a
        change would save.
        """
        return Table(converting.findings_of(self._first_page().findings), Finding)

    def types(self, top: int | None = None) -> Table[TypeRow]:
        """Return the types of the objects in memory, or the first ``top``, largest first.

        A program without Python has kinds of blocks instead: classes, containers, blocks of libraries. Raises
        Unsupported if neither is known.
        """
        most, look = count_of(top), self._reading.stored()
        if look is not None:
            if look.snapshot.objects is None:
                raise self._reading.lacks("the types of a program without Python")
            rows: list[Any] = look.snapshot.objects.rows
        else:
            with self._reading.asked() as heap:
                try:
                    rows = pyobjects.pyobjects(heap, most=0).rows
                except NotAPython:
                    rows = block_kinds.block_kinds(heap).rows
        return Table(map(converting.type_of, rows[:most]), TypeRow, len(rows))

    def retained(self, by: str = "object", top: int | None = MOST_RETAINED) -> Table[Retained]:
        """Return the objects or groups whose removal would free the most memory, largest first, or the first ``top``.

        ``by``: "object", "type" or "module"; for a program without Python "object" (a block), "type", "global" or
        "thread". Reads all references, once for a heap. Raises UsageError for any other word.
        """
        most, look = count_of(top), self._reading.stored()
        if look is not None:
            if word_of(by) != retained.OBJECT or look.snapshot.owners is None:
                raise self._reading.lacks(f"retained bytes by {by}")
            rows = look.snapshot.owners[:most]
        else:
            with self._reading.asked() as heap:
                rows = retained.retained(heap, word_of(by), most).rows
        return Table(map(converting.retained_of, rows), Retained)

    # Questions about blocks.

    def blocks(
        self,
        min: Size = MIB,
        max: Size | None = None,
        state: str | Iterable[str] | None = None,
        type: str | None = None,
        top: int | None = None,
    ) -> Table[Block]:
        """Return the blocks of at least ``min`` bytes and at most ``max``, largest first, or the first ``top``.

        ``min`` is 1 MiB by default; 0 means all blocks, which may be millions. ``state``: "used", "mmapped", "free",
        "tcache" or another state of glibc's blocks, or several states; ``type``: a pattern with *, ? and [...] for what
        is in the blocks. Raises UsageError for an unknown state, and Unsupported for a snapshot or if no allocator is
        known."""
        selection = chunks.Selection(
            _states(state), size_of(min), None if max is None else size_of(max), None,
            None if type is None else word_of(type),
        )  # fmt: skip
        most = count_of(top)
        with self._reading.asked("blocks") as heap:
            found = chunks.chunks(heap, selection, "size", most)
        return Table(converting.blocks_of(self._reading, found.rows), Block, found.count)

    def holes(self, min: Size = MIB, top: int | None = None) -> Table[Hole]:
        """Return the holes of at least ``min`` bytes, largest first, or the first ``top``.

        A hole is free memory that is not returned to the kernel. A snapshot has the 1,000 largest holes of at least 64
        KiB. Raises Unsupported if no allocator is known."""
        least, most, look = size_of(min), count_of(top), self._reading.stored()
        if look is not None:
            if look.snapshot.holes is None:
                raise self._reading.lacks("holes")
            rows = [hole for hole in look.snapshot.holes.rows if hole.size >= least]
            return Table(map(converting.hole_of, rows[:most]), Hole, len(rows))
        with self._reading.asked() as heap:
            found = holes.holes(heap, least, most)
        return Table(map(converting.hole_of, found.rows), Hole, found.count)

    def block_at(self, address: int) -> Block:
        """Return the block that contains an address. Raises UsageError if no block does."""
        place = address_of(address)
        with self._reading.asked("blocks") as heap:
            found = at.find_block(heap, place)
        if found is None:
            raise UsageError(f"{place:#x} is not in a block of a known allocator")
        return converting.block_of(self._reading, found)

    def object_at(self, address: int) -> Object:
        """Return the Python object whose block contains an address.

        If the block contains no Python object, return the block with a description. Raises UsageError if the address is
        not in a block in use."""
        return self._reading.object_at(address_of(address))

    # Writing files.

    def save(self, path: str | os.PathLike[str], blocks: bool = False, owners: bool | None = None) -> None:
        """Write a snapshot, as ``gdbheap snapshot`` does, for ``gdbheap.open`` and ``gdbheap.diff``.

        The file has no contents of strings, bytes and keys. ``blocks``: whether to include each block; ``owners``:
        whether to include the answers that need all references; None: only if finding the references is quick. Raises
        UsageError if the file cannot be written."""
        look = self._reading.stored()
        if look is not None:
            writing.written(os.fspath(path), look)
            return
        with self._reading.asked() as heap:
            writing.write_snapshot(heap, os.fspath(path), owners, blocks)

    def write_report(self, path: str | os.PathLike[str], owners: bool | None = None) -> None:
        """Write one self-contained HTML page with all answers, as ``gdbheap report`` does, without contents.

        ``owners``: the same as for ``save``. Raises UsageError if the file cannot be written.
        """
        look = self._reading.stored()
        if look is not None:
            writing.write_page(os.fspath(path), writing.look_report(look))
            return
        with self._reading.asked() as heap:
            writing.write_page(os.fspath(path), writing.target_report(heap, owners))

    # Private methods.

    def _known(self) -> Ledger:
        """Return the first page (``gdbheap PID``). It lists holders only if they were found before."""
        look = self._reading.stored()
        if look is not None:
            return look.snapshot.ledger
        with self._reading.turn:
            if self._page is None and self._books is None:
                with self._reading.asked() as heap:
                    self._books = ledger(heap)
            found = self._page or self._books
        assert found is not None
        return found

    def _first_page(self) -> Ledger:
        """Return the first page. It is computed only once."""
        look = self._reading.stored()
        if look is not None:
            kept, later = look.snapshot.ledger, next_of_snapshot(look.snapshot.target, self._path)
            lines = arranged(without_details(kept.ledger), _largest_first)
            return replace(kept, ledger=lines, findings=ordered(kept.findings), next=later)
        with self._reading.turn:
            if self._page is None:
                with self._reading.asked() as heap:
                    found, _held = ledger_and_holders(heap, budget=BUDGET)
                    abort = or_none(lambda: abort_of(heap))
                    told = ordered(placed(found.findings))
                    self._page = replace(
                        found, ledger=arranged(found.ledger, _largest_first), findings=told, abort=abort
                    )
        return self._page

    def _style(self) -> Style:
        is_core = self.target.get("kind") == "core"
        width = shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None
        return Style(width=width, rss=self._known().rss.bytes, private=is_core, command=IN_SHELL)


def _states(state: str | Iterable[str] | None) -> tuple[str, ...]:
    """Return the states that ``state`` names. Raises UsageError for an unknown state."""
    if state is None:
        return chunks.STATES
    try:
        states = (state,) if isinstance(state, str) else tuple(state)
    except TypeError:
        states = (state,)  # type: ignore[assignment]
    for one in states:
        if one not in chunks.STATES:
            raise UsageError(f"{one!r} is not a state of a block: use {', '.join(chunks.STATES)}")
    return states


def _largest_first(line: Line) -> tuple[bool, int]:
    """Return the sort key of lines of the memory table that have the same parent: resident bytes, largest first;
    unknown comes last.
    """
    return line.resident is None, -(line.resident or 0)


def reading_of(heap: Heap) -> SharedTarget:
    """Return the private ``SharedTarget`` of a heap, for other modules of the library."""
    return heap._reading
