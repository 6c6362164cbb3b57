"""List the frames of the threads, with their variables and the variables' sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from gdbheap.contents.python.objects.references import References
from gdbheap.contents.python.running.threads import PythonFrame, ThreadState
from gdbheap.contents.python.text.repr import BRIEF
from gdbheap.dataclass import dataclass
from gdbheap.heap import Heap
from gdbheap.stack_frames import NATIVE, PYTHON, few_inlined, frames_of
from gdbheap.targets.frames import Frame, ThreadFrames
from gdbheap.targets.target import Thread

# The functions that run Python code; compilers append suffixes to these names.
LOOPS = ("_PyEval_EvalFrameDefault", "PyEval_EvalFrameEx")
# So many variables are read at once, with the first few nodes to which each of them leads.
AT_ONCE, FEW_EDGES = 5000, 8


@dataclass(frozen=True)
class Variable:
    """A local variable of a frame, or a value on the frame's stack (``name`` None), with the object that it refers to.

    ``size``: the bytes of the object's block and of the buffers that it owns.
    """

    name: str | None
    address: int
    type: str
    size: int
    text: str | None = None
    retained: int | None = None


@dataclass(frozen=True)
class ThreadFrame:
    """A frame of a thread, with its variables. ``kind``: "native" for C code.

    ``function``: its name; in C code without a name, an offset in a loaded object. ``file``: the source file; "" in C
    code without debug information. ``retained``: the bytes that would be freed if the objects of its variables were
    removed."""

    function: str
    file: str
    line: int | None
    bytes: int
    locals: list[Variable]
    retained: int = 0
    kind: str = PYTHON


@dataclass(frozen=True)
class PythonThread:
    """A thread that runs Python; in a program without Python, any thread. The innermost frame comes first."""

    tid: int | None
    name: str
    running: list[ThreadFrame]
    retained: int


@dataclass(frozen=True)
class Threads:
    """The answer of ``heap threads``: the threads with their frames."""

    rows: list[PythonThread]


@dataclass(frozen=True)
class ThreadLine:
    """A Python function, its file, and the line that it executes (None if unknown)."""

    function: str
    file: str
    line: int | None


@dataclass(frozen=True)
class ThreadLines:
    """A thread that runs Python, with the line of each frame; the innermost frame comes first."""

    tid: int | None
    name: str
    running: list[ThreadLine]


def thread_lines(heap: Heap) -> list[ThreadLines]:
    """Return the functions and lines that the threads execute. Variables are not read and no references are followed.

    Raises NotAPython or Unsupported.
    """
    return [
        ThreadLines(
            state.thread.tid if state.thread else None,
            state.thread.name if state.thread else "",
            [ThreadLine(frame.function, frame.file, frame.line) for frame in state.frames],
        )
        for state in heap.python.interpreter.threads.states
    ]


def threads(heap: Heap, values: bool = False, with_c: bool = False) -> Threads:
    """Return the threads with their frames.

    ``values``: add a text for the value of each variable. ``with_c``: add the frames of C code between Python's frames,
    as far as the unwind tables allow. In a program without Python all frames are of C code. Raises NotAPython or
    Unsupported.
    """
    stacks = ThreadFrames(heap.target) if with_c else None
    if stacks is not None and not heap.is_python:
        return Threads([_of_c(heap, stacks, thread) for thread in heap.target.threads])
    references = heap.python.references
    states = heap.python.interpreter.threads.states
    # The frames of all threads are handled together, because each call of the graph walks it whole.
    running = iter(_running(heap, references, [frame for state in states for frame in state.frames], values))
    found = []
    for state, kept in zip(states, _kept(references, states)):
        frames = list(islice(running, len(state.frames)))
        if stacks is not None and state.thread is not None:
            frames = _with_c(heap, stacks, state, frames)
        tid, name = (state.thread.tid, state.thread.name) if state.thread else (None, "")
        found.append(PythonThread(tid, name, frames, kept))
    return Threads(found)


def _of_c(heap: Heap, stacks: ThreadFrames, thread: Thread) -> PythonThread:
    frames = [running for _frame, calls in _calls(heap, stacks.of(thread)) for running in calls]
    return PythonThread(thread.tid, thread.name, frames, 0)


def _kept(references: References, states: Sequence[ThreadState]) -> list[int]:
    """Return, for each thread, how many bytes only its frames keep alive."""
    numbers = {
        root.frame.address: number
        for number, root in enumerate(references.roots, references.first_root)
        if root.frame is not None
    }
    sets = [[numbers[frame.address] for frame in state.frames if frame.address in numbers] for state in states]
    return list(references.graph.retained_together(sets))


def _with_c(heap: Heap, stacks: ThreadFrames, state: ThreadState, frames: list[ThreadFrame]) -> list[ThreadFrame]:
    """Return the frames with the frames of C code added.

    One call of the interpreter's loop runs a Python frame that C code called, and also the Python frames that this
    frame called. If no call of the loop can be recognised by its name, no frame of C code is added.
    """
    stack = stacks.of(state.thread) if state.thread is not None else []
    if not any(_is_loop(frame.function) for frame in stack):
        heap.note("no-python-calls")
        return frames
    found: list[ThreadFrame] = []
    left = list(zip(state.frames, frames))
    for frame, calls in _calls(heap, stack):
        if not _is_loop(frame.function):
            found += calls
            continue
        while left:
            own, running = left.pop(0)
            found.append(running)
            if own.entry:
                break
    return found + [running for _own, running in left]


def _calls(heap: Heap, stack: Sequence[Frame]) -> Iterator[tuple[Frame, list[ThreadFrame]]]:
    """Yield the frames of a stack, each with the C functions that it executes, innermost first.

    The compiler may have inlined functions into the frame's own function; these come before it."""
    for frame, calls in zip(stack, few_inlined(_lines(heap, frame) for frame in stack)):
        yield frame, [ThreadFrame(one.function, one.file, one.line, 0, [], kind=NATIVE) for one in calls]


