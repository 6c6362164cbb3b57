"""What do the threads run, and how large are their variables?"""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap.heap import Heap
from gdbheap.python.paths import ObjectPaths
from gdbheap.python.references import References
from gdbheap.python.threads import Frame, Local


@dataclass(frozen=True)
class Variable:
    """A local variable (``name`` None: a value on the frame's stack): its object, and the bytes of the object's block
    and of the buffers that it owns."""

    name: str | None
    address: int
    type: str
    size: int


@dataclass(frozen=True)
class Running:
    """A frame: the function, its file, the line where it is (None when nobody knows), and its variables."""

    function: str
    file: str
    line: int | None
    size: int
    locals: list[Variable]


@dataclass(frozen=True)
class PythonThread:
    """A thread that runs Python; ``tid`` None when the thread itself has ended. The innermost frame comes first."""

    tid: int | None
    name: str
    frames: list[Running]


@dataclass(frozen=True)
class Threads:
    """The answer of ``heap threads``."""

    threads: list[PythonThread]


def threads(heap: Heap) -> Threads:
    """Raises NotAPython or Unsupported."""
    references = heap.object_references
    paths = heap.object_paths
    return Threads([
        PythonThread(
            state.thread.tid if state.thread else None,
            state.thread.name if state.thread else "",
            [_running(references, paths, frame) for frame in state.frames],
        )
        for state in heap.interpreter.threads.states
    ])  # fmt: skip


def _running(references: References, paths: ObjectPaths, frame: Frame) -> Running:
    variables = [_variable(references, paths, local) for local in frame.locals]
    seen = {variable.address: variable.size for variable in variables}
    return Running(frame.function, frame.file, frame.line, sum(seen.values()), variables)


def _variable(references: References, paths: ObjectPaths, local: Local) -> Variable:
    node = references.find(local.value)
    if node is None:
        return Variable(local.name, local.value, references.objects.type_at(local.value), 0)
    edges = {edge.target for edge in references.graph.edges(node.id)}
    buffers = [other.size for other in references.nodes(sorted(edges)) if other.kind == "buffer"]
    return Variable(local.name, local.value, paths.type_name(node), node.size + sum(buffers))
