"""What the shell's ``gdbheap`` writes: answers on standard output, one line for what goes wrong on standard error."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["PARTIAL", "complain", "fault", "has_printed", "told", "wants_json", "write"]

PARTIAL = 1
JSON = "--json"
# What follows it are another program's words.
START = "--"
_printed = False


def has_printed() -> bool:
    """Return whether something is on standard output already, after which no document of an error may follow."""
    return _printed


def wants_json(words: Sequence[str]) -> bool:
    """Whether a command line asks for JSON."""
    own = words[: words.index(START)] if START in words else words
    return JSON in own


def told(message: str) -> str:
    """Return a message with its commands as a shell takes them."""
    from gdbheap.text import IN_GDB, IN_SHELL, as_typed

    message = as_typed(message, IN_SHELL)
    return f"{IN_SHELL}{message[len(IN_GDB) :]}" if message.startswith(f"{IN_GDB} ") else message


def complain(message: str, status: int = PARTIAL) -> int:
    """One line on standard error, if there is one. Returns ``status``."""
    from gdbheap.errors import one_line
    from gdbheap.report.text.style import terminal_text

    message = told(message)
    start = "" if message.startswith("gdbheap") else "gdbheap: "
    try:
        sys.stderr.write(terminal_text(f"{start}{one_line(message)}\n", sys.stderr.encoding))
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        pass
    return status


def fault(error: Exception, words: Sequence[str]) -> tuple[str, int]:
    """What to say of an error that ended a command, and its exit status. ``words``: the command line. Raises the error
    itself where it is a fault of ours and GDBHEAP_DEBUG is set; KeyboardInterrupt where a signal led to it."""
    from gdbheap.contents.python.text.disclosure import is_hidden
    from gdbheap.errors import EXHAUSTED, GdbheapError, exhausted

    if isinstance(error, GdbheapError):
        return str(error), error.status
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in EXHAUSTED):
        return str(exhausted(error)), PARTIAL
    if (interrupt := _interrupt_behind(error)) is not None:
        raise interrupt
    if os.environ.get("GDBHEAP_DEBUG"):
        raise error
    what = type(error).__name__ if is_hidden(words, os.environ) else f"{type(error).__name__}: {error}"
    return f"a fault of gdbheap ({what}); GDBHEAP_DEBUG=1 shows where", PARTIAL


def _interrupt_behind(error: BaseException | None) -> KeyboardInterrupt | None:
    """Return what a signal raised, where an error came of it. Python makes another error of whatever is raised while a
    class gets its names (before 3.12), or in a native function that does not look."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error


def write(output: str) -> None:
    """Print a report, if there is one. Raises BrokenPipeError where nobody reads, GdbheapError on a full disk or
    without a standard output; nothing can be written after either."""
    from gdbheap.errors import GdbheapError
    from gdbheap.report.text.style import terminal_text

    global _printed
    _printed = _printed or bool(output)
    try:
        sys.stdout.write(terminal_text(output + "\n" if output else "", sys.stdout.encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        _give_up_output()
        raise
    except (OSError, ValueError, AttributeError) as error:
        _give_up_output()
        reason = error.strerror if isinstance(error, OSError) else "standard output is closed"
        raise GdbheapError(f"the report could not be written: {reason}") from None


def _give_up_output() -> None:
    """What is still buffered would fail once more when Python exits."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):
        pass
