"""Find the interpreters and threads of a Python process without symbols, and read the frames that run.

A thread state has its thread's pthread_t, which is the thread pointer that the kernel knows. The thread state points to
its interpreter, which points back. Interpreters are found by pointers in the library's data, where the runtime keeps
them.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice

from gdbheap._native import Space, find_led_back, words_at
from gdbheap.contents.python.objects.reading import Allowance, Lookups, dict_items, dict_lookup, read_name
from gdbheap.contents.python.running.line_tables import line_of
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault
from gdbheap.layout.cpython import (
    FLAG_DICT,
    FLAG_TUPLE,
    FLAG_TYPE,
    MODULE_DICT,
    OB_SIZE,
    OB_TYPE,
    TP_BASICSIZE,
    TP_FLAGS,
    TP_ITEMSIZE,
    TP_NAME,
    Release,
)
from gdbheap.layout.debug_offsets import windows
from gdbheap.machines.machine import LOWEST_ADDRESS
from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.ranges import Ranges
from gdbheap.targets.target import Target, Thread
from gdbheap.targets.thread_identities import ThreadIdentities

MAX_THREADS = 1 << 14
MAX_LOCALS = 4 << 10
# UNCOUNTED_WORDS: the most words of a frame's stack that may have values, if their number is unknown. FIRST_VALUES: the
# most of these words that may be iterators. Handwritten code has few iterators on a stack.
UNCOUNTED_WORDS, FIRST_VALUES = 32, 8
# Suffixes of the names of iterator types.
ITERATORS = (b"iterator", b"iter", b"generator", b"enumerate", b"zip", b"map", b"filter", b"reversed", b"islice")
LONGEST_TABLE = 1 << 20
LONGEST_NAME = 200
# The most entries that are read to find the two modules that every interpreter has.
#
# They are the oldest entries, but dicts of Python 2 have no order.
MAX_MODULES = 1 << 14
# The most keys of dicts that are read to find the modules of all interpreters.
#
# WORDS_AS_KEY words of an interpreter count as one key, and a test whether an object is a module counts as MODULE_COST
# keys.
ALL_KEYS, WORDS_AS_KEY, MODULE_COST = 1 << 17, 32, 64
ALWAYS_THERE = ("sys", "builtins", "__builtin__")
# A limit for sizeof(PyDictObject): it is 48 bytes, in Python 2 248 bytes with a small table, and more with the links of
# Py_TRACE_REFS.
LARGEST_DICT = 512
INTERPRETER_BYTES = 16 << 10
# The limits for the frames of all threads together.
ALL_FRAMES, ALL_LOCALS = 1 << 18, 1 << 20
# The limits for all code objects together: names of variables, and bytes of line tables.
ALL_NAMES, ALL_LINES = 1 << 20, 64 << 20
REMEMBERED = 1 << 16
# The most pieces of the library's data whose words are cached. Data with fewer pieces is read only once.
FEW = 4
# The value for a C shim in enum _frameowner; smaller values are a thread, a generator and a frame object.
OWNED_BY_C = 3


@dataclass(frozen=True)
class Local:
    """A local variable, or a value on the frame's stack (``name`` is None).

    ``place``: the address of the word that refers to the object. ``value``: the object's address."""

    name: str | None
    place: int
    value: int


@dataclass(frozen=True)
class PythonFrame:
    """A running frame.

    ``object``: whether the frame is a Python object (up to 3.10).
    ``references``: the objects to which it refers besides its locals.
    ``entry``: whether C code called it. Since 3.11, one call of the interpreter's loop runs it and the frames that it
    called from Python.
    ``uncounted``: where values may lie on its stack while it runs. Their number is then only in a register. In this
    case ``locals`` has only the values that are proven.
    """

    address: int
    code: int
    function: str
    file: str
    line: int | None
    locals: list[Local]
    references: list[int]
    object: bool
    entry: bool = False
    uncounted: tuple[int, int] | None = None

    @property
    def title(self) -> str:
        """The frame as text, such as ``load() at app.py:41``."""
        line = "" if self.line is None else f":{self.line}"
        return f"{self.function}() at {self.file.rsplit('/', 1)[-1]}{line}"


