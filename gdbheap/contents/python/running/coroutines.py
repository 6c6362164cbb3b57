"""Read coroutines, generators, tasks and greenlets: where each waits, and for which object.

No code of the target is run.

A generator or coroutine is an object that contains its frame (since 3.11) or points to it. The object to which it
delegates by ``await`` or ``yield from`` lies on top of the frame's stack (``_PyGen_yf``, Objects/genobject.c).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress

from gdbheap.contents.python.objects.attributes import MAX_BASES
from gdbheap.contents.python.objects.bounded_reads import Pages
from gdbheap.contents.python.objects.census import Objects
from gdbheap.contents.python.objects.reading import read_name
from gdbheap.contents.python.running.threads import MAX_LOCALS, Position, ThreadStates
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault
from gdbheap.layout.asyncio import TaskLayout
from gdbheap.layout.cpython import OB_TYPE, Release

TASK, COROUTINE, GENERATOR, ASYNC_GENERATOR, GREENLET = (
    "task", "coroutine", "generator", "async_generator", "greenlet",
)  # fmt: skip
GENERATORS = (COROUTINE, GENERATOR, ASYNC_GENERATOR)
C_TASK, PYTHON_TASK, GREENLETS = "_asyncio.Task", "asyncio.tasks.Task", "greenlet.greenlet"
# In 3.6 the task class in Python is a subclass of C's futures, which begin with the same fields as a C task.
C_FUTURE, MIXED_TASK = "_asyncio.Future", "asyncio.tasks.Task, a future of C's"
# Types of objects that only stand for the object in their first field: the results of ``__await__()``, ``__anext__()``
# and a future's ``__await__()`` (PyCoroWrapper, PyAsyncGenASend, PyAsyncGenAThrow, anextawaitableobject,
# futureiterobject).
WRAPPERS = frozenset((
    "coroutine_wrapper", "async_generator_asend", "async_generator_athrow", "anext_awaitable", "_asyncio.FutureIter",
))  # fmt: skip
WRAPPED = 16
# The values of fut_state. A pending future has not ended.
PENDING, CANCELLED, FINISHED = "pending", "cancelled", "finished"
TASK_STATES = {0: PENDING, 1: CANCELLED, 2: FINISHED}
TASK_STATE_TEXTS = {state.upper(): state for state in TASK_STATES.values()}
CREATED, SUSPENDED, RUNNING, ENDED = "created", "suspended", "running", "ended"
# The opcode of YIELD_FROM in 3.5 to 3.10 (Include/opcode.h). Since 3.11 a RESUME follows each yield; its argument is 2
# for yield from, 3 for await (Lib/opcode.py; Include/internal/pycore_opcode_utils.h).
YIELD_FROM, DELEGATING = 72, 2
# The offset of f_frame in PyFrameObject of 3.11 and later, after ob_base and f_back.
FRAME_FRAME = 24
# The most words of a greenlet's C++ half (greenlet 1 to 3: TGreenlet.hpp), and the offsets of a PyGreenlet's fields.
GREENLET_WORDS, GREENLET_FIELDS = 64, (16, 96)
# The most words that are tested for a pointer to a frame, for all greenlets together.
ASKED_WORDS = 1 << 18
MAX_NAME = 200


@dataclass(frozen=True)
class Suspendable:
    """A generator, coroutine or asynchronous generator in any state.

    ``state``: created, suspended, running or ended.
    ``place``: its position in its code, None if it has ended.
    ``awaits``: the object to which it delegates, 0 if there is none.
    ``frame``: the address of its frame.
    ``apart``: whether the frame is a separate object (up to 3.10).
    """

    address: int
    function: str
    state: str
    place: Position | None
    awaits: int
    frame: int
    apart: bool


@dataclass(frozen=True)
class Task:
    """An asyncio task.

    ``name``: None if tasks of the release have no names, or if the name is not a str. ``state``: pending, cancelled or
    finished. ``waits_for``: the future for which the task waits, 0 if there is none."""

    address: int
    name: str | None
    state: str
    coroutine: int
    waits_for: int


@dataclass(frozen=True)
class _Place:
    """The position of a frame in its code, and whether the awaited object is on top of the frame's stack."""

    position: Position
    delegates: bool


