"""Group the blocks in use of a program without Python by holder: a global, a thread's variable, a mapping."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from gdbheap import _native
from gdbheap.allocators.runtimes import MMAPPED, Runtime
from gdbheap.answers.accounting.absent import absent_by
from gdbheap.answers.accounting.partition import main_runtime
from gdbheap.answers.accounting.smallest_row import least_of_row
from gdbheap.answers.shared_out import NAMES, NOBODY
from gdbheap.contents.content import ContentHolder
from gdbheap.dataclass import dataclass
from gdbheap.graph.nodes import Node
from gdbheap.graph.paths import Paths, Word, group_name
from gdbheap.graph.roots import GLOBAL, MEMORY, THREAD, BlockRoot
from gdbheap.heap import Heap
from gdbheap.targets.ranges import holds

__all__ = ["IN_MALLOC", "RootShare", "by_root", "share_named"]

RUNTIME_HEAP, IN_MALLOC = "runtime heap", "runtime in malloc"
# Names for the memory of a runtime's objects, by the runtime's id.
OF_RUNTIMES = {
    "v8": "objects in the V8 (JavaScript) heap (Buffer, ArrayBuffer and the like)",
    "perl": "variables of Perl, whose names are not read",
}
MAX_BRANCHES = 1000
CONTAINERS = ("std::", "HashMap or ", "BTreeMap or ")


@dataclass
class RootShare:
    """The blocks of one holder. ``name``: the holder; ``kind``: the kind of its root.

    ``groups``: (what the blocks are, number of blocks, bytes). ``absent``: bytes of large blocks that are not resident.
    ``nodes``: the nodes of the graph through which the holder's blocks are reached.
    """

    name: str
    kind: str
    groups: list[tuple[str, int, int]] = field(default_factory=list)
    absent: int = 0
    nodes: list[int] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """The bytes of all groups, headers included."""
        return sum(size for _what, _count, size in self.groups)

    def add(self, paths: Paths, group: _native.BlockGroup) -> None:
        self.groups.append((group_name(paths, group), group.count, group.bytes))


def by_root(heap: Heap, minimum: int) -> list[RootShare]:
    """Return a row for each holder, and one for unreachable blocks, each with its groups of blocks.

    Only groups of at least ``minimum`` bytes are listed.
    """
    paths = heap.paths
    graph = paths.references.graph
    found = _Holders(heap, paths)
    nobody = RootShare(NAMES[NOBODY], NOBODY)
    for share in graph.shares(list(found.seeds.items()), minimum):
        row = found.rows[share.label] if share.label < len(found.rows) else nobody
        row.add(paths, share.group)
    for number, label in found.seeds.items():
        found.rows[label].nodes.append(number)
    found.name_globals()
    absent = absent_by(heap, lambda number: found.label_of(graph.chain(number)))
    for label, size in absent.items():
        (nobody if label < 0 else found.rows[label]).absent += size
    return [row for row in [*found.rows, nobody] if row.groups]


def share_named(shares: Iterable[RootShare], name: str) -> RootShare | None:
    """Return the blocks of the static or thread-local variable that ``heap owners`` calls ``name``; None if there is no
    such variable.

    ``name`` may lack the type of the blocks, and the file in which the variable is.
    """
    found = (share for share in shares if share.kind in (GLOBAL, THREAD) and _is_named(share.name, name))
    return max(found, key=lambda share: share.bytes, default=None)


def _is_named(full: str, name: str) -> bool:
    variable = full.partition(": ")[0]
    return name in (full, variable) or variable.startswith((f"'{name}' in ", f"{name} in "))


class _Holders:
    """The rows of holders by label, and the nodes of the graph through which the holders' blocks are reached
    (``seeds``)."""

    def __init__(self, heap: Heap, paths: Paths) -> None:
        self.rows: list[RootShare] = []
        self.seeds: dict[int, int] = {}
        # The labels of rows that are not split further.
        self._whole: set[int] = set()
        self._paths, self._references = paths, paths.references
        self._labels: dict[tuple[str, str], int] = {}
        # The bytes and the type of each row's largest branch that has a type.
        self._typed: dict[int, tuple[int, str]] = {}
        own = heap.content_holders()
        runtime = main_runtime(heap) or _in_malloc(heap)
        for number, root in enumerate(self._references.roots, self._references.first_root):
            if isinstance(root, BlockRoot):
                self.seeds[number] = self._label(*_row_of(root, own, heap, runtime))
        self._of_contents(own)
        graph = self._references.graph
        least = least_of_row(graph.largest(0, 0).bytes)
        for branch in graph.branches(graph.hanging(set(self.seeds), set(), set()), least)[:MAX_BRANCHES]:
            self._add(branch)

    def _label(self, name: str, kind: str) -> int:
        label = self._labels.setdefault((name, kind), len(self.rows))
        if label == len(self.rows):
            self.rows.append(RootShare(name, kind))
        return label

    def _of_contents(self, holders: Iterable[ContentHolder]) -> None:
        """Add a row for each holder that is known only from the contents of its blocks and not from a variable.

        All blocks that these blocks reach count for the row.
        """
        for held in holders:
            label = self._label(held.name, held.kind)
            self._whole.add(label)
            found = map(self._references.graph.find, held.blocks)
            self.seeds |= {number: label for number in found if number is not None}

    def _add(self, branch: _native.Branch) -> None:
        graph, nodes = self._references.graph, self._references.nodes(branch.way)
        chain = graph.chain(branch.id)
        label = self.label_of(chain[:-1])
        what = _of_most([self._paths.type_name(node) for node in nodes if node.type])
        if label < 0 or label in self._whole:
            return
        if self.rows[label].kind not in (THREAD, MEMORY):
            if what is not None:
                self._typed[label] = max(self._typed.get(label, (0, "")), (branch.bytes, what))
            return
        holder, first = self._references.nodes([chain[-2], branch.id])
        self.seeds[branch.id] = self._label(self._name(holder, first, what), self.rows[label].kind)

    def _name(self, holder: Node, first: Node, what: str | None) -> str:
        """Return the name of a branch below a thread or a mapping: the variable, frame or mapping that holds it, and
        its type.

        ``what``: the branch's type, or None if it is unknown.
        """
        edge = self._paths.edge(holder, first)
        place = edge.variable if isinstance(edge, Word) else edge.text
        if isinstance(holder.root, BlockRoot) and holder.root.kind == MEMORY:
            place = holder.root.name
        return f"{place}: {what or 'block'}"

    def name_globals(self) -> None:
        """Add a block type to the name of a global if blocks of this type have more than half of the global's bytes."""
        for label, (size, what) in self._typed.items():
            row = self.rows[label]
            if row.kind == GLOBAL and 2 * size > row.bytes:
                row.name = f"{row.name}: {what}"

    def label_of(self, chain: list[int]) -> int:
        """Return the label of the last holder on a chain; -1 if there is none."""
        return next((self.seeds[node] for node in reversed(chain) if node in self.seeds), -1)


