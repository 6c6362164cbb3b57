"""Write text through gdb, and find out whether it could be written."""

from __future__ import annotations

import locale
import select

import gdb

from gdbheap.report.text.style import terminal_text

__all__ = ["charset", "output_failed", "write"]


def write(text: str, stream: int = gdb.STDOUT) -> None:
    """Write lines through gdb, after terminal_text() has converted them."""
    gdb.write(terminal_text(text, charset()), stream)


def charset() -> str:
    """Return the encoding to which gdb converts text. gdb 12 and later have gdb.host_charset()."""
    known = getattr(gdb, "host_charset", None)
    return known() if known else locale.getpreferredencoding(False)


def output_failed() -> bool:
    """Return whether a write to gdb's standard output has failed, which gdb itself ignores. Return False if this is
    unknown."""
    try:
        import ctypes

        library = ctypes.CDLL(None)
        failed = bool(library.ferror(ctypes.c_void_p.in_dll(library, "stdout")))
        return failed and not _pipe_is_closed()
    except (ImportError, OSError, ValueError, AttributeError):
        return False


def _pipe_is_closed() -> bool:
    """Return whether standard output is a pipe that nobody reads any more (``| head``). A closed pipe is
    not an error.
    """
    poll = select.poll()
    poll.register(1, 0)
    return any(state & select.POLLERR for _, state in poll.poll(0))