class _Fields:
    """The offsets of a release's fields in bytes, looked up only once, because a million objects may be read.

    An offset is None if the release has no such field.
    """

    def __init__(self, release: Release) -> None:
        self.kind = release.at(OB_TYPE)
        self.wrapped = release.at(WRAPPED)
        self.qualname = release["gen_qualname"]
        self.frame_inside = release.get("gi_iframe")
        self.frame = release.get("gen_frame") or 0
        self.state = release.get("gi_frame_state")
        self.created, self.executing = release.get("gi_created"), release.get("gi_executing") or 0
        self.delegating = release.get("gi_delegating")
        self.code, self.copy = release["f_code"], release.get("f_code_copy")
        self.instruction, self.last = release.get("f_instruction"), release.get("f_lasti") or 0
        self.locals, self.top, self.stack = release["f_locals"], release["f_top"], release.get("f_stack")
        # Since 3.15 one more word, an index or nothing, lies above the awaited object.
        self.depth = release.get("gi_awaited_depth") or 1
        self.top_is_pointer, self.tags = bool(release["f_top_is_pointer"]), release.get("f_tags") or 0


class Coroutines:
    """Reads the coroutines, generators, tasks and greenlets of one target."""

    def __init__(self, objects: Objects, threads: ThreadStates, tasks: TaskLayout | None) -> None:
        """Prepare to read coroutines and tasks. ``tasks``: the layout of tasks that are implemented in C; None if
        unknown.
        """
        self._objects = objects
        self._space = objects.target.space
        self._memory = Pages(self._space)
        self._fields = _Fields(objects.release)
        self._places: dict[tuple[int, int, int], _Place | None] = {}
        self._release = objects.release
        self._threads = threads
        self._tasks = tasks
        self._names: dict[int, str | None] = {}
        self._running = {
            outer.address: inner
            for state in threads.states
            for outer, inner in zip(state.frames, [0, *(frame.address for frame in state.frames)])
        }
        self._readers: dict[tuple[int, str], Callable[[int], int]] = {}
        self._half: tuple[int, int] | None = None
        self._words_left = ASKED_WORDS

    def inner_frame(self, frame: int) -> int:
        """Return the frame that ``frame``, a running frame, has called; 0 if it has called none."""
        return self._running.get(frame, 0)

    def kinds(self, types: list[int]) -> dict[int, tuple[str, str]]:
        """Return {address of the type: (its kind, the base that shows the kind)} for types of coroutines and similar
        objects.
        """
        found = {}
        for address in types:
            name = self._objects.names.name(address)
            if name in GENERATORS:
                found[address] = name, name
                continue
            bases = list(self._objects.names.with_bases(address))
            base = next((base for base in bases if base in (C_TASK, PYTHON_TASK, GREENLETS)), None)
            if base == PYTHON_TASK and C_FUTURE in bases:
                base = MIXED_TASK
            if base is not None:
                found[address] = (GREENLET if base == GREENLETS else TASK), base
        return found

    def type_name(self, address: int) -> str:
        """Return the name of the type of the object at ``address``. Unlike other reads of this class, it does not
        raise: the result is "?" if the type cannot be read.
        """
        try:
            return self._objects.names.name(self._memory.word(address + self._fields.kind))
        except (Fault, OverflowError):
            return "?"

    def _text(self, address: int) -> str | None:
        if address not in self._names:
            self._names[address] = read_name(self._space, self._release, address, MAX_NAME)
        return self._names[address]

    def suspended(self, address: int) -> Suspendable:
        """Return the generator, coroutine or asynchronous generator at ``address``. Raises Fault."""
        fields, memory = self._fields, self._memory
        function = self._text(memory.word(address + fields.qualname)) or "?"
        embedded = fields.frame_inside
        frame = memory.word(address + fields.frame) if embedded is None else address + embedded
        state = self._state_of(address, frame)
        place = self._place(frame) if state != ENDED else None
        awaits = self._awaits(address, frame, place) if state == SUSPENDED and place is not None else 0
        position = None if place is None else place.position
        return Suspendable(address, function, state, position, self._passed_on(awaits), frame, embedded is None)

    def _state_of(self, address: int, frame: int) -> str:
        if not frame:
            return ENDED
        if frame in self._running:
            return RUNNING
        fields = self._fields
        if fields.state is None:
            (last,) = struct.unpack("<i", self._memory.read(frame + fields.last, 4))
            return CREATED if last < 0 else SUSPENDED
        state = self._frame_state(address)
        if state == fields.created:
            return CREATED
        if state == fields.executing:
            return RUNNING
        return ENDED if state > fields.executing else SUSPENDED

    def _frame_state(self, address: int) -> int:
        byte = self._memory.read(address + (self._fields.state or 0), 1)[0]
        return byte - 256 if byte > 127 else byte

    def _place(self, frame: int) -> _Place | None:
        """Return the position of a frame in its code; None if the frame has no code object. Raises Fault.

        Frames at the same position are read once.
        """
        fields, memory = self._fields, self._memory
        code = memory.word(frame + fields.code)
        # The key has the frame's instruction as an address or an index. In free-threaded builds it also has the number
        # of the code's copy.
        copy = 0 if fields.copy is None else memory.u32(frame + fields.copy)
        at = memory.u32(frame + fields.last) if fields.instruction is None else memory.word(frame + fields.instruction)
        key = code, at, copy
        if key not in self._places:
            position = self._threads.position(frame)
            self._places[key] = None if position is None else _Place(position, self._is_delegation(position, at))
        return self._places[key]

    def _is_delegation(self, position: Position, at: int) -> bool:
        """Return whether a frame waits in an ``await`` or ``yield from``, according to its next instruction.

        Since 3.13 the generator's state shows this, and the method always returns True. Raises Fault.
        """
        fields, memory = self._fields, self._memory
        if fields.delegating is not None:
            return True
        if fields.instruction is not None:
            return memory.read(at + 3, 1)[0] >= DELEGATING
        last = (at - (1 << 32) if at >> 31 else at) * self._release["f_lasti_unit"]
        code = memory.word(position.code + self._release["code_bytes"]) + self._release["bytes_data"]
        return memory.read(code + last + 2, 1)[0] == YIELD_FROM

    def _awaits(self, address: int, frame: int, place: _Place) -> int:
        """Return the object to which a suspended frame delegates, from the top of its stack; 0 if it only yields."""
        fields, memory = self._fields, self._memory
        if not place.delegates or (fields.delegating is not None and self._frame_state(address) < fields.delegating):
            return 0
        word, start, top = memory.machine.word, frame + fields.locals, frame + fields.top
        if fields.top_is_pointer:
            end = memory.word(top)
        else:
            count = memory.u32(top)
            end = (start if fields.stack is None else memory.word(frame + fields.stack)) + word * count
        if not start + word * fields.depth <= end <= start + word * MAX_LOCALS:
            return 0
        return memory.word(end - word * fields.depth) & ~fields.tags

    def _passed_on(self, address: int) -> int:
        """Return the awaited object inside its wrappers; ``address`` itself if it is none."""
        with suppress(Fault):
            for _ in range(MAX_BASES):
                if not address or self.type_name(address) not in WRAPPERS:
                    break
                address = self._memory.word(address + self._fields.wrapped) or address
        return address

    def task(self, address: int, kind: int, base: str) -> Task | None:
        """Return the task at ``address`` of the class at ``kind``; None if a field is implausible. Raises Fault.

        ``base``: the name of the class that decides how the task is read."""
        return self._c_task(address) if base == C_TASK else self._python_task(address, kind, base == MIXED_TASK)

    def _c_task(self, address: int) -> Task | None:
        layout, space = self._tasks, self._memory
        if layout is None:
            return None
        state = TASK_STATES.get(space.u32(address + layout.state))
        coroutine, waiter = space.word(address + layout.coro), space.word(address + layout.waiter)
        name = None if layout.name is None else self._task_name(space.word(address + layout.name))
        return None if state is None else Task(address, name, state, coroutine, waiter)

    def _python_state(self, address: int, kind: int, is_mixed: bool) -> str | None:
        if is_mixed:
            return None if self._tasks is None else TASK_STATES.get(self._memory.u32(address + self._tasks.state))
        # Until the task has ended, ``_state`` is only an attribute of its class, not of the task itself.
        held = self._attribute(address, kind, "_state")
        return TASK_STATE_TEXTS.get(self._text(held) or "") if held else PENDING

    def _python_task(self, address: int, kind: int, is_mixed: bool) -> Task | None:
        state = self._python_state(address, kind, is_mixed)
        name = self._task_name(self._attribute(address, kind, "_name"))
        coroutine, waiter = (self._attribute(address, kind, name) for name in ("_coro", "_fut_waiter"))
        if waiter and self.type_name(waiter) == "NoneType":
            waiter = 0
        return None if state is None else Task(address, name, state, coroutine, waiter)

    def _attribute(self, address: int, kind: int, name: str) -> int:
        key = kind, name
        if key not in self._readers:
            self._readers[key] = self._objects.repr.attributes.reader(self._memory, address, kind, name)
        return self._readers[key](address)

    def _task_name(self, address: int) -> str | None:
        """Return a task's name; None if it has none, or if the name cannot be read.

        A task with a default name may have only a number, as an int (3.12 and later). The result is then "Task-N".
        """
        if not address:
            return None
        kind = self.type_name(address)
        if kind == "int":
            text = self._objects.repr.text(address)
            return None if text is None else f"Task-{text}"
        return read_name(self._memory, self._release, address, MAX_NAME) if kind == "str" else None

    def greenlet(self, address: int) -> Position | None:
        """Return the position at which the greenlet at ``address`` was suspended.

        Return None if the greenlet runs, has not begun or has ended. The greenlet's C++ half points to one frame
        object, in which the greenlet was suspended. The offset of the pointer differs between releases; the offset in
        another greenlet is tried first.
        """
        word = self._space.machine.word
        if self._half is not None:
            field, place = self._half
            with suppress(Fault, OverflowError):
                held = self._space.word(self._space.word(address + field) + place)
                if self._is_frame(held):
                    return self._threads.position(self._frame_of(held))
        for field in (self._release.at(at) for at in range(*GREENLET_FIELDS, word)):
            with suppress(Fault, OverflowError):
                half = self._space.word(address + field)
                is_read = half % word == 0 and self._words_left > 0
                raw = self._space.read_available(half, word * GREENLET_WORDS) if is_read else b""
                for place, held in enumerate(self._space.machine.words_of(raw)):
                    if not held or held % word:
                        continue
                    self._words_left -= 1
                    if self._is_frame(held):
                        self._half = field, word * place
                        return self._threads.position(self._frame_of(held))
        return None

    def _is_frame(self, address: int) -> bool:
        if not address or address % self._space.machine.word:
            return False
        try:
            kind = self._space.word(address + self._release.at(OB_TYPE))
            is_frame = self._objects.names.name(kind) == "frame"
            return is_frame and self._threads.position(self._frame_of(address)) is not None
        except (Fault, OverflowError):
            return False

    def _frame_of(self, frame: int) -> int:
        if self._release.get("frame_data") is None:
            return frame
        return self._space.word(frame + self._release.at(FRAME_FRAME))