def _of_most(types: list[str]) -> str | None:
    """Return the innermost type on a path that is not a library's container.

    If all are containers, return the outermost; None if there are no types. ``types`` begins with the outermost type.
    """
    own = [name for name in types if not name.startswith(CONTAINERS)]
    return own[-1] if own else types[0] if types else None


def _row_of(root: BlockRoot, own: Iterable[ContentHolder], heap: Heap, runtime: Runtime | None) -> tuple[str, str]:
    """Return the name and the kind of the row that shows a root's blocks.

    ``own``: holders known from contents. ``runtime``: the runtime whose objects the blocks may be, or None.
    """
    start = root.ranges[0][0] if root.ranges else 0
    held = next((each for each in own if root.kind == MEMORY and holds(each.ranges, start)), None)
    if held is not None:
        return held.name, held.kind
    if runtime is not None and _is_of_runtime(root, start, heap, runtime):
        kind = IN_MALLOC if runtime.kind.memory == MMAPPED else RUNTIME_HEAP
        return OF_RUNTIMES.get(runtime.kind.id, f"objects of {runtime.kind.name}"), kind
    return root.name, root.kind


def _in_malloc(heap: Heap) -> Runtime | None:
    """Return the runtime that keeps its objects in malloc's blocks; None if there is none."""
    return next((one for one in heap.runtimes if one.kind.memory == MMAPPED), None)


def _is_of_runtime(root: BlockRoot, start: int, heap: Heap, runtime: Runtime) -> bool:
    """Return whether a root is a runtime's memory, or is a variable of a runtime that keeps its objects in malloc's
    blocks."""
    if root.kind == MEMORY:
        mapping = heap.target.mappings.find(start)
        return mapping is not None and runtime.owns(mapping)
    loaded = heap.target.object_of(start) if runtime.kind.memory == MMAPPED else None
    return loaded is not None and runtime.kind.has_file(loaded.path)
