"""During a long walk, show one line of progress on standard error, if that is a terminal. The line is erased at the
end."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from gdbheap.errors import one_line
from gdbheap.report.text.style import terminal_text

if TYPE_CHECKING:
    from gdbheap.heap import Heap

__all__ = ["Progress", "shown", "shown_for", "tell", "tell_aside", "tell_folder"]

QUIET_SECONDS = 1.0
EVERY_SECONDS = 0.1
ERASE = b"\r\033[K"


class Progress:
    """Shows progress when it is called with (label, done, total). It shows nothing in the first second, and then a new
    line at most ten times a second."""

    def __init__(self, file: int = 2) -> None:
        self.file = file
        self.next = time.monotonic() + QUIET_SECONDS
        self.shown = False

    def __call__(self, label: str, done: int, total: int) -> None:
        """Show the progress of ``label``: ``done`` of ``total``, in any unit."""
        if time.monotonic() < self.next:
            return
        self.next = time.monotonic() + EVERY_SECONDS
        share = f" {100 * done // total} %" if total > 0 else ""
        self._write(ERASE + terminal_text(f"gdbheap: {label}{share}", "ascii").encode("ascii"))
        self.shown = True

    def erase(self) -> None:
        """Erase the line of progress, if one is shown."""
        if self.shown:
            self._write(ERASE)
        self.shown = False

    def _write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(self.file, data)


def tell(what: str, anyway: bool = False) -> None:
    """Print one line on standard error, if it is a terminal. If ``anyway`` is true, print it even if standard error is
    not a terminal.
    """
    if sys.stderr is not None and (anyway or sys.stderr.isatty()):
        print(terminal_text(f"gdbheap: {what}", sys.stderr.encoding), file=sys.stderr, flush=True)


def tell_aside(what: str, anyway: bool = False) -> None:
    """Print one line like ``tell``, without waiting for it. A terminal that takes no output (Ctrl-S) makes its writers
    wait, and a process that is followed needs answers meanwhile."""
    if sys.stderr is None or not (anyway or sys.stderr.isatty()):
        return
    # Imported on use: imports take most of a command's start-up time.
    import threading

    line = terminal_text(f"gdbheap: {what}\n", sys.stderr.encoding).encode(sys.stderr.encoding, "backslashreplace")
    # Python cannot end while a thread waits inside of sys.stderr, so the line is written without it.
    threading.Thread(target=os.write, args=(sys.stderr.fileno(), line), daemon=True).start()


def tell_folder() -> None:
    """If root runs gdbheap, print that files are written to the current folder, because a user may overlook that."""
    if os.geteuid() == 0:
        tell(f"files are written to {one_line(os.getcwd())}", anyway=True)


@contextlib.contextmanager
def shown(label: str) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a function to be called with (done, total); None if standard error is not a terminal."""
    if not os.isatty(2):
        yield None
        return
    progress = Progress()
    try:
        yield partial(progress, label)
    finally:
        progress.erase()


@contextlib.contextmanager
def shown_for(heap: Heap) -> Iterator[None]:
    """Show the progress of the heap's walks inside the block, if standard error is a terminal."""
    if not os.isatty(2):
        yield
        return
    progress = Progress()
    heap.progress = progress
    try:
        yield
    finally:
        heap.progress = None
        progress.erase()
