"""Gather the tables of a process, a core or a snapshot, which can be closed afterwards."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any

from gdbheap import __version__, _native
from gdbheap.answers.arenas import Arena, arenas
from gdbheap.answers.holes import bare_holes
from gdbheap.answers.mappings import mappings
from gdbheap.answers.pyobjects import TypeRow, pyobjects
from gdbheap.contents.cxx.kinds import Structures, kind_texts
from gdbheap.contents.python.names.holder_names import HolderNames
from gdbheap.dataclass import dataclass
from gdbheap.errors import Unsupported, UsageError, or_none
from gdbheap.export.batches import AT_ONCE, Batch, Batches, Cells, Constant, NumberColumn, Rows, TextColumn, small
from gdbheap.export.declaration import SNAPSHOTS, TABLES, table_of
from gdbheap.export.heapsnapshot import NamedGraph
from gdbheap.findings.finding import Finding
from gdbheap.first_page.ledger import Ledger, ledger
from gdbheap.graph.naming import MOST_NAMED, name_edges
from gdbheap.graph.nodes import Nodes
from gdbheap.heap import Heap
from gdbheap.host.headroom import group_limit
from gdbheap.snapshots.blocks import list_blocks
from gdbheap.snapshots.snapshot import MAX_GRAPH_BLOCKS, SnapshotWithBlocks, time_of

__all__ = ["ALL", "Gathered", "Words", "gather", "gather_look"]

ALL = frozenset(table.name for table in TABLES)
OF_MEMORY = ("arenas", "holes", "types", "blocks", "objects", "edges")
STRENGTHS = ("exact", "likely", "doubtful", "stray")
SMALLEST_HOLE = 1
CODE_BYTES, ADDRESS_BYTES = 4, 8
Words = Callable[[Finding], "tuple[str | None, str | None]"]
"""A function that returns the text and the advice of a finding; None in place of a text that cannot be made.

