"""The record of a finding, and the evidence that all rules use."""

from __future__ import annotations

import os
import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, fields
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar, Union

from gdbheap import _native
from gdbheap.allocators.allocator import LedgerLine, State
from gdbheap.allocators.glibc.allocator import GlibcAllocator
from gdbheap.allocators.glibc.trim import Trim
from gdbheap.allocators.line_ids import BREAK_OF_OTHERS, LineId
from gdbheap.allocators.pymalloc.allocator import PymallocAllocator
from gdbheap.answers.accounting.absent import absent_blocks
from gdbheap.answers.accounting.partition import Sums, ledger_lines, other_pieces, total
from gdbheap.answers.forked import forked_from
from gdbheap.answers.unreachable import MAX_ADDRESSES, absent_by_row
from gdbheap.answers.why_not_freed import collector_facts
from gdbheap.contents.python.objects.census import Estimate, Objects
from gdbheap.contents.python.objects.references import NOT_REACHED, References
from gdbheap.dataclass import dataclass
from gdbheap.errors import GdbheapError, or_none
from gdbheap.findings.thresholds import DEFAULT_THRESHOLD
from gdbheap.heap import Heap
from gdbheap.host.file_systems import FileSystems
from gdbheap.host.procfs import PROC
from gdbheap.host.program_name import command_words
from gdbheap.host.rights import has_our_rights
from gdbheap.targets.ranges import Ranges, holds, subtract
from gdbheap.targets.start_environment import executed_file
from gdbheap.text import Sentence

# The most blocks for which the graph of references is built; the second number applies if a finding is likely. Building
# it takes a quarter of a second, or half a second.
MAX_GRAPH_BLOCKS, MAX_LIKELY_GRAPH_BLOCKS = 250_000, 2_000_000
MIN_FINDING_BYTES, MIN_PERCENT_OF_RSS = 4 << 20, 5
# A sample of Python's objects may give figures that are too low by this factor.
SAMPLE_CAUTION = 2
# A line with a longer command is not shown, because nobody would copy it.
MAX_LINE = 1000
WITHOUT_CALL = "# without --yes: shows what it would return, and changes nothing"
# Stands for a command line that gdbheap should not run with its own rights.
ANY_COMMAND = "COMMAND"
UNLISTED = {"unlisted": True}
"""The metadata of an integer field that only the text needs; it is not among the JSON figures."""


class Figures:
    """The numbers and names that one rule found. The finding's text is made from them.

    Each rule has its own frozen dataclass. Its integer fields are the key ``figures`` in JSON, except those marked
    UNLISTED. ``ids``: the ids of the findings that have these figures; an id may end in ``*``."""

    ids: ClassVar[tuple[str, ...]]

    @property
    def conditional(self) -> bool:
        """Whether the finding is based on a guess. Such findings come last in the list."""
        return False

    @property
    def beyond(self) -> int:
        """The bytes outside RSS that following the advice would also free."""
        return 0

    @property
    def listed(self) -> dict[str, int]:
        """The values of ``figures`` in JSON: the integer fields that are known."""
        names = (each.name for each in fields(self) if not each.metadata)  # type: ignore[arg-type]  # a dataclass
        return {name: value for name in names if type(value := getattr(self, name)) is int}


@dataclass(frozen=True)
class Finding:
    """Memory that advice could free, with the figures behind the advice.

    ``bytes``: the bytes that following the advice would free. The text and the advice are made in ``findings/`` (see
    ``FindingKeys``). ``figures`` is a dict if the finding was read from JSON without all figures for its text.
    ``within``, ``also_within``: ids of findings whose bytes may include some of these bytes. ``shared``: (id, bytes) of
    more specific findings, for bytes that count there and not in this finding. ``alternatives``: unlisted findings
    whose bytes count in this finding; their remedies are named next to the remedy of this finding.
    """

    id: str
    bytes: int
    figures: Figures | dict[str, int]
    commands: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    within: str | None = None
    doubtful: bool = False
    also_within: list[str] = field(default_factory=list)
    shared: list[tuple[str, int]] = field(default_factory=list)
    alternatives: list[Finding] = field(default_factory=list)

    @staticmethod
    def hints_for(content: Mapping[str, Any]) -> dict[str, Any]:
        """Return the type of the field ``figures`` for the finding in ``content``; ``records.from_json`` calls this
        method.
        """
        name = str(content.get("id"))
        kinds = [kind for kind in Figures.__subclasses__() if any(fnmatchcase(name, each) for each in kind.ids)]
        return {"figures": Union[(*kinds, dict[str, int])]}

    @property
    def listed(self) -> dict[str, int]:
        """The values of ``figures`` in JSON."""
        return self.figures.listed if isinstance(self.figures, Figures) else self.figures

    @property
    def rank(self) -> tuple[bool, int, bool]:
        """A sort key that puts the largest findings first; bytes outside RSS count too.

        Of two findings with equal sizes, a certain one precedes a doubtful one. Conditional findings come last.
        """
        if not isinstance(self.figures, Figures):
            return False, -self.bytes, self.doubtful
        return self.figures.conditional, -self.bytes - self.figures.beyond, self.doubtful


