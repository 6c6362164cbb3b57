"""Read the Python frames of one stopped thread while other threads run. Their lines are read later.

Frames, and the objects to which they refer, belong to the stopped thread. All further memory, such as the lists of
thread states, can change meanwhile. Reads of such memory are bounded and checked, and repeated if a check fails.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from dataclasses import field

from gdbheap._native import Space
from gdbheap.contents.python.objects.reading import read_name
from gdbheap.contents.python.running.line_tables import line_of
from gdbheap.contents.python.running.threads import (
    LONGEST_NAME,
    MAX_THREADS,
    OWNED_BY_C,
    first_instruction,
    innermost_frame,
)
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault
from gdbheap.layout.cpython import OB_SIZE, OB_TYPE, TP_NAME, Release
from gdbheap.layout.debug_offsets import windows
from gdbheap.machines.machine import LOWEST_ADDRESS
from gdbheap.targets.elf import LoadedObject

LONGEST_PATH = 4 << 10
LONGEST_TABLE = 1 << 20
MAX_CODES, MAX_FRAMES = 1 << 16, 1 << 16
# The bytes at the start of _PyRuntime that are searched for the list of interpreters; since 3.13 a table of offsets
# comes first.
RUNTIME_HEAD = 8 << 10
# A limit for sizeof(PyThreadState), which since 3.14 contains a frame that belongs to no function.
STATE_BYTES = 16 << 10
# A search that found nothing is repeated only after PATIENCE times its own duration.
PATIENCE = 20
# sizeof(void *).
WORD = 8


@dataclass(frozen=True)
class Code:
    """A code object, read when gdbheap first saw a frame that runs it. ``table``: its line table."""

    name: str
    file: str
    first_line: int
    table: bytes = field(repr=False)


@dataclass(frozen=True)
class RawFrame:
    """A frame: its code object, and the offset in bytes of its current instruction."""

    code: Code
    offset: int


@dataclass(frozen=True)
class PythonStack:
    """The frames of a thread, innermost first, in groups.

    One call of the interpreter's loop runs the frames of a group. They are of a function, and of the functions that it
    called. A group is empty if its function is about to end. ``torn``: whether the outer frames could not be read.
    """

    groups: tuple[tuple[RawFrame, ...], ...]
    torn: bool = False


class QuickStacks:
    """Reads the Python frames of an interpreter's threads, one stopped thread at a time.

    ``space``: reads the memory of the process, which otherwise runs.
    """

    def __init__(self, space: Space, module: LoadedObject, release: Release) -> None:
        self._space, self._module, self._release = space, module, release
        self._states = _States(space, module, release)
        # Search interpreters now, and not while a thread is stopped.
        self._states.search()
        self._codes: dict[tuple[int, ...], Code | None] = {}
        self._lines: dict[tuple[Code, int], int | None] = {}
        self._is_object = release.get("f_previous") is None
        names = ("f_code", "f_back" if self._is_object else "f_previous", "f_instruction", "f_lasti", "f_owner",
                 "f_is_entry", "f_code_copy")  # fmt: skip
        self._at = {name: place for name in names if (place := release.get(name)) is not None}
        self._size = max(self._at.values()) + WORD
        kept = ("co_name", "co_filename", "co_qualname", "co_linetable", "co_lnotab", "co_firstlineno")
        self._code_at = {name: place for name in kept if (place := release.get(name)) is not None}
        self._code_size = max(self._code_at.values()) + WORD
        self._clean = ~(release.get("f_tags") or 0)

    def read_through(self, space: Space) -> None:
        """Read the process through ``space`` from now on."""
        self._space = self._states.space = space

    @property
    def has_threads(self) -> bool:
        """Whether an interpreter that has a thread was found."""
        return self._states.met

    def take(self, thread_pointer: int) -> PythonStack | None:
        """Return the frames of the thread with this thread pointer; None if no interpreter knows the thread."""
        state = self._states.find(thread_pointer)
        if state is None:
            return None
        groups: list[list[RawFrame]] = [[]]
        try:
            for frame, ends in self._walk(state):
                if frame is not None:
                    groups[-1].append(frame)
                if ends:
                    groups.append([])
        except (Fault, OverflowError, struct.error):
            return PythonStack(_closed(groups), True)
        return PythonStack(_closed(groups))

    def line(self, frame: RawFrame) -> int | None:
        """Return the number of the source line that a frame executes; None if its line table has none. Results are
        cached.
        """
        key = frame.code, frame.offset
        if key not in self._lines:
            try:
                found = line_of(self._release, frame.code.table, frame.code.first_line, frame.offset)
            except IndexError:
                found = None
            self._lines[key] = found
        return self._lines[key]

    def _walk(self, state: int) -> Iterator[tuple[RawFrame | None, bool]]:
        """Yield (frame, whether it is the last one of its interpreter loop) from the innermost frame outwards. Raises
        Fault.

        The frame is None for a C shim.
        """
        seen: set[int] = set()
        at = innermost_frame(self._space, self._release, state)
        while at:
            if at in seen or len(seen) >= MAX_FRAMES:
                raise Fault(at)
            seen.add(at)
            raw = self._space.read(at, self._size)
            if self._is_shim(raw):
                # Since 3.14 the outermost shim is in the thread state, and belongs to no evaluator.
                if not state <= at < state + STATE_BYTES:
                    yield None, True
            else:
                yield self._frame(raw), self._ends(raw)
            at = self._word(raw, "f_back" if self._is_object else "f_previous")

    def _word(self, raw: bytes, name: str) -> int:
        at = self._at[name]
        return int.from_bytes(raw[at : at + WORD], "little")

    def _is_shim(self, raw: bytes) -> bool:
        owner = self._at.get("f_owner")
        return owner is not None and raw[owner] >= OWNED_BY_C

    def _ends(self, raw: bytes) -> bool:
        """Return whether a frame is the last one of its interpreter loop.

        Up to 3.10 each frame has its own loop. In 3.11 the last frame has a flag. In later releases a C shim follows
        the last frame.
        """
        entry = self._at.get("f_is_entry")
        return self._is_object if entry is None else bool(raw[entry])

    def _frame(self, raw: bytes) -> RawFrame | None:
        address = self._word(raw, "f_code") & self._clean
        code = self._code(address)
        if code is None:
            return None
        if "f_instruction" in self._at:
            return RawFrame(code, self._word(raw, "f_instruction") - self._first_instruction(address, raw))
        (last,) = struct.unpack_from("<i", raw, self._at["f_lasti"])
        return RawFrame(code, last * self._release["f_lasti_unit"])

    def _first_instruction(self, address: int, raw: bytes) -> int:
        number = self._at.get("f_code_copy")
        copy = None if number is None else int.from_bytes(raw[number : number + 4], "little")
        return first_instruction(self._space, self._release, address, copy)

    def _code(self, address: int) -> Code | None:
        """Return the code object at ``address``; None if there is none.

        Results are cached by the address and the code object's pointers. If the code object was freed and another one
        lies at its address, the pointers differ.
        """
        raw = self._space.read(address, self._code_size)
        words = {name: int.from_bytes(raw[at : at + WORD], "little") for name, at in self._code_at.items()}
        words["co_firstlineno"] &= 0xFFFFFFFF
        key = (address, *words.values())
        if key not in self._codes:
            if len(self._codes) >= MAX_CODES:
                self._codes.clear()
                self._lines.clear()
            self._codes[key] = self._read_code(address, words)
        return self._codes[key]

    def _read_code(self, address: int, words: dict[str, int]) -> Code | None:
        """Return the code object at ``address``; None if there is none."""
        release, space = self._release, self._space
        try:
            kind = space.word(address + release.at(OB_TYPE))
            if space.cstring(space.word(kind + release.at(TP_NAME)), LONGEST_NAME) != b"code":
                return None
            name = read_name(space, release, words.get("co_qualname") or words["co_name"], LONGEST_PATH)
            file = read_name(space, release, words["co_filename"], LONGEST_PATH)
            table = words.get("co_linetable") or words["co_lnotab"]
            size = min(space.word(table + release.at(OB_SIZE)), LONGEST_TABLE)
            lines = space.read(table + release["bytes_data"], size)
        except (Fault, OverflowError):
            return None
        return Code(name or "?", file or "?", words["co_firstlineno"], lines)


class _States:
    """Finds the PyThreadState of a thread at the first request, and checks at later requests that the thread still has
    it.

    ``space`` reads the states.
    """

    def __init__(self, space: Space, module: LoadedObject, release: Release) -> None:
        self.space, self._module, self._release = space, module, release
        self._known: dict[int, int] = {}
        self._interpreters: list[int] = []
        self._next_search = 0.0
        self.met = False

    def find(self, pointer: int) -> int | None:
        """Return the address of the state of the thread with this thread pointer; None if it has none."""
        state = self._known.get(pointer)
        if state is not None and self._is_listed(state, pointer):
            return state
        state = self._listed(pointer)
        if state is None and self.search():
            state = self._listed(pointer)
        if state is None:
            self._known.pop(pointer, None)
        else:
            self._known[pointer] = state
            self.met = True
        return state

    def _is_listed(self, state: int, pointer: int) -> bool:
        """Return whether a state still belongs to the thread, and is still in the list of its interpreter.

        A state is in the list if its predecessor there, or the head of the list, points to it.
        """
        release, space = self._release, self.space
        try:
            interpreter = space.word(state + release["ts_interp"])
            if space.word(state + release["thread_id"]) != pointer or interpreter not in self._interpreters:
                return False
            if release["ts_next"] < WORD:
                # Python 2 has no link back.
                return state in self._list(interpreter)
            before = space.word(state + release["ts_next"] - WORD)
            head = interpreter + release["interp_tstates"] if not before else before + release["ts_next"]
            return space.word(head) == state
        except (Fault, OverflowError):
            return False

    def _listed(self, pointer: int) -> int | None:
        """Return the state of the thread with this thread pointer; None if it has none.

        If several interpreters have a state for the thread, the first one that runs is returned.
        """
        found = []
        for interpreter in self._interpreters:
            try:
                for state in self._list(interpreter):
                    if self.space.word(state + self._release["thread_id"]) == pointer:
                        found.append(state)
            except (Fault, OverflowError):
                continue
        return next(filter(self._runs, found), found[0] if found else None)

    def _runs(self, state: int) -> bool:
        place = self._release.get("ts_cframe") or self._release.get("ts_frame")
        try:
            return place is None or self.space.word(state + place) != 0
        except (Fault, OverflowError):
            return False

    def _list(self, interpreter: int) -> Iterator[int]:
        """Yield the addresses of an interpreter's thread states, at most MAX_THREADS. Raises Fault."""
        seen: set[int] = set()
        state = self.space.word(interpreter + self._release["interp_tstates"])
        while state and state not in seen and len(seen) < MAX_THREADS:
            seen.add(state)
            yield state
            state = self.space.word(state + self._release["ts_next"])

    def search(self) -> bool:
        """Search for interpreters, and return whether they have changed.

        After a search, further calls return False for a while, because the thread may not be a Python thread.
        """
        started = time.monotonic()
        if started < self._next_search:
            return False
        pieces = (set(self.space.machine.words_of(raw)) for raw in self._heads())
        found = sorted({word for words in pieces for word in words if self._is_interpreter(word)})
        ended = time.monotonic()
        self._next_search = ended + PATIENCE * (ended - started)
        changed = found != self._interpreters
        self._interpreters = found
        return changed

    def _heads(self) -> Iterator[bytes]:
        """Yield the memory that contains the list of interpreters: ``_PyRuntime``, or up to 3.6 all data of the
        module."""
        runtime = self._module.symbol("_PyRuntime")
        if runtime is not None:
            yield self.space.read_available(runtime, RUNTIME_HEAD)
            return
        for _address, raw in windows(self.space, self._module):
            yield raw

    def _is_interpreter(self, word: int) -> bool:
        """Return whether an interpreter is at the address ``word``: its first thread state points back to it."""
        if word <= LOWEST_ADDRESS or word % WORD:
            return False
        try:
            state = self.space.word(word + self._release["interp_tstates"])
            leads = state > LOWEST_ADDRESS and state % WORD == 0
            return leads and self.space.word(state + self._release["ts_interp"]) == word
        except (Fault, OverflowError):
            return False


def _closed(groups: list[list[RawFrame]]) -> tuple[tuple[RawFrame, ...], ...]:
    """Return the groups as tuples, without the last group if it is empty."""
    return tuple(tuple(group) for group in (groups if groups[-1] else groups[:-1]))
