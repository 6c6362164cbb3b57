"""What is written through gdb, and whether it arrived."""

from __future__ import annotations

import locale
import select

import gdb

from gdbheap.report.text.style import terminal_text

__all__ = ["charset", "output_failed", "write"]


def write(text: str, stream: int = gdb.STDOUT) -> None:
    """Write lines through gdb, as a terminal may get them."""
    gdb.write(terminal_text(text, charset()), stream)


def charset() -> str:
    """What gdb turns our text into. gdb.hostcharset() is in gdb 12 and later."""
    known = getattr(gdb, "host_charset", None)
    return known() if known else locale.getpreferredencoding(False)


def output_failed() -> bool:
    """Whether a write to the C stream behind gdb's standard output failed, which gdb ignores. False if unknown."""
    try:
        import ctypes

        library = ctypes.CDLL(None)
        failed = bool(library.ferror(ctypes.c_void_p.in_dll(library, "stdout")))
        return failed and not _pipe_is_closed()
    except (ImportError, OSError, ValueError, AttributeError):
        return False


def _pipe_is_closed() -> bool:
    """Whether standard output is a pipe that nobody reads any more (``| head``): that is no failure."""
    poll = select.poll()
    poll.register(1, 0)
    return any(state & select.POLLERR for _, state in poll.poll(0))
