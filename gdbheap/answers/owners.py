"""Who keeps the large blocks?"""

from __future__ import annotations

from dataclasses import dataclass, field

from gdbheap.answers.ways import in_words
from gdbheap.errors import UsageError
from gdbheap.graph.nodes import Node
from gdbheap.graph.paths import Paths, group_name
from gdbheap.graph.roots import GLOBAL, MEMORY, THREAD, BlockRoot
from gdbheap.heap import Heap


@dataclass(frozen=True)
class Held:
    """A used block: its first byte, its size with its header, what it is (an object's type, ``buffer`` or ``block``),
    the object that owns it or None, and how that is reached: ``path`` as Python or None, ``chain`` in words."""

    address: int
    size: int
    what: str
    owner: int | None
    type: str | None
    path: str | None
    chain: str


BLOCK, TYPE = "block", "type"
GROUPS = (BLOCK, TYPE, GLOBAL, THREAD)


@dataclass(frozen=True)
class HeldTogether:
    """Blocks of one kind (``what``: their type, or their size) to which the shortest chains lead from one ``root``: a
    global with its object, a thread's stack or data, or other memory; ``kind``: which of these it is. Both are None
    where blocks are put together whatever leads to them."""

    root: str | None
    kind: str | None
    what: str | None
    count: int
    bytes: int


@dataclass(frozen=True)
class Owners:
    """The answer of ``heap owners``, largest first; ``count`` and ``bytes`` are over all that are large enough, and, in
    ``groups``, that a root leads to. One of the lists is empty."""

    owners: list[Held]
    count: int
    bytes: int
    groups: list[HeldTogether] = field(default_factory=list)


def owners(heap: Heap, minimum: int, top: int | None, by: str = BLOCK) -> Owners:
    """Blocks of at least ``minimum`` bytes, each, or by what holds them or by type, without Python. Raises UsageError,
    or Unsupported."""
    if by != BLOCK:
        return _grouped(heap, minimum, top, by)
    references = heap.references
    found = references.graph.largest(minimum, top)
    paths = heap.paths
    nodes = references.nodes([row.id for row in found.rows])
    return Owners([_held(paths, node) for node in nodes], found.count, found.bytes)


def _held(paths: Paths, node: Node) -> Held:
    references = paths.references
    numbers = references.graph.chain(node.id)
    above = references.nodes([number for number in numbers[-8:] if number != node.id])
    owner = node if node.kind == "object" else next((one for one in reversed(above) if one.type), None)
    path = paths.path(numbers)
    what = paths.type_name(node) if node.kind == "object" else "buffer" if node.kind == "buffer" else "block"
    address, kind = (None, None) if owner is None else (owner.address, paths.type_name(owner))
    return Held(node.block, node.size, what, address, kind, path.expression, in_words(path))


def _grouped(heap: Heap, minimum: int, top: int | None, by: str) -> Owners:
    if heap.is_python:
        raise UsageError(f"heap owners: --by={by} is for programs without Python: 'heap retained --by=type' is like it")
    paths = heap.block_paths
    roots = paths.references.roots
    wanted = {GLOBAL: (GLOBAL, MEMORY), THREAD: (THREAD,)}.get(by)
    sums: dict[tuple[str | None, str | None, str | None], list[int]] = {}
    for row in paths.references.graph.held_by(minimum, None):
        root, what = roots[row.root], group_name(paths, row.group)
        if not isinstance(root, BlockRoot) or (wanted is not None and root.kind not in wanted):
            continue
        total = sums.setdefault((None, None, what) if by == TYPE else (root.name, root.kind, what), [0, 0])
        total[0] += row.group.count
        total[1] += row.group.bytes
    groups = [HeldTogether(*key, count, size) for key, (count, size) in sums.items()]
    groups.sort(key=lambda row: (-row.bytes, row.root or "", row.what or ""))
    count, size = sum(row.count for row in groups), sum(row.bytes for row in groups)
    return Owners([], count, size, groups[:top])
