"""The references of one target: the native graph, its roots, and the objects that its numbers stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gdbheap import _native
from gdbheap.python.census import Objects
from gdbheap.python.roots import INTERPRETER, THREADS
from gdbheap.python.shapes import graph_layout
from gdbheap.python.threads import Frame, Threads

# In which order roots are followed; see native/core/src/graph/tree.rs.
BY_MODULES, BY_FRAMES, BY_OTHERS, BY_REMAINS, BY_STACKS, NOT_REACHED = range(6)
EXACT, LIKELY, DOUBTFUL, STRAY = range(4)
MAX_KNOWN = 1 << 16
MODULES, STATIC_TYPES = "sys.modules", "static types"


@dataclass(frozen=True)
class Root:
    """Something outside of the heaps that refers to objects: a name, a frame that runs, or memory. ``interpreter``: the
    number of the one whose ``sys.modules`` it is, 0 the main one."""

    name: str
    phase: int
    pointers: list[int] = field(default_factory=list)
    ranges: list[tuple[int, int]] = field(default_factory=list)
    frame: Frame | None = None
    interpreter: int = 0


class Node(NamedTuple):
    """What a number of the graph stands for.

    ``place``: block, static or root; ``kind``: object, idle, buffer or unknown. ``address`` is an object's own, else
    its block's first byte; ``block`` that byte, ``size`` the block's with its header; ``type`` the type's address or 0.
    """

    id: int
    place: str
    kind: str
    address: int
    block: int
    size: int
    type: int
    root: Root | None = None


class References:
    """The graph of one target."""

    def __init__(
        self, objects: Objects, threads: Threads, progress: Callable[[int, int], object] | None = None
    ) -> None:
        """Raises Unsupported where the tables lack a field."""
        self.objects = objects
        self.threads = threads
        self._known: dict[int, Node] = {}
        statics = objects.static_types()
        self.roots = [*_of_python(threads), Root(STATIC_TYPES, BY_FRAMES, statics), *_of_memory(objects)]
        self.graph = _native.draw_graph(
            objects.heaps, objects.layout, graph_layout(objects.release), statics, self.roots, progress
        )

    def find(self, address: int) -> Node | None:
        """The node that holds ``address``: a block, or the static type there."""
        number = self.graph.find(address)
        return None if number is None else self.node(number)

    def node(self, number: int) -> Node:
        """What a number stands for."""
        return self.nodes([number])[0]

    def nodes(self, numbers: Sequence[int]) -> list[Node]:
        """The blocks with these numbers, in their order."""
        if len(self._known) > MAX_KNOWN:
            self._known.clear()
        known = self._known
        missing = [number for number in numbers if number not in known]
        if missing:
            known.update(zip(missing, self._read(missing)))
        return [known[number] for number in numbers]

    def objects_among(self, numbers: Sequence[int]) -> list[Node]:
        """The blocks with these numbers that are no buffers; they are not remembered, as there may be many."""
        rows = zip(numbers, self.graph.nodes_of(numbers))
        return list(self._read([number for number, row in rows if row.kind != "buffer"]))

    def _read(self, numbers: Sequence[int]) -> Iterator[Node]:
        rows = self.graph.nodes_of(numbers)
        inside = [(row.address, row.size) for row in rows if _may_be_object(row)]
        found = iter(self.objects.addresses_in(inside))
        for number, row in zip(numbers, rows):
            block = row.address
            if row.place == "root":
                root = self.roots[block]
                at = root.frame.address if root.frame else next(iter(root.pointers), 0)
                yield Node(number, row.place, row.kind, at, 0, 0, 0, root)
                continue
            own = next(found) if _may_be_object(row) else None
            yield Node(number, row.place, row.kind, block if own is None else own, block, row.size, row.type_address)


def _may_be_object(row: _native.GraphNode) -> bool:
    return row.place == "block" and row.kind in ("object", "idle")


def _of_python(threads: Threads) -> list[Root]:
    roots = [Root(MODULES, BY_MODULES, [address], interpreter=number) for number, address in threads.modules()]
    for state in threads.states:
        for frame in state.frames:
            held = [frame.address] if frame.object else [*(local.value for local in frame.locals), *frame.references]
            roots.append(Root(frame.title, BY_FRAMES, held, frame=frame))
    return roots


def _of_memory(objects: Objects) -> list[Root]:
    """The data of each library, what may be left over in the interpreter's own and in data of threads, and what lies on
    stacks."""
    ranges: dict[str, list[tuple[int, int]]] = {}
    for number, start, end in objects.roots.ranges:
        if number != objects.roots.last:
            ranges.setdefault(objects.roots.names[number], []).append((start, end))
    late = (INTERPRETER, THREADS)
    ranges[THREADS] = objects.roots.thread_data
    registers = [register.value for register in objects.roots.registers]
    found = [
        Root(name, BY_REMAINS if name in late else BY_OTHERS, ranges=parts)
        for name, parts in sorted(ranges.items(), key=lambda item: item[0] in late)
    ]
    return [*found, Root("stacks", BY_STACKS, ranges=objects.roots.stacks), Root("registers", BY_STACKS, registers)]
