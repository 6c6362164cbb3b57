"""Let a command run until Ctrl-C comes, and then let it answer. Ctrl-C is not an error for such a command."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["until_told"]

ENDING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def until_told() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether Ctrl-C or SIGTERM came inside the block.

    The first signal does not interrupt the block. A second signal has its usual effect. Inside gdb, which handles
    signals itself, the function always returns False.
    """
    told = threading.Event()
    if not _is_ours():
        yield told.is_set
        return
    before = {number: signal.getsignal(number) for number in ENDING}

    def note(_number: int, _frame: FrameType | None) -> None:
        told.set()
        restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in ENDING:
        # A signal that is ignored, as in a shell's background job, stays ignored.
        if before[number] is not signal.SIG_IGN:
            signal.signal(number, note)
    try:
        yield told.is_set
    finally:
        restore()


def _is_ours() -> bool:
    """Return whether Python handles the signals. If a debugger embeds Python, the debugger handles them."""
    main = threading.current_thread() is threading.main_thread()
    return main and None not in map(signal.getsignal, ENDING)