@dataclass(frozen=True)
class FindingClaim:
    """A finding with a function that returns the finding's memory. The function is called only if another finding may
    overlap.

    ``has_remedy``: whether its advice is given even if its bytes count in a more specific finding.
    """

    finding: Finding
    memory: Callable[[], Ranges]
    has_remedy: bool = False


class Evidence:
    """The data that the rules read: the target, and the sums of pages by their owner (see ``partition``).

    ``detail``: whether rules may take longer. ``follows``: whether all references will be followed after the rules.
    """

    def __init__(self, heap: Heap, sums: Sums, detail: bool = False, follows: bool = False) -> None:
        self.heap = heap
        self.sums = sums
        self.detail = detail
        self.follows = follows
        self._leaves_out = False

    def leave_out(self) -> None:
        """Record that the current rule does not examine something that may be a finding, because of the cost."""
        self._leaves_out = True

    def examined(self) -> bool:
        """Return whether no rule has called ``leave_out`` since the last call of this method."""
        left_out, self._leaves_out = self._leaves_out, False
        return not left_out

    def resident(self, owner: LineId) -> int:
        """Return the resident bytes of an owner and of all lines below it."""
        return total(self.sums, owner).resident

    @property
    def rss(self) -> int:
        """RSS without memory freed by MADV_FREE, which the kernel reclaims when it runs low; 0 if RSS is unknown."""
        rss = self.heap.target.rss
        return max(0, (rss.bytes or 0) - (rss.lazy or 0))

    @property
    def in_use(self) -> int:
        """The bytes of all blocks in use, of every allocator that is walked."""
        return sum(total(self.sums, owner).virtual for owner in self.of(State.USED))

    @cached_property
    def parent(self) -> int | None:
        """The id of the process from which the target was forked; None if that process has ended or is unknown."""
        return forked_from(self.heap.target)

    @cached_property
    def python_parent(self) -> int | None:
        """The id of the parent, if the target is a forked Python; else None.

        In such a process, using an object copies its page.
        """
        is_python = self.parent is not None and or_none(lambda: self.heap.is_python)
        return self.parent if is_python else None

    @cached_property
    def other_ranges(self) -> dict[LineId, Ranges]:
        """The ranges of memory outside the allocators' blocks, ascending, by the id of the ledger's line that counts
        them.
        """
        found: defaultdict[LineId, Ranges] = defaultdict(list)
        for start, end, owner in other_pieces(self.heap):
            found[owner].append((start, end))
        if others := self.heap.of_others():
            found[BREAK_OF_OTHERS] = sorted([*found[BREAK_OF_OTHERS], *others])
        return found

    def worth(self, size: int) -> bool:
        """Return whether ``size`` bytes deserve a finding: at least 4 MiB and, if RSS is known, 5 % of it."""
        return size >= MIN_FINDING_BYTES and 100 * size >= MIN_PERCENT_OF_RSS * self.rss

    def lazily_freed(self, start: int, end: int) -> int:
        """Return an upper limit for the resident bytes in [start, end) that MADV_FREE has freed."""
        parts = (size for first, last, size in self.heap.target.lazily_freed if first < end and start < last)
        return min(self.resident_of([(start, end)]), sum(parts))

    def server(self, *ids: str) -> str:
        """Return the id of the first detected runtime that is among ``ids``; "" if there is none."""
        return next((runtime.kind.id for runtime in self.heap.runtimes if runtime.kind.id in ids), "")

    def measuring(self) -> list[str]:
        """Return commands that measure other settings and allocators, for a process that can be started again.

        The lines contain the program's own command line only if the process has all rights of gdbheap. Otherwise a
        pasted line could run another user's command with gdbheap's rights.
        """
        target = self.heap.target
        if target.remote or target.kind != "process" or not self.heap.disclosure.contents:
            return []
        words = command_words(target.arguments, target.exe, executed_file(target))
        named = f"{shlex.join(words)}{_where(target.proc, words)}" if has_our_rights(target.proc) else ANY_COMMAND
        line = f"gdbheap trace -o calls.log -- {named}"
        return [Sentence(line), "gdbheap replay calls.log --what-if"] if words and len(line) <= MAX_LINE else []

    @cached_property
    def unused_arenas(self) -> set[int]:
        """The numbers of glibc's arenas that no thread uses any more; empty if glibc does not count threads."""
        arenas = self.glibc.malloc.arenas if self.glibc else []
        counts = [index for index, arena in enumerate(arenas) if index and arena.layout["attached_threads"] is not None]
        return {index for index in counts if not arenas[index].attached_threads}

    def line(self, noun: str, *options: str, calls: bool = False) -> list[str]:
        """Return a list with a gdbheap command about this target, as a line to paste.

        The list is empty if the process runs on another machine. It is also empty for a command that ``calls`` into the
        process if the target is not a live process.
        """
        target = self.heap.target
        lines = [] if calls and target.kind != "process" else target.command_lines(noun, *options)
        return [Sentence(line) for line in lines]

    def trimming(self) -> list[str]:
        """Return a list with the command that calls malloc_trim(0) in the process; empty without a live process."""
        return [Sentence(f"{line}  {WITHOUT_CALL}") for line in self.line("trim", "--yes", calls=True)]

    @cached_property
    def lines(self) -> list[LedgerLine]:
        """The ledger lines of the allocators."""
        return ledger_lines(self.heap.allocators)

    def of(self, *states: State) -> list[LineId]:
        """Return the ids of those ledger lines whose bytes are in one of ``states``, such as free."""
        return [line.id for line in self.lines if line.state in states]

    @cached_property
    def glibc(self) -> GlibcAllocator | None:
        """glibc's malloc, after its chunks were walked; None if there is none or it cannot be walked."""
        try:
            found = self.heap.allocator(GlibcAllocator)
            found.require_walk()
        except GdbheapError:
            return None
        return found

    @property
    def trim(self) -> Trim | None:
        """The memory that malloc_trim(0) would return; None without glibc, or if residency is unknown."""
        return None if self.glibc is None else self.glibc.trim

    @cached_property
    def objects(self) -> Objects | None:
        """Python's objects; None if there are none.

        Also None if all blocks in total are too small for a finding, or if reading a sample takes long.
        """
        heap = self.heap
        if heap.target.refusal is not None or heap.target.remote and not self.detail:
            return None
        if not self.worth(self.in_use):
            return None
        return heap.python.objects_or_none

    @cached_property
    def estimates(self) -> list[Estimate]:
        """Estimates of Python's objects by type, made from a sample; empty if the target has no Python objects."""
        return self.objects.estimate() if self.objects is not None else []

    @cached_property
    def is_graph_quick(self) -> bool:
        """Whether the graph of references can be built in little time, or will be built after the rules anyway."""
        heap = self.heap
        if heap.target.refusal is not None or heap.target.remote and not self.detail:
            return False
        return self.detail or self.follows or heap.used_blocks <= MAX_GRAPH_BLOCKS

    @cached_property
    def _graph(self) -> _native.Graph | None:
        """The graph of references; None if there is none.

        Also None if building it would take longer than everything else, unless it will be built after the rules anyway.
        """
        heap = self.heap
        if heap.target.refusal is not None or heap.target.remote and not self.detail or not self.worth(self.in_use):
            return None
        is_likely = self.is_graph_quick or (self.is_collector_off and heap.used_blocks <= MAX_LIKELY_GRAPH_BLOCKS)
        return or_none(lambda: heap.references.graph) if is_likely else None

    def graph_of(self, most: int) -> References | None:
        """Return the graph of Python's objects; None if there is none, or if there are more than ``most`` blocks."""
        if self.objects is None:
            return None
        if self.heap.used_blocks > most:
            self.leave_out()
            return None
        return or_none(lambda: self.heap.python.references)

    @property
    def unreachable(self) -> _native.Unreachable | None:
        """The unreachable blocks, with one address of each kind; None unless the graph of references is complete."""
        if self._unreachable is None and self.worth(self.in_use):
            self.leave_out()
        return self._unreachable

    @cached_property
    def _unreachable(self) -> _native.Unreachable | None:
        graph = self._graph
        return None if graph is None or graph.is_cut else graph.unreachable(1, collector_facts(self.heap))

    def is_beside_malloc(self, addresses: Iterable[int]) -> bool:
        """Return whether pymalloc handed out any of the blocks at these addresses.

        A tool that records calls of malloc does not see how these blocks were allocated."""
        found = self.heap.find_allocator(PymallocAllocator)
        ranges = [] if found is None else found.ranges()
        return any(holds(ranges, address) for address in addresses)

    @cached_property
    def absent_unreached(self) -> int:
        """The bytes of unreachable blocks that are not resident; these do not count in a finding."""
        graph, heap = self._graph, self.heap
        if graph is None:
            return 0
        found = [(block, graph.find(block.address)) for block in absent_blocks(heap)]
        known = [(block, number) for block, number in found if number is not None]
        phases = graph.phases([number for _block, number in known])
        return sum(block.bytes for (block, _number), phase in zip(known, phases) if phase == NOT_REACHED)

    def resident_of_lost(self, row: _native.LostGroup) -> int:
        """Return the bytes of the unreachable blocks in a row, and of their buffers, that are resident."""
        return max(0, row.bytes + row.buffers - self._absent_of_lost[_key(row)])

    @cached_property
    def _absent_of_lost(self) -> Counter[tuple[int, bool, int, int]]:
        found, graph = Counter[tuple[int, bool, int, int]](), self._graph
        if graph is None or not self.absent_unreached:
            return found
        rows = graph.unreachable(MAX_ADDRESSES, collector_facts(self.heap)).rows
        for place, size in absent_by_row(self.heap, rows, absent_blocks(self.heap)).items():
            found[_key(rows[place])] += size
        return found

    def largest_blocks(self, least: int, most: int) -> list[tuple[int, int]]:
        """Return (address, size in bytes) of the ``most`` largest used blocks of all allocators. Blocks smaller than
        ``least`` bytes are left out.
        """
        found = chain.from_iterable(allocator.largest_used(least, most) for allocator in self.heap.allocators)
        return sorted(found, key=lambda row: -row[1])[:most]

    @cached_property
    def large_holes(self) -> list[tuple[int, int]]:
        """The ranges [start, end) of the holes of 128 KiB or more, if ``mmap_threshold`` is above glibc's default.

        Otherwise the list is empty. It is also empty without glibc, without known residency, or with huge pages for
        malloc.
        """
        pages, glibc = self.heap.target.pages, self.glibc
        par = glibc.malloc.par if glibc is not None else None
        if glibc is None or par is None or pages is None or par.hp_pagesize or par.mmap_threshold <= DEFAULT_THRESHOLD:
            return []
        return [(hole.start, hole.end) for hole in glibc.holes(DEFAULT_THRESHOLD)]

    def released(self, ranges: Iterable[tuple[int, int]]) -> int:
        """Return the bytes of whole resident pages in these ranges; 0 if residency is unknown."""
        pages = self.heap.target.pages
        return 0 if pages is None else sum(pages.released(start, end).resident for start, end in ranges)

    def resident_of(self, ranges: Iterable[tuple[int, int]]) -> int:
        """Return the resident bytes in these ranges; 0 if residency is unknown."""
        pages = self.heap.target.pages
        return 0 if pages is None else sum(pages.count(start, end).resident for start, end in ranges)

    def known_bytes_of(self, ranges: Iterable[tuple[int, int]]) -> int:
        """Return the resident bytes in these ranges; all their bytes if residency is unknown."""
        if self.heap.target.pages is None:
            return sum(end - start for start, end in ranges)
        return self.resident_of(ranges)

    def tops(self, main: bool) -> Ranges:
        """Return the range of the main arena's top chunk if ``main``, else the ranges of the top chunks of all other
        arenas.
        """
        glibc = self.glibc.malloc if self.glibc else None
        rows = [row for row in glibc.stretches if row.top and (row.arena == 0) == main] if glibc else []
        return sorted((glibc.arenas[row.arena].top, row.end) for row in rows) if glibc else []

    def between_tops(self) -> Ranges:
        """Return the ranges of glibc's arenas without their top chunks."""
        whole = sorted((row.start, row.end) for row in self.glibc.malloc.stretches) if self.glibc else []
        return subtract(whole, sorted(self.tops(True) + self.tops(False)))

    @property
    def is_collector_off(self) -> bool:
        """Whether the cyclic garbage collector is known to be switched off."""
        collector = self.heap.python.collector if self.objects is not None else None
        return collector is not None and collector.is_off

    @cached_property
    def kept(self) -> Ranges:
        """The ranges that madvise() cannot remove from RSS: locked memory, and hugetlbfs."""
        return self.heap.target.kept


def _key(row: _native.LostGroup) -> tuple[int, bool, int, int]:
    """Return a key that no other row of unreachable blocks has."""
    return row.cause, row.is_head, row.type_address, row.size


def _where(proc: str | None, words: Sequence[str]) -> str:
    """Return a comment that names the process's working folder; "" if the folder does not matter.

    The folder matters if one of ``words`` is a file in it, the process runs on this machine, and gdbheap's current
    folder is another one.
    """
    with suppress(OSError):
        folder = os.readlink(f"{PROC}/{proc}/cwd")
        systems = FileSystems()
        relative = [word for word in words[1:] if word and not word.startswith(("/", "-"))]
        if folder != os.getcwd() and any(systems.find(f"{folder}/{word}") for word in relative):
            return f"  # in {shlex.quote(folder)}"
    return ""


Rule = Callable[[Evidence], "Sequence[Finding | FindingClaim]"]
