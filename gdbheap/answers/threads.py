"""List the frames of the threads, with the sizes of their variables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

from gdbheap.contents.python.objects.references import References
from gdbheap.contents.python.running.threads import Frame, Local, ThreadState
from gdbheap.contents.python.text.repr import BRIEF
from gdbheap.heap import Heap
from gdbheap.targets.frames import frames_of
from gdbheap.targets.target import Thread

# The functions that run Python code; compilers append suffixes to these names.
LOOPS = ("_PyEval_EvalFrameDefault", "PyEval_EvalFrameEx")


@dataclass(frozen=True)
class Variable:
    """A local variable, or a value on the frame's stack (``name`` None): its object and bytes.

    ``size`` is that of the object's block and of the buffers that it owns.
    """

    name: str | None
    address: int
    type: str
    size: int
    text: str | None = None
    retained: int | None = None


@dataclass(frozen=True)
class Running:
    """A frame with its variables.

    For C code ``file`` is "" and ``function`` is a name or a place in an object. ``retained``: the bytes that would be
    free without the objects of its variables.
    """

    function: str
    file: str
    line: int | None
    bytes: int
    locals: list[Variable]
    retained: int = 0


@dataclass(frozen=True)
class PythonThread:
    """A thread that runs Python, or any thread of a program without it; innermost frame first."""

    tid: int | None
    name: str
    running: list[Running]
    retained: int


@dataclass(frozen=True)
class Threads:
    """The answer of ``heap threads``."""

    rows: list[PythonThread]


@dataclass(frozen=True)
class Line:
    """A Python function, its file, and the line that it executes; None if unknown."""

    function: str
    file: str
    line: int | None


@dataclass(frozen=True)
class ThreadLines:
    """A thread that runs Python, as in PythonThread, with its lines, innermost frame first."""

    tid: int | None
    name: str
    running: list[Line]


def thread_lines(heap: Heap) -> list[ThreadLines]:
    """Return where the threads are, without what their frames hold, so that no references are followed.

    Raises NotAPython or Unsupported.
    """
    return [
        ThreadLines(
            state.thread.tid if state.thread else None,
            state.thread.name if state.thread else "",
            [Line(frame.function, frame.file, frame.line) for frame in state.frames],
        )
        for state in heap.python.interpreter.threads.states
    ]


def threads(heap: Heap, values: bool = False, with_c: bool = False) -> Threads:
    """Return the threads with their frames.

    ``values``: add texts of the variables. ``with_c``: add the frames of C code between them, as far as unwind tables
    allow; in a program without Python all frames are C code's. Raises NotAPython or Unsupported.
    """
    if with_c and not heap.is_python:
        return Threads([_of_c(heap, thread) for thread in heap.target.threads])
    references = heap.python.references
    states = heap.python.interpreter.threads.states
    known: dict[int, Variable] = {}
    running = [_running(heap, references, frame, values, known) for state in states for frame in state.frames]
    # All threads in one call, as each call walks the whole graph.
    retained = iter(_with_retained(references, running))
    found = []
    for state, kept in zip(states, _kept(references, states)):
        frames = list(islice(retained, len(state.frames)))
        if with_c and state.thread is not None:
            frames = _with_c(heap, state, frames)
        tid, name = (state.thread.tid, state.thread.name) if state.thread else (None, "")
        found.append(PythonThread(tid, name, frames, kept))
    return Threads(found)


def _with_retained(references: References, frames: list[Running]) -> list[Running]:
    """Add to the frames what their variables retain, each alone and all together."""
    graph = references.graph
    addresses = {variable.address for frame in frames for variable in frame.locals}
    numbers = {address: number for address in addresses if (number := graph.find(address)) is not None}
    sizes = dict(zip(numbers, graph.retained(list(numbers.values()))))
    sets = [sorted({numbers[one.address] for one in frame.locals if one.address in numbers}) for frame in frames]
    found = []
    for frame, together in zip(frames, graph.retained_together(sets)):
        variables = [replace(one, retained=sizes.get(one.address)) for one in frame.locals]
        found.append(replace(frame, locals=variables, retained=together))
    return found


def _of_c(heap: Heap, thread: Thread) -> PythonThread:
    frames = [Running(frame.function, "", None, 0, []) for frame in frames_of(heap.target, thread)]
    return PythonThread(thread.tid, thread.name, frames, 0)


def _kept(references: References, states: Sequence[ThreadState]) -> list[int]:
    """Return what only the frames of each thread keep, in bytes."""
    numbers = {
        root.frame.address: number
        for number, root in enumerate(references.roots, references.first_root)
        if root.frame is not None
    }
    sets = [[numbers[frame.address] for frame in state.frames if frame.address in numbers] for state in states]
    return list(references.graph.retained_together(sets))


def _with_c(heap: Heap, state: ThreadState, frames: list[Running]) -> list[Running]:
    """Add the frames of C code.

    A call of the interpreter's loop stands for a Python frame that C called, and for those that this frame called from
    Python. No frame of C is added if no call of the loop can be recognised by its name.
    """
    stack = frames_of(heap.target, state.thread) if state.thread is not None else []
    if not any(_is_loop(frame.function) for frame in stack):
        heap.note("no-python-calls")
        return frames
    found: list[Running] = []
    left = list(zip(state.frames, frames))
    for frame in stack:
        if not _is_loop(frame.function):
            found.append(Running(frame.function, "", None, 0, []))
            continue
        while left:
            own, running = left.pop(0)
            found.append(running)
            if own.entry:
                break
    return found + [running for _own, running in left]


def _is_loop(function: str) -> bool:
    return function.startswith(LOOPS)


def _running(heap: Heap, references: References, frame: Frame, values: bool, known: dict[int, Variable]) -> Running:
    """Return a frame with its variables. ``known`` caches the objects by address, as many frames may share them."""
    for local in frame.locals:
        if local.value not in known:
            known[local.value] = _variable(heap, references, local, values)
    variables = [replace(known[local.value], name=local.name) for local in frame.locals]
    seen = {variable.address: variable.size for variable in variables}
    return Running(frame.function, frame.file, frame.line, sum(seen.values()), variables)


def _variable(heap: Heap, references: References, local: Local, values: bool) -> Variable:
    node = references.find(local.value)
    text = references.objects.repr.text(local.value, BRIEF) if values else None
    if node is None:
        return Variable(local.name, local.value, references.objects.type_at(local.value), 0, text)
    edges = {edge.target for edge in references.graph.edges(node.id)}
    buffers = [other.size for other in references.nodes(sorted(edges)) if other.kind == "buffer"]
    name = heap.python.paths.type_name(node)
    return Variable(local.name, local.value, name, node.size + sum(buffers), text)
