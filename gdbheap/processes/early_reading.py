"""Read the memory figures of all processes while the rest of gdbheap is imported.

The read takes about as long as the imports, and needs no Python code meanwhile. This module imports only modules that
load quickly.
"""

from __future__ import annotations

import _thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gdbheap._native import ProcessAccount

__all__ = ["begin", "end", "take"]

PROC = "/proc"
_begun: list[_EarlyReader] = []


class _EarlyReader:
    """A read of all processes in its own thread. ``rows``: None if the read failed; the caller must then read again."""

    def __init__(self) -> None:
        self.rows: list[ProcessAccount] | None = None
        self._done = _thread.allocate_lock()
        self._done.acquire()
        _thread.start_new_thread(self._read, ())

    def _read(self) -> None:
        try:
            from gdbheap._native import process_accounts

            self.rows = process_accounts(PROC)
        except Exception:
            self.rows = None
        finally:
            self._done.release()

    def wait(self) -> list[ProcessAccount] | None:
        """Wait until the read has ended, and return its rows; None if it failed. Ctrl-C can interrupt the wait."""
        while not self._done.acquire(timeout=0.1):
            pass
        return self.rows


def begin() -> None:
    """Start reading in the background; ``take`` fetches the result."""
    _begun.append(_EarlyReader())


def end() -> None:
    """Wait for a read whose rows were not taken.

    Without this wait, the process is aborted if the interpreter ends while a thread is in native code. Before 3.14 the
    interpreter ends such a thread by unwinding its stack, which fails for native frames.
    """
    take()


def take() -> list[ProcessAccount] | None:
    """Return the rows that were read in the background. Return None if no read was started, if it failed, or at a
    second call.
    """
    return _begun.pop().wait() if _begun else None
