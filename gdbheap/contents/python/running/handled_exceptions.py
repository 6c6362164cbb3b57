"""Find the exceptions that threads are handling: during an ``except`` block only the thread state points to them.

A thread has an item (``_PyErr_StackItem``) of its own, and each running generator or coroutine has one before it. In
3.6 the thread state has one exception, and the frames have those it replaced; in 2.7 ``sys`` has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from gdbheap._native import Space
from gdbheap.contents.python.running.threads import Frame, ThreadState
from gdbheap.errors import Fault
from gdbheap.layout.cpython import FLAG_EXCEPTION, OB_TYPE, TP_FLAGS, Release

__all__ = ["HandledException", "handled_exceptions", "handled_by"]

# The limit for the items of all threads together; frames are limited too.
ALL_ITEMS = 1 << 18
# sizeof(PyThreadState), with room for more: the last item is a part of it.
STATE_BYTES = 2 << 10
TB_FRAME, FRAME_FRAME = 24, 24


@dataclass(frozen=True)
class HandledException:
    """An exception at ``address``. ``frame``: the frame that handles it, None if its traceback does not show it."""

    address: int
    frame: Frame | None

    @property
    def name(self) -> str:
        """A description, such as ``the exception that load() handles at app.py:41``."""
        return handled_by("" if self.frame is None else self.frame.title)


def handled_by(title: str) -> str:
    """Describe the exception that a frame with this title (``load() at app.py:41``) handles; "" means an unknown
    frame."""
    function, _at, place = title.rpartition(" at ")
    return f"the exception that {function} handles at {place}" if title else "an exception that is handled"


def handled_exceptions(space: Space, release: Release, states: Iterable[ThreadState]) -> Iterator[HandledException]:
    """Yield the exceptions that each thread handles, innermost first; none for a thread whose items are no valid
    chain."""
    seen: set[int] = set()
    for state in states:
        yield from _handled(space, release, state, seen)


def _handled(space: Space, release: Release, state: ThreadState, seen: set[int]) -> Iterator[HandledException]:
    running = {frame.address: frame for frame in state.frames}
    found: list[int] = []
    with suppress(Fault, OverflowError):
        found = _values(space, release, state.address, seen)
    for address in dict.fromkeys(filter(None, found)):
        with suppress(Fault, OverflowError):
            kind = space.word(address + release.at(OB_TYPE))
            if space.word(kind + release.at(TP_FLAGS)) & FLAG_EXCEPTION:
                yield HandledException(address, running.get(_caught_in(space, release, address)))


def _values(space: Space, release: Release, state: int, seen: set[int]) -> list[int]:
    """Return the exceptions of the items, from the innermost to the thread's own; 0 where nothing is handled.

    No two threads share an item: a ``seen`` one ends the chain. Raises Fault."""
    head = release.get("ts_exc_info")
    if head is None:
        only = release.get("ts_exc_value")
        return [] if only is None else [space.word(state + only)]
    item, found = space.word(state + head), list[int]()
    while item not in seen and len(seen) < ALL_ITEMS:
        seen.add(item)
        found.append(space.word(item + release["exc_item_value"]))
        previous = space.word(item + release["exc_item_previous"])
        if not previous:
            # The thread's own item comes last, which proves the chain.
            return found if state <= item < state + STATE_BYTES else []
        item = previous
    return []


def _caught_in(space: Space, release: Release, exception: int) -> int:
    """Return the frame that the exception reached last, where its traceback begins; 0 without a traceback. Raises
    Fault."""
    traceback = space.word(exception + release["exc_traceback"])
    frame = space.word(traceback + release.at(TB_FRAME)) if traceback else 0
    if not frame or release.get("frame_data") is None:
        return frame
    return space.word(frame + release.at(FRAME_FRAME))
