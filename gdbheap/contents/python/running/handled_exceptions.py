"""Find the exceptions that threads are handling.

During an ``except`` block only the thread state may refer to the exception. A thread state has an item
(``_PyErr_StackItem``); each running generator or coroutine has another, which points to the item before. In 3.6 the
thread state has one exception, and frames have the exceptions that it replaced; in 2.7 ``sys`` has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from gdbheap._native import Space
from gdbheap.contents.python.running.threads import PythonFrame, ThreadState
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault
from gdbheap.layout.cpython import FLAG_EXCEPTION, OB_TYPE, TP_FLAGS, Release

__all__ = ["HandledException", "handled_exceptions", "handled_by"]

# The most items that are read, of all threads together.
ALL_ITEMS = 1 << 18
# A limit for sizeof(PyThreadState), which contains the last item.
STATE_BYTES = 2 << 10
TB_FRAME, FRAME_FRAME = 24, 24


@dataclass(frozen=True)
class HandledException:
    """An exception that is being handled. ``frame``: the frame that handles it, None if its traceback does not show
    it."""

    address: int
    frame: PythonFrame | None

    @property
    def name(self) -> str:
        """The exception as text, such as ``the exception that load() handles at app.py:41``."""
        return handled_by("" if self.frame is None else self.frame.title)


def handled_by(title: str) -> str:
    """Return a description of the exception that a frame handles.

    ``title``: the title of the frame, such as ``load() at app.py:41``; "" for an unknown frame."""
    function, _at, place = title.rpartition(" at ")
    return f"the exception that {function} handles at {place}" if title else "an exception that is being handled"


def handled_exceptions(space: Space, release: Release, states: Iterable[ThreadState]) -> Iterator[HandledException]:
    """Yield the exceptions that each thread handles, the innermost first.

    They are in the thread's chain of items (``_PyErr_StackItem``). A thread whose chain is invalid has none.
    """
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
    """Return the exceptions in a thread's items (``_PyErr_StackItem``), the innermost first; 0 in an unused item.

    The chain must end with the thread's own item, otherwise the list is empty. No two threads share an item, so an item
    in ``seen`` ends the chain. Raises Fault.
    """
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
    """Return the frame at which an exception's traceback begins; 0 without a traceback. Raises Fault.

    It is the last frame that the exception reached.
    """
    traceback = space.word(exception + release["exc_traceback"])
    frame = space.word(traceback + release.at(TB_FRAME)) if traceback else 0
    if not frame or release.get("frame_data") is None:
        return frame
    return space.word(frame + release.at(FRAME_FRAME))