@dataclass(frozen=True)
class Position:
    """The position of a frame: its code object, the function's name, its file, and the line (None if it has none)."""

    code: int
    function: str
    file: str
    line: int | None


@dataclass(frozen=True)
class ThreadState:
    """A PyThreadState.

    ``thread``: its thread, None if that has ended.
    ``frames``: its frames, innermost first.
    """

    address: int
    interpreter: int
    thread: Thread | None
    frames: list[PythonFrame]


class ThreadStates:
    """The thread states of one target. ``is_cut``: the target has more frames than were read."""

    def __init__(self, target: Target, module: LoadedObject, release: Release) -> None:
        self._target = target
        self._space = target.space
        self._lookups = Lookups()
        self._release = release
        self._threads = ThreadIdentities(target)
        self._codes: dict[int, _Code | None] = {}
        self._names_left, self._lines_left = ALL_NAMES, ALL_LINES
        self._seen: set[int] = set()
        self.is_cut = False
        self._locals_left = ALL_LOCALS
        self._modules: dict[int, bool] = {}
        self._modules_at: int | None = None
        self._keys = Allowance(ALL_KEYS)
        self.interpreters = self._find_interpreters(module)
        self.states = [state for address in self.interpreters for state in self._states(address)]

    @property
    def uncounted(self) -> Ranges:
        """The parts of running frames' stacks where an unknown number of values may lie. Words there may be stale."""
        return [frame.uncounted for state in self.states for frame in state.frames if frame.uncounted is not None]

    def modules(self) -> list[tuple[int, int]]:
        """Return (number of the interpreter, address of its ``sys.modules``) for each interpreter; the main one, 0,
        comes first."""
        numbers = self._numbers()
        found = ((numbers[interpreter], self._modules_of(interpreter)) for interpreter in self.interpreters)
        return sorted((number, address) for number, address in found if address is not None)

    def _numbers(self) -> dict[int, int]:
        """Return {address of the interpreter: number}.

        Interpreters form a list, the newest first, whose links have the same offset in each of them. An interpreter's
        id follows its link. Up to 3.6 there are no ids, so the interpreters are counted from the end of the list."""
        heads = {
            one: self._words(one, self._release["interp_tstates"] + self._space.machine.word)
            for one in self.interpreters
        }
        for place in range(min(map(len, heads.values()), default=0) - 2):
            chain = _chain({one: words[place] for one, words in heads.items()})
            if not chain or len(chain) != len(heads):
                continue
            for behind in (1, 2):
                ids = [heads[one][place + behind] for one in chain]
                if ids[-1] == 0 and all(first > second for first, second in zip(ids, ids[1:])) and ids[0] < MAX_THREADS:
                    return dict(zip(chain, ids))
            return {one: number for number, one in enumerate(reversed(chain))}
        return {one: number for number, one in enumerate(self.interpreters)}

    def _words(self, address: int, size: int) -> tuple[int, ...]:
        return self._space.machine.words_of(self._space.read_available(address, size))

    def _may_be(self, word: int) -> bool:
        """Return whether ``word`` may be the address of a structure: it is aligned and not too low."""
        return word > LOWEST_ADDRESS and word % self._space.machine.word == 0

    def _find_interpreters(self, module: LoadedObject) -> list[int]:
        """Return the interpreters, including those without a thread.

        The search follows pointers in the library's data and in interpreters. An interpreter without a thread is
        recognised by its ``sys.modules``, whose offset is the same as in interpreters with a thread.
        """
        # Most words of the library's data point to the library's own code and constants, which lie before its data.
        apart = module.base, min((start for start, _end in module.writable_ranges()), default=module.base)
        pieces = self._data_of(module)
        few = list(islice(pieces, FEW))
        found = {
            word for raw in chain(few, pieces) for word in self._led_back_to(raw, apart) if self._is_interpreter(word)
        }
        places = {place for one in found if (place := self._modules_place(one)) is not None}
        if len(places) != 1:
            return sorted(found)
        (place,) = places
        modules = {self._space.word(one + place) for one in found}
        waiting = deque(sorted(found))
        again = few if len(few) < FEW else self._data_of(module)
        for raw in chain(again, self._links(waiting)):
            # No two interpreters share their modules.
            likely = (word for word in self._led_back_to(raw, apart, place) if word not in found)
            more = [word for word in likely if self._has_modules(word, place, modules)]
            found.update(more)
            waiting += more
            if len(found) >= MAX_THREADS:
                break
        return sorted(found)

    def _data_of(self, module: LoadedObject) -> Iterator[bytes]:
        """Yield the data of a library in parts of limited size, because it may be large."""
        return (raw for _address, raw in windows(self._space, module))

    def _led_back_to(self, raw: bytes, apart: tuple[int, int], place: int | None = None) -> list[int]:
        """Return the words of ``raw``, ascending, that may be addresses of interpreters. Addresses in ``apart`` are
        left out.

        The first thread state of an interpreter points back to it. If ``place`` is given, also return addresses without
        a thread state at which the offset ``place`` contains a plausible address.
        """
        first, back = self._release["interp_tstates"], self._release["ts_interp"]
        return find_led_back(self._space, raw, LOWEST_ADDRESS, apart, first, back, place)

    def _links(self, waiting: deque[int]) -> Iterator[bytes]:
        """Yield the first bytes of each interpreter in ``waiting``, until it is empty."""
        while waiting:
            yield self._space.read_available(waiting.popleft(), self._release["interp_tstates"])

    def _has_modules(self, interpreter: int, place: int, known: set[int]) -> bool:
        """Return whether an interpreter has a ``sys.modules`` that is not in ``known`` at the offset ``place``.

        If so, the address of that ``sys.modules`` is added to ``known``. If the interpreter has thread states, the
        first of them must point back to the interpreter."""
        if not self._may_be(interpreter):
            return False
        try:
            state = self._space.word(interpreter + self._release["interp_tstates"])
            leads_back = not state or self._space.word(state + self._release["ts_interp"]) == interpreter
            modules = self._space.word(interpreter + place)
            if not leads_back or modules in known or not self._is_modules(modules) or not self._is_own(modules):
                return False
        except (Fault, OverflowError):
            return False
        known.add(modules)
        return True

    def _is_interpreter(self, address: int) -> bool:
        try:
            state = self._space.word(address + self._release["interp_tstates"])
            return state > LOWEST_ADDRESS and any(
                self._threads.find(self._space.word(place + self._release["thread_id"])) is not None
                for place in self._list(state, address)
            )
        except (Fault, OverflowError):
            return False

    def _list(self, state: int, interpreter: int) -> Iterator[int]:
        """Yield the addresses of an interpreter's thread states, beginning with ``state``. Raises Fault."""
        seen: set[int] = set()
        while state and state not in seen and len(seen) < MAX_THREADS:
            if self._space.word(state + self._release["ts_interp"]) != interpreter:
                return
            seen.add(state)
            yield state
            state = self._space.word(state + self._release["ts_next"])

    def _states(self, interpreter: int) -> Iterator[ThreadState]:
        try:
            for address in self._list(self._space.word(interpreter + self._release["interp_tstates"]), interpreter):
                thread = self._threads.find(self._space.word(address + self._release["thread_id"]))
                yield ThreadState(address, interpreter, thread, list(self._frames(address)))
        except (Fault, OverflowError):
            return

    def _modules_of(self, interpreter: int) -> int | None:
        """Return the address of an interpreter's ``sys.modules``; None if it is not found."""
        place = self._modules_place(interpreter)
        return None if place is None else self._space.word(interpreter + place)

    def _modules_place(self, interpreter: int) -> int | None:
        """Return the offset of ``sys.modules`` in an interpreter; None if it is not found. The offset in another
        interpreter is tried first, then all fields in order.
        """
        if self._modules_at is not None:
            (word,) = words_at(self._space, [interpreter + self._modules_at])
            if word is not None and self._may_be(word) and self._is_modules(word):
                return self._modules_at
        if self._keys.left <= 0:
            return None
        words = self._words(interpreter, INTERPRETER_BYTES)
        self._keys.left -= len(words) // WORDS_AS_KEY
        places = (place for place, word in enumerate(words) if self._may_be(word) and self._is_modules(word))
        found = next(places, None)
        if found is None:
            return None
        self._modules_at = found * self._space.machine.word
        return self._modules_at

    def _is_modules(self, address: int) -> bool:
        """Return whether a dict has the modules sys and builtins. Answers are cached, because many words point to the
        same dict."""
        if address not in self._modules:
            if len(self._modules) >= REMEMBERED:
                self._modules.clear()
            self._modules[address] = self._has_both(address)
        return self._modules[address]

    def _has_both(self, address: int) -> bool:
        try:
            if not self._is_dict(address):
                return False
            names = set()
            for key, value in islice(dict_items(self._space, self._release, address, self._keys), MAX_MODULES):
                name = read_name(self._space, self._release, key, 1 + max(map(len, ALWAYS_THERE)))
                if name not in ALWAYS_THERE:
                    continue
                self._keys.take(address, MODULE_COST)
                if self._is_module(value):
                    names.add(name)
                if len(names) == 2:
                    return True
            return False
        except (Fault, OverflowError):
            return False

    def _is_dict(self, address: int) -> bool:
        """Return whether an object is a dict: its type has a dict's flag and size, and is a type itself. Raises Fault.

        The checks are needed because words of a frame may look like an object of a type with any flags."""
        release, space = self._release, self._space
        kind = space.word(address + release.at(OB_TYPE))
        if not space.word(kind + release.at(TP_FLAGS)) & FLAG_DICT or not self._flags(kind) & FLAG_TYPE:
            return False
        size, item = (space.word(kind + release.at(at)) for at in (TP_BASICSIZE, TP_ITEMSIZE))
        return 0 < size <= LARGEST_DICT and item == 0

    def _is_own(self, modules: int) -> bool:
        """Return whether a dict is a real ``sys.modules``: the module sys in it must have this dict as its ``modules``.

        Raises Fault.
        """
        module = dict_lookup(self._space, self._release, modules, "sys", self._lookups)
        names = self._space.word(module + self._release.at(MODULE_DICT)) if module else 0
        return bool(names) and dict_lookup(self._space, self._release, names, "modules", self._lookups) == modules

    def _is_module(self, address: int) -> bool:
        """Return whether an object is a module, by the name of its type. Raises Fault.

        If the name is in no available file, the object must have a dict with ``__name__``."""
        name = self._type_name(address)
        if name is not None:
            return name == b"module"
        held = self._space.word(address + self._release.at(MODULE_DICT))
        is_dict = self._is_dict(held)
        return is_dict and dict_lookup(self._space, self._release, held, "__name__", self._lookups) is not None

    def _flags(self, address: int) -> int:
        """Return ``tp_flags`` of the type of the object at ``address``. Raises Fault."""
        kind = self._space.word(address + self._release.at(OB_TYPE))
        return self._space.word(kind + self._release.at(TP_FLAGS))

    def _type_name(self, address: int) -> bytes | None:
        """Return the name of the type of the object at ``address``; None if the name is in no available file. Raises
        Fault."""
        kind = self._space.word(address + self._release.at(OB_TYPE))
        place = self._space.word(kind + self._release.at(TP_NAME))
        try:
            return self._space.cstring(place, LONGEST_NAME)
        except Fault:
            return None

    def _frames(self, state: int) -> Iterator[PythonFrame]:
        release, space = self._release, self._space
        last: PythonFrame | None = None
        try:
            at = innermost_frame(space, release, state)
            is_object = release.get("f_previous") is None
            previous = release["f_back" if is_object else "f_previous"]
            # No two threads run the same frame.
            while at and at not in self._seen:
                if not self._has_room():
                    self.is_cut = True
                    break
                self._seen.add(at)
                frame = self.read(at, is_object)
                self._locals_left -= len(frame.locals) if frame is not None else 0
                if last is not None:
                    # Since 3.12 a C shim lies outside of each frame that C code called.
                    yield last if frame is not None else replace(last, entry=True)
                last = frame
                at = space.word(at + previous)
        except (Fault, OverflowError):
            pass
        if last is not None:
            yield replace(last, entry=True)

    def _has_room(self) -> bool:
        """Return whether another frame may be read: the limits of frames and of locals are not reached."""
        return len(self._seen) < ALL_FRAMES and self._locals_left > 0

    def read(self, address: int, is_object: bool) -> PythonFrame | None:
        """Return the frame at ``address``; None for a C shim, or if the frame has no code object. Raises Fault.

        ``is_object``: the frame is a Python object (up to 3.10).
        """
        release, space = self._release, self._space
        clean = ~(release.get("f_tags") or 0)
        owner = release.get("f_owner")
        if owner is not None and space.read(address + owner, 1)[0] >= OWNED_BY_C:
            return None
        code = self.code(space.word(address + release["f_code"]) & clean)
        if code is None:
            return None
        fields = [space.word(address + offset) & clean for offset in release.offsets("f_fields")]
        top = address + release["f_locals"] + space.machine.word * len(code.variables)
        above = self._stack_count(address, len(code.variables))
        values = self._iterators(top, clean) if above is None else self._objects(top, above, clean)
        locals_ = [*self._variables(top, code, clean), *(Local(None, place, value) for place, value in values)]
        uncounted = (top, top + space.machine.word * UNCOUNTED_WORDS) if above is None else None
        line = self._line(address, code)
        said = release.get("f_is_entry")
        entry = is_object or said is not None and space.read(address + said, 1)[0] == 1
        held = [word for word in fields if word]
        return PythonFrame(
            address, code.address, code.name, code.file, line, locals_, held, is_object, entry, uncounted
        )

    def position(self, address: int) -> Position | None:
        """Return the position of the frame at ``address``, without its variables; None if it has no code object.

        Raises Fault.
        """
        code = self.code(self._space.word(address + self._release["f_code"]) & ~(self._release.get("f_tags") or 0))
        return None if code is None else Position(code.address, code.name, code.file, self._line(address, code))

    def _objects(self, start: int, count: int, clean: int) -> Iterator[tuple[int, int]]:
        """Yield (address of the word, address of the object) for each word that is not 0. Raises Fault.

        ``count`` words are read at the address ``start``. ``clean``: a mask that removes the tag bits of a word.
        """
        machine = self._space.machine
        for index, value in enumerate(machine.words_of(self._space.read(start, machine.word * count))):
            if value & clean:
                yield start + machine.word * index, value & clean

    def _variables(self, end: int, code: _Code, clean: int) -> Iterator[Local]:
        """Yield the variables that have a value. They lie right before ``end``, where the frame's stack begins. Raises
        Fault.

        ``clean``: a mask that removes the tag bits of a word.
        """
        word = self._space.machine.word
        start = end - word * len(code.variables)
        for place, value in self._objects(start, len(code.variables), clean):
            yield Local(code.variables[(place - start) // word], place, value)

    def _iterators(self, start: int, clean: int) -> Iterator[tuple[int, int]]:
        """Yield (address of the word, address of the object) for the iterators of a frame's loops. They lie at the
        start of its stack.

        The words after the iterators may be stale.
        """
        word = self._space.machine.word
        for place in range(start, start + word * FIRST_VALUES, word):
            try:
                value = self._space.word(place) & clean
                if not self._may_be(value) or not (self._type_name(value) or b"").endswith(ITERATORS):
                    return
            except (Fault, OverflowError):
                return
            yield place, value

    def _stack_count(self, address: int, count: int) -> int | None:
        """Return how many values are on the stack of a frame with ``count`` variables.

        Return None if this number is unknown, as in the frame that runs at the moment."""
        release, space = self._release, self._space
        at = address + release["f_top"]
        if release["f_top_is_pointer"]:
            top = space.word(at)
            found = (top - address - release["f_locals"]) // space.machine.word - count if top else -1
        else:
            (top,) = struct.unpack("<i", space.read(at, 4))
            found = top if release.get("f_stack") else top - count
        return int(found) if 0 <= found < MAX_LOCALS else None

    def _line(self, address: int, code: _Code) -> int | None:
        release, space = self._release, self._space
        try:
            where = release.get("f_instruction")
            if where is None:
                (last,) = struct.unpack("<i", space.read(address + release["f_lasti"], 4))
                offset = last * release["f_lasti_unit"]
            else:
                offset = space.word(address + where) - self._first_instruction(address, code)
            return line_of(release, code.table, code.first_line, offset)
        except (Fault, IndexError, OverflowError):
            return None

    def _first_instruction(self, address: int, code: _Code) -> int:
        """Return the address of the first instruction of the code that the frame at ``address`` runs. Raises Fault."""
        number = self._release.get("f_code_copy")
        copy = None if number is None else self._space.u32(address + number)
        return first_instruction(self._space, self._release, code.address, copy)

    def code(self, address: int) -> _Code | None:
        """Return the code object at ``address``; None if it cannot be read. Each address is read once."""
        if address not in self._codes:
            try:
                self._codes[address] = self._read_code(address)
            except (Fault, OverflowError):
                self._codes[address] = None
        return self._codes[address]

    def _read_code(self, address: int) -> _Code | None:
        release, space = self._release, self._space
        kind = self._type_name(address)
        name, file = (
            read_name(space, release, space.word(address + release[field]), LONGEST_NAME)
            for field in ("co_name", "co_filename")
        )
        if kind != b"code" if kind is not None else name is None or file is None:
            return None
        fields = ("co_localsplusnames",) if release.get("co_localsplusnames") else (
            "co_varnames", "co_cellvars", "co_freevars")  # fmt: skip
        variables = [variable for field in fields for variable in self._names(space.word(address + release[field]))]
        linetable = release.get("co_linetable") or release["co_lnotab"]
        table = space.word(address + linetable)
        size = min(space.word(table + release.at(OB_SIZE)), LONGEST_TABLE, self._lines_left)
        self._lines_left -= size
        raw = space.read(table + release["bytes_data"], size)
        return _Code(address, name or "?", file or "?", space.u32(address + release["co_firstlineno"]), variables, raw)

    def _names(self, address: int) -> list[str]:
        space = self._space
        if not self._flags(address) & FLAG_TUPLE:
            return []
        count = min(space.word(address + self._release.at(OB_SIZE)), MAX_LOCALS, self._names_left)
        self._names_left -= count
        raw = space.read(address + self._release["tuple_items"], space.machine.word * count)
        return [read_name(space, self._release, name, LONGEST_NAME) or "?" for name in space.machine.words_of(raw)]


def innermost_frame(space: Space, release: Release, state: int) -> int:
    """Return the address of the innermost frame of a thread state; 0 if it has none. Raises Fault."""
    chain = release.get("ts_cframe")
    if chain is not None:
        return space.word(space.word(state + chain) + release["cf_frame"])
    return space.word(state + release["ts_frame"])


def first_instruction(space: Space, release: Release, code: int, copy: int | None) -> int:
    """Return the address of the first instruction of the code object at ``code``. Raises Fault.

    ``copy``: the number of the copy of the instructions that the frame runs; None in builds without copies. Since 3.14
    each thread of a free-threaded build has its own copy (_PyCodeArray: size, then a pointer for each copy).
    """
    if copy is None:
        return code + release["co_code"]
    return space.word(space.word(code + release["co_copies"]) + space.machine.word * (1 + copy))


def _chain(links: dict[int, int]) -> list[int]:
    """Return the keys in the order of their links, from the key without a predecessor to the key whose link is 0.

    Empty if the links do not form a chain.
    """
    firsts = set(links) - set(links.values())
    if len(firsts) != 1:
        return []
    (at,) = firsts
    chain: list[int] = []
    while at in links and len(chain) < len(links):
        chain.append(at)
        at = links[at]
    return chain if at == 0 else []


@dataclass(frozen=True)
class _Code:
    address: int
    name: str
    file: str
    first_line: int
    variables: list[str]
    table: bytes