def _lines(heap: Heap, frame: Frame) -> list[ThreadLine]:
    if heap.python.objects_or_none and heap.target.object_of(frame.counter) is heap.python.interpreter.module:
        return [ThreadLine(frame.function, "", None)]
    return [
        ThreadLine(one.name, "" if one.line is None else one.file, one.line) for one in frames_of(heap.target, frame)
    ]


def _is_loop(function: str) -> bool:
    return function.startswith(LOOPS)


def _running(heap: Heap, references: References, frames: Sequence[PythonFrame], values: bool) -> Iterator[ThreadFrame]:
    """Yield the frames with their variables, the bytes that each variable alone retains, and those that all variables
    of a frame retain. ``values``: add a text for the value of each variable.
    """
    graph = references.graph
    known = _variables(
        heap, references, dict.fromkeys(local.value for frame in frames for local in frame.locals), values
    )
    numbers = {address: number for address in known if (number := graph.find(address)) is not None}
    for address, retained in zip(numbers, graph.retained(list(numbers.values()))):
        known[address] = replace(known[address], retained=retained)
    sets = [sorted({numbers[one.value] for one in frame.locals if one.value in numbers}) for frame in frames]
    for frame, together in zip(frames, graph.retained_together(sets)):
        variables = [replace(known[local.value], name=local.name) for local in frame.locals]
        size = sum({variable.address: variable.size for variable in variables}.values())
        yield ThreadFrame(frame.function, frame.file, frame.line, size, variables, together)


def _variables(heap: Heap, references: References, addresses: Iterable[int], values: bool) -> dict[int, Variable]:
    """Return the objects at these addresses as variables without a name, by address."""
    left, found = iter(addresses), dict[int, Variable]()
    while part := list(islice(left, AT_ONCE)):
        numbers = {number for address in part if (number := references.graph.find(address)) is not None}
        # One call reads these nodes, and the few to which each leads.
        edges = (edge.target for number in numbers for edge in references.graph.edges(number)[:FEW_EDGES])
        references.nodes(sorted(numbers.union(edges)))
        found.update((address, _variable(heap, references, address, values)) for address in part)
    return found


def _variable(heap: Heap, references: References, address: int, values: bool) -> Variable:
    node = references.find(address)
    text = references.objects.repr.text(address, BRIEF) if values else None
    if node is None:
        return Variable(None, address, references.objects.type_at(address), 0, text)
    edges = {edge.target for edge in references.graph.edges(node.id)}
    buffers = [other.size for other in references.nodes(sorted(edges)) if other.kind == "buffer"]
    return Variable(None, address, heap.python.paths.type_name(node), node.size + sum(buffers), text)
