"""Who holds what is in use?"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gdbheap.answers.absent import absent_blocks, absent_by
from gdbheap.answers.arrays import ArrayRow, arrays, frames_of
from gdbheap.answers.shared_out import NOBODY, Part, Shape, share_out
from gdbheap.answers.unfinished import finishing, not_examined
from gdbheap.answers.ways import in_words
from gdbheap.errors import UsageError
from gdbheap.graph.nodes import Node
from gdbheap.graph.paths import BlockPaths, Paths, group_name
from gdbheap.graph.roots import GLOBAL, MEMORY, THREAD, BlockRoot
from gdbheap.heap import Heap


@dataclass(frozen=True)
class Held:
    """A used block: its first byte, its size with its header, what it is (an object's type, ``buffer`` or ``block``),
    the object that owns it or None, and how that is reached: ``path`` as Python or None, ``chain`` in words;
    ``absent``: of its bytes, those that are not resident."""

    address: int
    size: int
    what: str
    owner: int | None
    type: str | None
    path: str | None
    chain: str
    absent: int = 0


HOLDER, BLOCK, ARRAY, TYPE = "holder", "block", "array", "type"
GROUPS = (HOLDER, BLOCK, ARRAY, TYPE, GLOBAL, THREAD)
# Of blocks that are listed one by one.
MIN_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class HeldTogether:
    """Blocks to which the shortest chains lead from one ``root``. Of a program with Python it is what they are shared
    out to (shared_out.SharedOut has the words of ``kind``), ``what`` is the kind that has most of the bytes, ``path``
    leads to a variable, ``parts`` are the largest kinds, and ``array`` says which DataFrame, table or array the
    variable is, None where it is none. ``absent``: of ``bytes``, those of large blocks that are not resident: they were
    never written to, or were swapped out. Without Python the root is a global with its object, a thread's stack or
    data, or other memory, and the blocks are of one kind, ``what``: their type, or their size. Root and kind are None
    where blocks are put together whatever leads to them, and where nothing does. ``at_least``: not all references could
    be read, and the bytes are those that this holder alone is proven to have."""

    root: str | None
    kind: str | None
    what: str | None
    count: int
    bytes: int
    path: str | None = None
    parts: list[Part] = field(default_factory=list)
    array: Shape | None = None
    absent: int = 0
    at_least: bool = False


@dataclass(frozen=True)
class Owners:
    """The answer of ``heap owners``, largest first; ``count`` and ``bytes`` are over all that are large enough, and, in
    ``groups`` of a program without Python, that a root leads to; bytes of ``arrays`` are those of their values, none
    of them twice, wherever these lie. At most one of the lists has rows. ``absent``: of the bytes of groups, or of
    arrays, those that are not resident. ``not_examined``: bytes in use beside those, which nothing is proven to hold
    because not all references could be read; ``next``: the command lines that would examine them."""

    owners: list[Held]
    count: int
    bytes: int
    groups: list[HeldTogether] = field(default_factory=list)
    arrays: list[ArrayRow] = field(default_factory=list)
    absent: int = 0
    not_examined: int = 0
    next: list[str] = field(default_factory=list)


def owners(heap: Heap, minimum: int | None, top: int | None, by: str = HOLDER) -> Owners:
    """All blocks in use by what holds them, or those of at least ``minimum`` bytes; those of at least MIN_BLOCK_BYTES,
    or ``minimum``, one by one. Raises UsageError, or Unsupported."""
    if by == HOLDER and heap.is_python:
        if minimum is not None:
            raise UsageError("heap owners: --min is for --by=block and --by=array, and for programs without Python")
        return _shared_out(heap, top)
    if by == ARRAY:
        listed = arrays(heap, minimum or 0, top)
        return Owners([], listed.count, listed.bytes, [], listed.rows, listed.absent)
    if by != BLOCK:
        return _grouped(heap, minimum or 0, top, by)
    minimum = MIN_BLOCK_BYTES if minimum is None else minimum
    references = heap.references
    found = references.graph.largest(minimum, top)
    paths = heap.paths
    nodes = references.nodes([row.id for row in found.rows])
    absent = absent_by(heap, lambda number: number)
    rows = [replace(_held(paths, node), absent=absent[node.id]) for node in nodes]
    return Owners(rows, found.count, found.bytes)


def _held(paths: Paths, node: Node) -> Held:
    references = paths.references
    numbers = references.graph.chain(node.id)
    above = references.nodes([number for number in numbers[-8:] if number != node.id])
    owner = node if node.kind == "object" else next((one for one in reversed(above) if one.type), None)
    path = paths.path(numbers)
    what = paths.type_name(node) if node.kind == "object" else "buffer" if node.kind == "buffer" else "block"
    address, kind = (None, None) if owner is None else (owner.address, paths.type_name(owner))
    return Held(node.block, node.size, what, address, kind, path.expression, in_words(path))


def _shared_out(heap: Heap, top: int | None) -> Owners:
    rows = share_out(heap.object_paths, frames_of(heap), absent_blocks(heap))
    is_cut = heap.object_references.graph.is_cut
    groups = [
        HeldTogether(
            row.name, row.kind, row.parts[0].what if row.parts else None, row.count, row.bytes, row.path, row.parts,
            row.array, row.absent, is_cut,
        )
        for row in rows if not (is_cut and row.kind == NOBODY)
    ]  # fmt: skip
    if not is_cut:
        return _together(groups, top)
    rest = sum(row.bytes for row in rows if row.kind == NOBODY)
    return replace(_together(groups, top), not_examined=rest, next=finishing(heap, heap.references, "owners"))


def _together(groups: list[HeldTogether], top: int | None) -> Owners:
    count, size, absent = (sum(getattr(row, name) for row in groups) for name in ("count", "bytes", "absent"))
    return Owners([], count, size, groups[:top], absent=absent)


def _grouped(heap: Heap, minimum: int, top: int | None, by: str) -> Owners:
    if heap.is_python:
        raise UsageError(f"heap owners: --by={by} is for programs without Python: 'heap retained --by=type' is like it")
    paths = heap.block_paths
    if paths.references.graph.is_cut:
        rest, more = not_examined(paths.references), finishing(heap, paths.references, "owners", f"--by={by}")
        return Owners([], 0, 0, not_examined=rest, next=more)
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
    return _together(groups, top)


def _key_of(paths: BlockPaths, number: int, by: str) -> tuple[str | None, str | None, str | None] | None:
    """Return the row of a block: its root, the kind of that, and what the block is."""
    references = paths.references
    node, chain = references.node(number), references.graph.chain(number)
    root = references.node(chain[0]).root if chain else None
    if not isinstance(root, BlockRoot):
        return None
    what = paths.type_name(node)
    return (None, None, what) if by == TYPE else (root.name, root.kind, what)
