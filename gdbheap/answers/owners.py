"""List which variables, modules and other holders have the memory in use."""

from __future__ import annotations

from dataclasses import field, replace
from typing import ClassVar

from gdbheap.answers.accounting.absent import absent_by, absent_memory, share_of_rss, shared_memory
from gdbheap.answers.accounting.paths import in_words
from gdbheap.answers.accounting.traced import name_tables, trace_tables
from gdbheap.answers.accounting.unfinished import finishing, not_examined
from gdbheap.answers.arrays import ArrayRow, arrays, frames_of
from gdbheap.answers.by_root import RootShare, by_root
from gdbheap.answers.shared_out import MAX_PARTS, NOBODY, ArrayShape, HolderPart, share_out
from gdbheap.dataclass import dataclass
from gdbheap.errors import UsageError
from gdbheap.graph.nodes import Node
from gdbheap.graph.paths import BLOCK as BLOCK_OF_C
from gdbheap.graph.paths import Paths, group_name
from gdbheap.graph.roots import GLOBAL, MEMORY, THREAD, BlockRoot
from gdbheap.heap import Heap


@dataclass(frozen=True)
class Held:
    """A block in use, the object that owns it, and how a root reaches it.

    ``what``: an object's type, ``buffer``, the kind of a block of C code, or ``block``. ``path``: the path as a Python
    expression, or None. ``chain``: the path as text.
    """

    address: int
    size: int
    what: str
    owner_address: int | None
    type: str | None
    path: str | None
    chain: str
    absent: int = 0


HOLDER, BLOCK, ARRAY, TYPE = "holder", "block", "array", "type"
GROUPS = (HOLDER, BLOCK, ARRAY, TYPE, GLOBAL, THREAD)
# The default minimum size if blocks are listed one by one.
MIN_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class HeldTogether:
    """The blocks of one holder: those that the holder reaches by a shorter chain than other holders do.

    In a program with Python, a row has the values of a ``shared_out.SharedOut``, which explains all fields but these:

    ``root``: the name of the holder, or None if blocks are grouped by type alone. ``what``: the kind of block that has
    the most bytes. ``resident``, ``share``: the bytes that are resident, and their part of RSS; None if residency is
    unknown. ``at_least``: the graph is incomplete, so the holder may have more blocks.

    In a program without Python, a row has the name, kind and blocks of a ``by_root.RootShare``. If the option ``--by``
    groups the blocks, a row has the name and kind of a root instead. ``kind`` is then the kind of the root; it is None
    if ``root`` is None. ``path``, ``address`` and ``type`` are None, because they describe variables of Python.
    """

    keys: ClassVar[dict[str, str]] = {"root": "path", "path": "expression", "count": "blocks"}
    root: str | None
    kind: str | None
    what: str | None
    count: int
    bytes: int
    path: str | None = None
    parts: list[HolderPart] = field(default_factory=list)
    array: ArrayShape | None = None
    absent: int = 0
    resident: int | None = None
    share: float | None = None
    shared: int = 0
    address: int | None = None
    way: str | None = None
    largest_block: int | None = None
    type: str | None = None
    variables: int = 0
    at_least: bool = False


@dataclass(frozen=True)
class HeldOutside:
    """A holder of memory that no allocator handed out. ``resident``: its resident bytes."""

    path: str
    resident: int


@dataclass(frozen=True)
class Owners:
    """The answer of ``heap owners``, largest first. Only one of ``owners``, ``groups`` and ``arrays`` can have rows.

    ``count`` and ``bytes`` count all blocks in use of at least ``--min`` bytes; with ``groups`` of a program without
    Python, only blocks that a root reaches. If ``arrays`` has rows, the bytes are those of the arrays' values, in the
    heap or outside it; no byte counts twice. ``outside``: the resident bytes that belong to no allocator.
    ``outside_most``: the holder with most of these bytes. ``outside_rows``: all holders of these bytes, largest first.
    """

    owners: list[Held]
    count: int
    bytes: int
    groups: list[HeldTogether] = field(default_factory=list)
    arrays: list[ArrayRow] = field(default_factory=list)
    absent: int = 0
    shared: int = 0
    not_examined: int = 0
    next: list[str] = field(default_factory=list)
    outside: int = 0
    outside_most: str = ""
    outside_rows: list[HeldOutside] = field(default_factory=list)
    least: int | None = None
    matching: int | None = None

    def as_document(self) -> OwnerRows:
        """Return the JSON document, with the one list that has rows."""
        rows: list[Held | HeldTogether | ArrayRow] = [*self.owners, *self.groups, *self.arrays]
        matching = self.count if self.matching is None else self.matching
        blocks = None if self.arrays else self.count
        return OwnerRows(
            rows, matching, blocks, self.bytes, self.absent, self.shared, self.not_examined, self.next, self.outside,
            self.outside_most, self.outside_rows, self.least,
        )  # fmt: skip


