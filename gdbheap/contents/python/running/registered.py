"""Find functions that a program registered with the interpreter. The interpreter keeps a registered function alive,
even if no variable refers to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import field
from itertools import islice
from signal import Signals

from gdbheap import _native
from gdbheap._native import Space
from gdbheap.contents.python.running.threads import ThreadState
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault
from gdbheap.layout.cpython import FLAG_DICT, FLAG_LIST, OB_TYPE, TP_FLAGS, Release
from gdbheap.machines.machine import LOWEST_ADDRESS
from gdbheap.targets.ranges import WordTest, backed_pieces

__all__ = ["Registered", "registered_by_thread", "registered_with", "signal_handlers"]

Registered = tuple[str, "list[int]"]
"""A kind of registered functions as text, and the addresses of the functions or of the objects that hold them."""

# c_traceobj follows c_profileobj.
OF_THREADS = "sys.setprofile()", "sys.settrace()"
FORKERS = "before", "after_in_parent", "after_in_child"
# The most callbacks of atexit that are read, for all interpreters together.
ALL_CALLBACKS = 1 << 14
# Py_NSIG on Linux, and the two signals that glibc and musl reserve for threads.
SIGNALS, UNSETTABLE = 65, (32, 33)
# The mask of the int that says whether a signal is pending. The most places that are checked for the table.
PENDING, MAX_ALIKE = 0xFFFFFFFF, 1000
WINDOW = 1 << 20
# atexit_py_callback: the function, its arguments, and its keyword arguments.
CALLBACK_WORDS = 3


def registered_by_thread(space: Space, release: Release, state: ThreadState) -> Iterator[Registered]:
    """Yield the functions that a thread calls for each event: those of sys.setprofile() and sys.settrace()."""
    place = release.get("ts_profile")
    if place is None:
        return
    for number, call in enumerate(OF_THREADS):
        with suppress(Fault, OverflowError):
            function = space.word(state.address + place + number * space.machine.word)
            if function:
                yield f"the function of {call}", [function]


def signal_handlers(space: Space, release: Release, ranges: Iterable[tuple[int, int]]) -> Iterator[Registered]:
    """Yield the functions that signal.signal() registered, each with the name of its signal.

    ``ranges``: the writable static data of the interpreter. The table is ``Handlers`` in Modules/signalmodule.c, in
    3.11 and later ``_PyRuntime.signals``. It has two words for each signal: whether the signal is pending, and the
    handler. No symbol is needed, because the table's contents are unique.
    """
    every, word = space.machine.address_end - 1, space.machine.word
    pending = [WordTest(2 * number * word, PENDING, 0, 1) for number in range(SIGNALS)]
    handlers = [WordTest((2 * number + 1) * word, every, LOWEST_ADDRESS, every) for number in range(1, SIGNALS)]
    tests = [WordTest(word, every, 0, 0), *handlers, *pending]
    for raw in islice(_alike(space, ranges, tests), MAX_ALIKE):
        found = space.machine.words_of(raw)[1::2]
        first, second = (found[number] for number in UNSETTABLE)
        if first == second and 2 * max(Counter(found).values()) > SIGNALS:
            with suppress(Fault, OverflowError):
                yield from _handlers(space, release, found)
            return


def _alike(space: Space, ranges: Iterable[tuple[int, int]], tests: Sequence[WordTest]) -> Iterator[bytes]:
    """Yield the bytes of each place in the ranges that may be the table of signal handlers.

    ``tests``: tests of its words. Signal 0 has no handler, and every other signal has one. The handler is None for the
    two signals that only the C library uses. Most signals have the same handler, the number that stands for the default
    action.
    """
    size = 2 * SIGNALS * space.machine.word
    for start, end in ranges:
        for _window, raw in backed_pieces(space, start, end, WINDOW, size):
            yield from (raw[at : at + size] for at in _native.find_places(raw, tests))


def _handlers(space: Space, release: Release, handlers: Sequence[int]) -> Iterator[Registered]:
    """Yield the handlers that are functions, with the names of their signals. None and numbers such as SIG_DFL are left
    out. Raises Fault.
    """
    kinds = [space.word(handler + release.at(OB_TYPE)) if handler else 0 for handler in handlers]
    plain = {0, kinds[UNSETTABLE[0]], max(kinds, key=kinds.count)}
    for number, kind in enumerate(kinds):
        if kind not in plain:
            yield f"handler of signal.signal({_signal_name(number)})", [handlers[number]]


def _signal_name(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:
        return str(number)


def registered_with(space: Space, release: Release, interpreters: Iterable[int]) -> Iterator[Registered]:
    """Yield the functions that are registered with each of the interpreters."""
    left = _CallbackBudget()
    for interpreter in interpreters:
        with suppress(Fault, OverflowError):
            yield from _registered(_Source(space, release, interpreter, left))


@dataclass
class _CallbackBudget:
    """The number of callbacks of atexit that may still be read, for all interpreters together."""

    callbacks: int = field(default_factory=lambda: ALL_CALLBACKS)


@dataclass(frozen=True)
class _Source:
    space: Space
    release: Release
    interpreter: int
    left: _CallbackBudget


def _word(source: _Source, name: str, number: int = 0) -> int:
    """Return a word of a field of the interpreter; 0 if the release has no such field. Raises Fault.

    ``number``: how many words after the start of the field it lies.
    """
    space, place = source.space, source.release.get(name)
    return 0 if place is None else space.word(source.interpreter + place + number * space.machine.word)


def _if_type(source: _Source, address: int, flag: int) -> list[int]:
    """Return a list with the object at ``address``. The list is empty if there is no object, or if its type lacks
    ``flag``, such as FLAG_LIST. Raises Fault.
    """
    space, release = source.space, source.release
    kind = space.word(address + release.at(OB_TYPE)) if address else 0
    return [address] if kind and space.word(kind + release.at(TP_FLAGS)) & flag else []


def _registered(source: _Source) -> Iterator[Registered]:
    """Yield the functions that are registered with one interpreter. Raises Fault."""
    # The three words are codec_search_path, codec_search_cache and codec_error_registry.
    kinds = enumerate((FLAG_LIST, FLAG_DICT, FLAG_DICT))
    functions, cache, handlers = (_if_type(source, _word(source, "interp_codecs", at), flag) for at, flag in kinds)
    if not (functions and cache and handlers):
        return
    yield "functions of codecs.register()", functions
    yield "handlers of codecs.register_error()", handlers
    for number, when in enumerate(FORKERS):
        found = _if_type(source, _word(source, "interp_forkers", number), FLAG_LIST)
        yield f"functions of os.register_at_fork({when})", found
    yield "hooks of sys.addaudithook()", _if_type(source, _word(source, "interp_audit_hooks"), FLAG_LIST)
    callbacks = list(_at_exit(source))
    yield "functions of atexit.register()", [function for function, *_arguments in callbacks]
    yield "arguments of atexit.register()", [one for _function, *arguments in callbacks for one in arguments if one]


def _at_exit(source: _Source) -> Iterator[tuple[int, ...]]:
    """Yield (function, arguments, keyword arguments) of each callback of atexit, as addresses of objects. Raises Fault.

    The address of an absent object is 0. The table of callbacks and their number lie in the interpreter, up to 3.9 in
    the state of the module atexit.
    """
    space, word = source.space, source.space.machine.word
    table, count = _word(source, "interp_atexit"), _word(source, "interp_atexit", 1)
    module = _word(source, "interp_atexit_module")
    if module:
        state = space.word(module + source.release["md_state"])
        table, count = (space.word(state), space.word(state + word)) if state else (0, 0)
    count = min(count & 0xFFFFFFFF, source.left.callbacks) if table else 0
    source.left.callbacks -= count
    for number in range(count):
        callback = space.word(table + number * word)
        if callback:
            yield tuple(space.word(callback + place * word) for place in range(CALLBACK_WORDS))
