"""The references between one target's Python objects: the native graph, its roots, and the nodes with their objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from gdbheap import _native
from gdbheap.contents.python.objects.census import Objects
from gdbheap.contents.python.objects.roots import INTERPRETER, REGISTERS, STACKS, THREADS
from gdbheap.contents.python.objects.shapes import graph_layout
from gdbheap.contents.python.running.handled_exceptions import handled_exceptions
from gdbheap.contents.python.running.registered import registered_by_thread, registered_with, signal_handlers
from gdbheap.contents.python.running.threads import PythonFrame, ThreadStates
from gdbheap.dataclass import dataclass
from gdbheap.graph.blocks import Kinds
from gdbheap.graph.linker_tables import linker_tables
from gdbheap.graph.nodes import Node, Nodes, Root
from gdbheap.targets.ranges import Ranges

# The phases in which nodes are reached, in order; see native/core/src/graph/tree.rs. For nodes reached in BY_PADDING or
# a later phase, the evidence is weak.
BY_MODULES, BY_FRAMES, BY_OTHERS, BY_REMAINS, BY_PADDING, BY_INNER, BY_STACKS, NOT_REACHED = range(8)
MODULES, STATIC_TYPES = "sys.modules", "static types"


@dataclass(frozen=True)
class PythonRoot(Root):
    """A root of Python objects: ``sys.modules`` or another named root, a running frame, a handled exception, registered
    functions, or memory.

    ``interpreter``: for ``sys.modules``, the number of its interpreter; 0 for the main one.
    """

    frame: PythonFrame | None = None
    interpreter: int = 0
    is_exception: bool = False
    is_registered: bool = False

    @property
    def is_running(self) -> bool:
        """Whether the root is a running frame, or an exception that a running frame handles."""
        return self.frame is not None or self.is_exception


class PythonNodes(Nodes):
    """The nodes of a graph of Python objects: objects, frames and memory of one target. Subclasses build or search the
    graph.
    """

    counts_references = True
    objects: Objects
    threads: ThreadStates
    roots: Sequence[PythonRoot]
    # The kinds of C blocks, if they are known.
    structures: Kinds | None = None

    @property
    def space(self) -> _native.Space:
        return self.objects.target.space

    def objects_among(self, numbers: Sequence[int]) -> list[Node]:
        """Return the nodes with these numbers that are objects, not buffers. They are not cached, because there may be
        many.
        """
        raise NotImplementedError


class References(PythonNodes):
    """The graph of references between one target's Python objects."""

    def __init__(
        self,
        objects: Objects,
        threads: ThreadStates,
        progress: Callable[[int, int], object] | None = None,
        mapped: Ranges | None = None,
        is_partial: bool = False,
        structures: Kinds | None = None,
        others: Sequence[tuple[str, Sequence[int]]] = (),
    ) -> None:
        """Build the graph. Raises Unsupported if the tables of the release lack a field.

        ``mapped``: memory that objects mapped; each range is a node, and its bytes are not read. ``is_partial``: memory
        that may refer to objects is missing. ``structures``: the kinds of C blocks. ``others``: (name, blocks) of
        holders outside Python.
        """
        super().__init__()
        self.objects = objects
        self.threads = threads
        statics = objects.static_types()
        objects.roots.add_names(name for name, _held in others)
        self.roots = [
            *roots_of_python(objects, threads),
            PythonRoot(STATIC_TYPES, BY_FRAMES, statics),
            *(PythonRoot(name, BY_OTHERS, list(held)) for name, held in others),
            *_of_memory(objects),
        ]
        heaps, layout = objects.heaps_with(mapped or []), graph_layout(objects.release, threads.interpreters)
        self.structures = structures
        of_c = None if structures is None else structures.native
        linked = linker_tables(objects.target)
        self.graph = _native.draw_graph(
            heaps, objects.layout, layout, statics, self.roots, linked, of_c, progress, is_partial
        )

    def is_certain(self, number: int) -> bool:
        """Return whether a chain of certain references leads from a root to the node: no word on it may be stale."""
        return self.graph.phases([number])[0] < BY_REMAINS - 1

    def objects_among(self, numbers: Sequence[int]) -> list[Node]:
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


def roots_of_python(objects: Objects, threads: ThreadStates) -> list[PythonRoot]:
    """Return the roots: modules, frames with their variables, handled exceptions, and functions registered by the
    program."""
    roots = [PythonRoot(MODULES, BY_MODULES, [address], interpreter=number) for number, address in threads.modules()]
    for state in threads.states:
        for frame in state.frames:
            held = [frame.address] if frame.object else [*(local.value for local in frame.locals), *frame.references]
            roots.append(PythonRoot(frame.title, BY_FRAMES, held, frame=frame))
    # Exceptions come after frames: if a variable has the exception too, the variable names it.
    space, release = objects.target.space, objects.release
    exceptions = handled_exceptions(space, release, threads.states)
    roots += (PythonRoot(one.name, BY_FRAMES, [one.address], is_exception=True) for one in exceptions)
    registered = chain(
        chain.from_iterable(registered_by_thread(space, release, state) for state in threads.states),
        registered_with(space, release, threads.interpreters),
        signal_handlers(space, release, _static_data(objects)),
    )
    roots += (PythonRoot(name, BY_FRAMES, held, is_registered=True) for name, held in registered if held)
    return roots


def _static_data(objects: Objects) -> Ranges:
    """Return the ranges of the interpreter's writable static data."""
    roots = objects.roots
    return [(start, end) for number, start, end in roots.ranges if roots.names[number] == INTERPRETER]


def _of_memory(objects: Objects) -> list[PythonRoot]:
    """Return the roots that are memory, the most reliable first.

    The data of each library come first. The interpreter's own data and the data of threads follow, then stacks and
    registers. Words outside the data of libraries may be stale.
    """
    ranges: dict[str, list[tuple[int, int]]] = {}
    for number, start, end in objects.roots.ranges:
        if number != objects.roots.last:
            ranges.setdefault(objects.roots.names[number], []).append((start, end))
    late = (INTERPRETER, THREADS)
    ranges[THREADS] = objects.roots.thread_data
    found = [
        PythonRoot(name, BY_REMAINS if name in late else BY_OTHERS, ranges=parts)
        for name, parts in sorted(ranges.items(), key=lambda item: item[0] in late)
    ]
    return [
        *found,
        PythonRoot(STACKS, BY_STACKS, ranges=objects.roots.stacks),
        PythonRoot(REGISTERS, BY_STACKS, objects.roots.registers),
    ]
