"""Write the output of the shell's ``gdbheap``: answers to standard output, and an error as one line to standard
error."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["PARTIAL", "complain", "fault", "has_printed", "told", "wants_json", "write"]

PARTIAL = 1
JSON = "--json"
# The words after this belong to another program.
START = "--"
_printed = False


def has_printed() -> bool:
    """Return whether anything was written to standard output. If so, the JSON document of an error must not follow."""
    return _printed


def wants_json(words: Sequence[str]) -> bool:
    """Return whether a command line asks for JSON."""
    own = words[: words.index(START)] if START in words else words
    return JSON in own


def told(message: str) -> str:
    """Return a message with gdbheap's commands as they are typed in a shell."""
    from gdbheap.text import IN_GDB, IN_SHELL, as_typed

    message = as_typed(message, IN_SHELL)
    return f"{IN_SHELL}{message[len(IN_GDB) :]}" if message.startswith(f"{IN_GDB} ") else message


def complain(message: str, status: int = PARTIAL) -> int:
    """Print one line on standard error, unless standard error is closed. Return ``status``."""
    from gdbheap.errors import own_line
    from gdbheap.report.text.style import terminal_text

    message = told(message)
    start = "" if message.startswith("gdbheap") else "gdbheap: "
    try:
        sys.stderr.write(terminal_text(f"{start}{own_line(message)}\n", sys.stderr.encoding))
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        pass
    return status


def fault(error: Exception, words: Sequence[str]) -> tuple[str, int, list[str]]:
    """Return the message, the exit status and the next steps for an error that ended a command. ``words``: the command
    line.

    Raises KeyboardInterrupt if a signal caused the error. Raises the error itself if it is a fault of gdbheap and
    GDBHEAP_DEBUG is set."""
    from gdbheap.contents.python.text.disclosure import is_hidden
    from gdbheap.errors import EXHAUSTED, GdbheapError, exhausted

    if isinstance(error, GdbheapError):
        return str(error), error.status, error.next
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in EXHAUSTED):
        return str(exhausted(error)), PARTIAL, exhausted(error).next
    if (interrupt := _interrupt_behind(error)) is not None:
        raise interrupt
    if os.environ.get("GDBHEAP_DEBUG"):
        raise error
    what = type(error).__name__ if is_hidden(words, os.environ) else f"{type(error).__name__}: {error}"
    return f"a fault of gdbheap ({what}); GDBHEAP_DEBUG=1 shows where", PARTIAL, []


def _interrupt_behind(error: BaseException | None) -> KeyboardInterrupt | None:
    """Return the KeyboardInterrupt that caused an error; None if there is none.

    Python converts an exception into another one while a class is created (before 3.12), or in a native function that
    does not check for exceptions."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error


def write(output: str) -> None:
    """Print a command's output, unless it is empty.

    Raises BrokenPipeError if nobody reads standard output, GdbheapError if the disk is full or standard output is
    closed. After either error nothing more can be written."""
    from gdbheap.errors import GdbheapError
    from gdbheap.report.text.style import terminal_text

    global _printed
    _printed = _printed or bool(output)
    try:
        # One line at a time, because folded stacks may be large.
        for line in f"{output}\n".splitlines(keepends=True) if output else ():
            sys.stdout.write(terminal_text(line, sys.stdout.encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        _give_up_output()
        raise
    except (OSError, ValueError, AttributeError) as error:
        _give_up_output()
        reason = error.strerror if isinstance(error, OSError) else "standard output is closed"
        raise GdbheapError(f"the answer could not be printed: {reason}") from None


def _give_up_output() -> None:
    """Redirect standard output to /dev/null. Otherwise the text that is still in its buffer would fail once more when
    Python exits."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):
        pass