@dataclass(frozen=True)
class OwnerRows:
    """The JSON document of ``heap owners``. The rows are holders. With --by=block they are blocks, and with --by=array
    they are tables and arrays."""

    sums: ClassVar[tuple[str, ...]] = ("blocks", "bytes", "absent", "shared")
    rows: list[Held | HeldTogether | ArrayRow]
    matching: int
    blocks: int | None
    bytes: int
    absent: int
    shared: int
    not_examined: int
    next: list[str]
    outside: int
    outside_most: str
    outside_rows: list[HeldOutside]
    least: int | None


def owners(heap: Heap, minimum: int | None, top: int | None, by: str = HOLDER) -> Owners:
    """Return the blocks in use of at least ``minimum`` bytes by holder, or one by one if ``by`` is BLOCK.

    The default ``minimum`` is MIN_BLOCK_BYTES if blocks are listed one by one, otherwise 0. Raises UsageError or
    Unsupported.
    """
    if by == HOLDER and heap.is_python:
        if minimum is not None:
            raise UsageError("heap owners: --min is for --by=block and --by=array, and for programs without Python")
        return _shared_out(heap, top)
    if by == ARRAY:
        listed = arrays(heap, minimum or 0, top)
        return Owners([], listed.count, listed.bytes, [], listed.rows, listed.absent)
    if by == HOLDER:
        return _by_root(heap, minimum or 0, top)
    if by != BLOCK:
        return _grouped(heap, minimum or 0, top, by)
    minimum = MIN_BLOCK_BYTES if minimum is None else minimum
    references = heap.references
    found = references.graph.largest(minimum, top)
    paths = heap.paths
    name_tables(heap)
    nodes = references.nodes([row.id for row in found.rows])
    absent = absent_by(heap, lambda number: number)
    rows = [replace(held(paths, node), absent=absent[node.id]) for node in nodes]
    return Owners(rows, found.count, found.bytes, absent=_absent_of(heap, minimum), least=minimum)


def _absent_of(heap: Heap, minimum: int) -> int:
    """Return how many bytes are not resident, counted over the blocks of at least ``minimum`` bytes."""
    graph = heap.references.graph
    blocks = ((block, graph.find(block.address)) for block in absent_memory(heap))
    return sum(
        block.bytes for block, number in blocks if number is not None and heap.references.node(number).size >= minimum
    )


def held(paths: Paths, node: Node) -> Held:
    """Return the block of a node, with its owner and the path to it."""
    references = paths.references
    numbers = references.graph.chain(node.id)
    owner = references.owner_of(node.id)
    owner = None if owner is None or owner.root is not None else owner
    path = paths.path(numbers)
    name = paths.type_name(node)
    what = "buffer" if node.kind == "buffer" else BLOCK_OF_C if name.startswith(BLOCK_OF_C) else name
    address, kind = (None, None) if owner is None else (owner.address, paths.type_name(owner))
    return Held(node.block, node.size, what, address, kind, path.expression, in_words(path))


def _shared_out(heap: Heap, top: int | None) -> Owners:
    absent, shared, tables = absent_memory(heap), shared_memory(heap), trace_tables(heap)
    rows = share_out(heap.python.paths, frames_of(heap), absent, shared, tables, heap.content_holders())
    is_cut = heap.python.references.graph.is_cut
    groups = [
        HeldTogether(
            row.name, row.kind, row.parts[0].what if row.parts else None, row.count, row.bytes, row.path, row.parts,
            row.array, row.absent, shared=row.shared, address=row.address, way=row.way,
            largest_block=row.largest_block, type=row.type, variables=row.variables, at_least=is_cut,
        )
        for row in rows if not (is_cut and row.kind == NOBODY)
    ]  # fmt: skip
    if not is_cut:
        return _together(heap, groups, top)
    rest = sum(row.bytes for row in rows if row.kind == NOBODY)
    return replace(_together(heap, groups, top), not_examined=rest, next=finishing(heap, heap.references, "owners"))