It is passed in by the caller, because texts for people belong to a layer that this one does not import."""


@dataclass
class Gathered:
    """The gathered tables, by name. ``graph``: the graph of all references, None unless it was requested."""

    tables: dict[str, Batches] = field(default_factory=dict)
    graph: NamedGraph | None = None

    def let_go(self) -> Iterator[tuple[str, Batches]]:
        """Yield each table with its name, and drop it from ``tables``, because the tables of blocks are large."""
        while self.tables:
            name = next(iter(self.tables))
            yield name, self.tables.pop(name)

    @property
    def identity(self) -> dict[str, Any]:
        """The only row of the table ``snapshots``: its cells by column."""
        table = table_of(SNAPSHOTS)
        batch = next(self.tables[SNAPSHOTS]())
        return {name: cells[0] for name, cells in zip(table.names, batch.columns) if isinstance(cells, list)}


def gather(heap: Heap, words: Words, wanted: Collection[str] = ALL, graph: bool | None = None) -> Gathered:
    """Return the wanted tables of a heap.

    ``graph``: whether to find edges and retained sizes; None: only if finding them is quick. A table for which there is
    no data is empty."""
    found, maker = Gathered(), _Maker(heap, words, graph)
    if "edges" in wanted and graph is not True and not maker.is_quick:
        heap.note("edges-left-out", blocks=MAX_GRAPH_BLOCKS)
    # The table of snapshots is made last, because it reports damage that is found while the others are made.
    for table in sorted(TABLES, key=lambda table: table.name == SNAPSHOTS):
        if table.name in wanted:
            found.tables[table.name] = maker.make(table.name)
    if graph and not wanted:
        found.graph = maker.named_graph()
    return found


def gather_look(look: SnapshotWithBlocks, words: Words, wanted: Collection[str] = ALL) -> Gathered:
    """Return the wanted tables that a snapshot contains. Raises UsageError if it contains none of the wanted tables."""
    kept = look.snapshot
    made: dict[str, Callable[[], Rows | None]] = {
        SNAPSHOTS: lambda: [_row_of_look(look)],
        "ledger": lambda: _ledger_rows(kept.ledger),
        "findings": lambda: _finding_rows(kept.ledger, words),
        "mappings": lambda: None if kept.mappings is None else _named("mappings", kept.mappings),
        "arenas": lambda: None if kept.arenas is None else _arena_rows(kept.arenas.arenas),
        "threads": lambda: [(one.tid, one.name or None, None, None, None) for one in kept.threads],
        "holes": lambda: None if kept.holes is None else list(map(_hole_row, kept.holes.rows)),
        "types": lambda: None if kept.objects is None else _type_rows(kept.objects.rows),
    }
    if not wanted:
        raise UsageError("a snapshot contains no graph of references: export the process, or the core")
    found = Gathered()
    for name, rows in made.items():
        known = rows() if name in wanted else None
        if known is not None:
            found.tables[name] = small(table_of(name), known)
    blocks = kept.blocks
    if blocks is not None and look.columns is not None:
        known_blocks = _Blocks(look.columns, blocks.allocators, blocks.types)
        if "blocks" in wanted:
            found.tables["blocks"] = known_blocks.blocks
        if "objects" in wanted and look.columns.offsets:
            found.tables["objects"] = known_blocks.objects
    if not found.tables:
        raise UsageError(f"the snapshot does not contain {', '.join(sorted(wanted))}: export the process, or the core")
    return found


def _row_of_look(look: SnapshotWithBlocks) -> Sequence[Any]:
    found = look.snapshot
    target = {"python": None, "glibc": None, **found.target}
    return _identity(found.time, target, found.version, found.ledger, found.limit, found.damaged, found.partial)


def _identity(
    when: float, target: dict[str, Any], version: str, found: Ledger, limit: int | None, damage: int, partial: bool
) -> Sequence[Any]:
    names = ("host", "boot_id", "container", "kind", "pid", "start_time", "exe", "core", "python", "glibc")
    known = [target.get(name) for name in names]
    return [when, *known, version, found.rss.bytes, found.rss.swapped, limit, found.trim, damage, partial]


def _ledger_rows(found: Ledger) -> Rows:
    return [
        (line.id, line.parent, line.name, line.virtual, line.resident, line.swapped, line.state)
        for line in found.ledger
    ]


def _finding_rows(found: Ledger, words: Words) -> Rows:
    return [(one.id, one.bytes, *words(one)) for one in found.findings]


def _named(table: str, records: Sequence[object]) -> Rows:
    """Return a row for each record. Its cells are the record's fields with the names of the table's columns."""
    names = table_of(table).names
    return [[getattr(record, name) for name in names] for record in records]


def _arena_rows(rows: Sequence[Arena]) -> Rows:
    named = {"used_chunks": "used_count", "free_chunks": "free_count"}
    return [[getattr(row, named.get(name, name)) for name in table_of("arenas").names] for row in rows]


def _type_rows(rows: Sequence[TypeRow]) -> Rows:
    return [(row.type, row.count, row.own, row.buffers, row.reached) for row in rows]


def _hole_row(hole: Any) -> Sequence[Any]:
    before, after = (None if one is None else one.address for one in (hole.before, hole.after))
    return hole.address, hole.size, hole.resident, hole.allocator, hole.arena, before, after


class _Blocks:
    """Lists the blocks of a heap for the tables ``blocks`` and ``objects``.

    ``types``: the types of objects, numbered from 1; ``structures``: the kinds of blocks of C code, None if unknown.
    """

    def __init__(
        self,
        columns: _native.BlockColumns,
        allocators: Sequence[str],
        types: Sequence[str],
        structures: Structures | None = None,
    ) -> None:
        self.columns, self.allocators, self._first, self._structures = columns, allocators, len(types), structures
        self.names = [None, *types, *(() if structures is None else kind_texts(structures))]
        self.retained: _native.RetainedBytes | None = None

    def _read(self, objects: bool) -> Iterator[_native.BlockBatch]:
        batches = self.columns.batches(AT_ONCE, objects, self.retained)
        while (batch := batches.read()) is not None:
            if batch.count:
                yield batch

    def _retained(self, batch: _native.BlockBatch) -> NumberColumn | Constant:
        return Constant(None) if self.retained is None else NumberColumn(batch.retained)

    def _kinds(self, batch: _native.BlockBatch) -> bytes:
        """Return a number for each block: the number of its object's type or, for a block without an object, of its
        kind.
        """
        if self._structures is None:
            return batch.kinds
        others = self._structures.native.kinds_at(array("Q", batch.addresses))
        pairs = zip(array("I", batch.kinds), others)
        return array("I", (kind or (other and self._first + other) for kind, other in pairs)).tobytes()

    def blocks(self) -> Iterator[Batch]:
        for batch in self._read(objects=False):
            yield Batch(
                batch.count,
                [
                    NumberColumn(batch.addresses),
                    NumberColumn(batch.sizes),
                    Constant(self.allocators[batch.store]),
                    TextColumn(self._kinds(batch), self.names),
                    self._retained(batch),
                ],
            )

    def objects(self) -> Iterator[Batch]:
        """Yield the rows of the table ``objects``: the living objects in the blocks."""
        for batch in self._read(objects=True):
            cells: list[Cells] = [
                NumberColumn(batch.objects),
                NumberColumn(batch.addresses),
                NumberColumn(batch.sizes),
                TextColumn(batch.kinds, self.names),
            ]
            yield Batch(batch.count, [*cells, self._retained(batch)])


class _Maker:
    """Makes the tables of one heap. ``make`` reads everything that a table needs."""

    def __init__(self, heap: Heap, words: Words, graph: bool | None) -> None:
        self.heap, self.words, self.graph = heap, words, graph

    def make(self, name: str) -> Batches:
        """Return the rows of the table ``name``. They show no contents of the process's memory."""
        refused = self.heap.target.refusal is not None and name in OF_MEMORY
        made: Callable[[], Batches | Rows | None] = getattr(self, f"_{name}")
        found = None if refused else or_none(made, Unsupported)
        return found if callable(found) else small(table_of(name), found or [])

    @cached_property
    def is_quick(self) -> bool:
        """Whether the heap is so small that building the graph of references takes only about a second."""
        return self.heap.used_blocks <= MAX_GRAPH_BLOCKS

    def _snapshots(self) -> Rows:
        heap, target = self.heap, self.heap.target
        limit = group_limit(target.proc) if target.proc else None
        described = {**target.describe(), **heap.versions}
        return [_identity(time_of(heap), described, __version__, self._lines, limit, len(heap.damage), heap.partial)]

    @cached_property
    def _lines(self) -> Ledger:
        return ledger(self.heap, detail=True, patient=False)

    def _ledger(self) -> Rows:
        return _ledger_rows(self._lines)

    def _findings(self) -> Rows:
        return _finding_rows(self._lines, self.words)

    def _mappings(self) -> Rows:
        return _named("mappings", mappings(self.heap.target))

    def _arenas(self) -> Rows:
        return _arena_rows(arenas(self.heap).arenas)

    def _threads(self) -> Rows:
        stacks = {stack.tid: stack for stack in self.heap.stacks}
        pages, rows = self.heap.target.pages, []
        for thread in self.heap.target.threads:
            stack = stacks.get(thread.tid)
            bounds: list[int | None] = [None, None, None]
            if stack is not None:
                resident = None if pages is None else pages.count(stack.start, stack.end).resident
                bounds = [stack.start, stack.end, resident]
            rows.append([thread.tid, thread.name or None, *bounds])
        return rows

    def _holes(self) -> Rows:
        return [_hole_row(hole) for hole in bare_holes(self.heap, SMALLEST_HOLE)]

    def _types(self) -> Rows:
        found = _type_rows(pyobjects(self.heap, most=0).rows) if self.heap.python.is_known else []
        sums: dict[str, list[int]] = {}
        for each in self._structures.sums if self._structures is not None else ():
            row = sums.setdefault(each.kind.text, [0, 0])
            row[:] = row[0] + each.count, row[1] + each.bytes
        return [*found, *((name, *row, 0, 0) for name, row in sorted(sums.items(), key=lambda item: -item[1][1]))]

    @cached_property
    def _structures(self) -> Structures | None:
        return self.heap.known_structures if self.heap.python.is_known else self.heap.known_kinds

    def _blocks(self) -> Batches:
        return self._listed.blocks

    def _objects(self) -> Batches | None:
        return self._listed.objects if self.heap.python.is_known else None

    @cached_property
    def _listed(self) -> _Blocks:
        nodes = self._nodes
        # Compute the retained sizes before the blocks are listed, because that takes the most memory for a while.
        retained = None if nodes is None else nodes.graph.retained_of_all()
        table, columns = list_blocks(self.heap)
        found = _Blocks(columns, table.allocators, table.types, self._structures)
        if nodes is not None and retained is not None:
            found.retained = columns.retained(nodes.graph, retained)
        return found

    @cached_property
    def _nodes(self) -> Nodes | None:
        wanted = self.is_quick if self.graph is None else self.graph
        return or_none(lambda: self.heap.references, Unsupported) if wanted else None

    def named_graph(self) -> NamedGraph | None:
        """Return the graph of references with names; None if there is no graph."""
        nodes = self._nodes
        if nodes is None:
            return None
        numbers = nodes.graph.type_addresses()
        if self.heap.python.is_known:
            names = self.heap.python.objects.names
            types = [names.name(address) for address in numbers]
        else:
            texts = {} if self._structures is None else dict(enumerate(kind_texts(self._structures), 1))
            types = [texts.get(number) or "(block)" for number in numbers]
        called, whole = name_edges(self.heap.target, nodes, self._holders)
        if not whole:
            self.heap.note("edges-numbered", most=MOST_NAMED)
        beside = self._structures if self.heap.python.is_known else None
        return NamedGraph(nodes.graph, types, [root.name for root in nodes.roots], called, beside)

    @property
    def _holders(self) -> HolderNames | None:
        python = self.heap.python
        return HolderNames(python.objects.repr, python.interpreter.threads) if self.heap.python.is_known else None

    def _edges(self) -> Batches | None:
        nodes = self._nodes
        if nodes is None:
            return None
        of_roots = _edges_of_roots(nodes)
        return lambda: _edge_batches(nodes.graph, nodes.first_root, of_roots)


