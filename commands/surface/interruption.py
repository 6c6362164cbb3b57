"""Commands that go on until they are told to end, and then answer: Ctrl-C is no error of theirs."""

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
    """Whether Ctrl-C or SIGTERM came since the block began, which breaks into nothing there; a second one is as
    outside. Inside gdb, which has its own ways, never."""
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
        # Ignored, as of what a shell runs in the background: that stays so.
        if before[number] is not signal.SIG_IGN:
            signal.signal(number, note)
    try:
        yield told.is_set
    finally:
        restore()


def _is_ours() -> bool:
    """Whether Python has the signals: a debugger that embeds it leaves it none."""
    main = threading.current_thread() is threading.main_thread()
    return main and None not in map(signal.getsignal, ENDING)