def _together(heap: Heap, groups: list[HeldTogether], top: int | None) -> Owners:
    names = "count", "bytes", "absent", "shared"
    count, size, absent, shared = (sum(getattr(row, name) for row in groups) for name in names)
    rows = [_with_share(heap, row) for row in groups[:top]]
    return Owners([], count, size, rows, absent=absent, shared=shared, matching=len(groups))


def _with_share(heap: Heap, row: HeldTogether) -> HeldTogether:
    """Return the row with its resident bytes and their share of RSS, if residency is known."""
    if heap.target.pages is None or not heap.target.rss.bytes:
        return row
    resident = row.bytes - row.absent
    return replace(row, resident=resident, share=share_of_rss(heap, resident))


def _unproven(heap: Heap, *options: str) -> Owners:
    """Return an answer without rows, for a program without Python whose graph is incomplete.

    C code does not count references. So gdbheap can prove no holder while some references are unread.
    """
    nodes = heap.references
    return Owners([], 0, 0, not_examined=not_examined(nodes), next=finishing(heap, nodes, "owners", *options))


def _by_root(heap: Heap, minimum: int, top: int | None) -> Owners:
    if heap.references.graph.is_cut:
        return _unproven(heap)
    groups = [_of_root(row) for row in by_root(heap, minimum)]
    groups.sort(key=lambda row: (-row.bytes, row.root or ""))
    return _together(heap, groups, top)


def _of_root(row: RootShare) -> HeldTogether:
    parts = sorted((HolderPart(*group) for group in row.groups), key=lambda part: (-part.bytes, part.what))
    count = sum(part.count for part in parts)
    return HeldTogether(row.name, row.kind, parts[0].what, count, row.bytes, None, parts[:MAX_PARTS], None, row.absent)


def _grouped(heap: Heap, minimum: int, top: int | None, by: str) -> Owners:
    if heap.is_python:
        raise UsageError(f"heap owners: --by={by} is for programs without Python: use 'heap retained --by=type'")
    paths = heap.paths
    if paths.references.graph.is_cut:
        return _unproven(heap, f"--by={by}")
    graph, roots, first = paths.references.graph, paths.references.roots, paths.references.first_root
    wanted = {GLOBAL: (GLOBAL, MEMORY), THREAD: (THREAD,)}.get(by)
    sums: dict[tuple[str | None, str | None, str | None], list[int]] = {}
    seeds = [(number, place) for place, number in enumerate(range(first, first + len(roots)))]
    for row in graph.shares(seeds, minimum):
        root, what = roots[row.label] if row.label < len(roots) else None, group_name(paths, row.group)
        if not isinstance(root, BlockRoot) or (wanted is not None and root.kind not in wanted):
            continue
        total = sums.setdefault((None, None, what) if by == TYPE else (root.name, root.kind, what), [0, 0])
        total[0] += row.group.count
        total[1] += row.group.bytes
    absent = absent_by(heap, lambda number: _key_of(paths, number, by))
    groups = [HeldTogether(*key, count, size, absent=absent[key]) for key, (count, size) in sums.items()]
    groups.sort(key=lambda row: (-row.bytes, row.root or "", row.what or ""))
    return _together(heap, groups, top)


def _key_of(paths: Paths, number: int, by: str) -> tuple[str | None, str | None, str | None] | None:
    """Return the row that counts a block: the name of its root, the kind of its root, and the kind of the block.

    The first two are None if ``by`` is TYPE. Return None if no root reaches the block.
    """
    references = paths.references
    node, chain = references.node(number), references.graph.chain(number)
    root = references.node(chain[0]).root if chain else None
    if not isinstance(root, BlockRoot):
        return None
    what = paths.type_name(node)
    return (None, None, what) if by == TYPE else (root.name, root.kind, what)
