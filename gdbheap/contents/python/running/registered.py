"""Find functions that a program registered with the interpreter. The interpreter keeps a registered function alive,
even if no variable refers to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import field

from gdbheap._native import Space
from gdbheap.contents.python.running.threads import ThreadState
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault
from gdbheap.layout.cpython import FLAG_DICT, FLAG_LIST, OB_TYPE, TP_FLAGS, Release

__all__ = ["Registered", "registered_by_thread", "registered_with"]

Registered = tuple[str, "list[int]"]
"""A description of registered functions, and the addresses of the functions or of the objects that hold them."""

# c_traceobj follows c_profileobj.
OF_THREADS = "sys.setprofile()", "sys.settrace()"
FORKERS = "before", "after_in_parent", "after_in_child"
# The most callbacks of atexit that are read, for all interpreters together.
ALL_CALLBACKS = 1 << 14
# atexit_py_callback: the function, its arguments, and its keyword arguments.
CALLBACK_WORDS = 3


def registered_by_thread(space: Space, release: Release, state: ThreadState) -> Iterator[Registered]:
    """Yield the functions that a thread calls for each event (sys.setprofile(), sys.settrace())."""
    place = release.get("ts_profile")
    if place is None:
        return
    for number, call in enumerate(OF_THREADS):
        with suppress(Fault, OverflowError):
            function = space.word(state.address + place + number * space.machine.word)
            if function:
                yield f"the function of {call}", [function]


def registered_with(space: Space, release: Release, interpreters: Iterable[int]) -> Iterator[Registered]:
    """Yield the functions that are registered with each of the interpreters."""
    left = _CallbackBudget()
    for interpreter in interpreters:
        with suppress(Fault, OverflowError):
            yield from _registered(_Source(space, release, interpreter, left))


@dataclass
class _CallbackBudget:
    """The number of callbacks that may still be read."""

    callbacks: int = field(default_factory=lambda: ALL_CALLBACKS)


@dataclass(frozen=True)
class _Source:
    space: Space
    release: Release
    interpreter: int
    left: _CallbackBudget


def _word(source: _Source, name: str, number: int = 0) -> int:
    """Return the word ``number`` words after the start of an interpreter's field; 0 if the release has no such field.

    Raises Fault.
    """
    space, place = source.space, source.release.get(name)
    return 0 if place is None else space.word(source.interpreter + place + number * space.machine.word)


def _if_type(source: _Source, address: int, flag: int) -> list[int]:
    """Return a list with the object at ``address``; an empty list if its type lacks the flag. Raises Fault."""
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
