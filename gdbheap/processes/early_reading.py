"""Reading all processes while the rest of gdbheap is imported: either takes as long as the other, and the kernel's walk
needs no Python. Nothing is imported here that takes long."""

from __future__ import annotations

import _thread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gdbheap._native import ProcessAccount

__all__ = ["begin", "end", "take"]

PROC = "/proc"
_begun: list[_Reading] = []


class _Reading:
    """What a thread of its own reads; ``rows`` is None where that failed, and is to be tried again."""

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
        """What was read, once that is done."""
        while not self._done.acquire(timeout=0.1):
            pass
        return self.rows


def begin() -> None:
    """Begin to read; whoever needs it takes it later."""
    _begun.append(_Reading())


def end() -> None:
    """Wait for what nobody took: an interpreter that ends while a thread is in native code is aborted (before 3.14 it
    ends such a thread where it asks for the GIL, by unwinding frames that cannot be unwound)."""
    take()


def take() -> list[ProcessAccount] | None:
    """What was begun to be read, once; None where nothing was."""
    return _begun.pop().wait() if _begun else None