def _edges_of_roots(nodes: Nodes) -> Batches:
    """Return the rows of the table ``edges`` for the references from roots. Roots lie outside the heaps."""

    def batches() -> Iterator[Batch]:
        for number in range(nodes.first_root, nodes.graph.nodes):
            name = nodes.roots[number - nodes.first_root].name
            found = nodes.graph.edge_columns(number, number + 1, AT_ONCE)
            targets = nodes.graph.addresses_of(found.targets)
            # A root may have millions of references.
            count = len(found.strengths) // CODE_BYTES
            for start in range(0, count, AT_ONCE):
                end = min(start + AT_ONCE, count)
                part = NumberColumn(targets[ADDRESS_BYTES * start : ADDRESS_BYTES * end])
                strengths = TextColumn(found.strengths[CODE_BYTES * start : CODE_BYTES * end], STRENGTHS)
                yield Batch(end - start, [Constant(None), Constant(name), part, strengths])

    return batches


def _edge_batches(graph: _native.Graph, end: int, of_roots: Batches) -> Iterator[Batch]:
    start = 0
    while start < end:
        found = graph.edge_columns(start, end, AT_ONCE)
        start, count = found.next, len(found.strengths) // CODE_BYTES
        if count:
            sources, targets = graph.addresses_of(found.sources), graph.addresses_of(found.targets)
            strengths = TextColumn(found.strengths, STRENGTHS)
            yield Batch(count, [NumberColumn(sources), Constant(None), NumberColumn(targets), strengths])
    yield from of_roots()
