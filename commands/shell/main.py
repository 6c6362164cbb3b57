"""The shell's ``gdbheap``: the entry point, and the one place where errors become a line and an exit status.

Everything else is imported inside, so that Ctrl-C ends in one line from the first moment on."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Sequence

__all__ = ["main"]

PARTIAL = 1
ENDING = (signal.SIGTERM, signal.SIGHUP)
NO_MEMORY = "there is not enough memory; a process that was stopped runs on"


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``gdbheap`` with ``argv`` (default: the process's own arguments) and return the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        with contextlib.suppress(ValueError):
            for number in ENDING:
                signal.signal(number, _end)
        return _run(words)
    except Ended as ended:
        return _fail(f"ended by {ended}; a process that was stopped runs on")
    except KeyboardInterrupt:
        return _fail("interrupted; a process that was stopped runs on")
    except MemoryError:
        return _fail(NO_MEMORY)
    except (ImportError, OSError) as error:
        return _fail(f"gdbheap cannot be loaded: {error}")


class Ended(KeyboardInterrupt):
    """A signal that asks a program to end; its name."""


def _end(number: int, _frame: object) -> None:
    raise Ended(signal.Signals(number).name)


def _run(words: list[str]) -> int:
    from gdbheap.commands.shell.commands import run
    from gdbheap.errors import EXHAUSTED, GdbheapError, exhausted
    from gdbheap.python.disclosure import is_hidden

    try:
        output, status = run(words)
    except GdbheapError as error:
        return _fail(str(error), error.status)
    except Exception as error:
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in EXHAUSTED):
            return _fail(str(exhausted(error)))
        if os.environ.get("GDBHEAP_DEBUG"):
            raise
        what = type(error).__name__ if is_hidden(words, os.environ) else f"{type(error).__name__}: {error}"
        return _fail(f"a fault of gdbheap ({what}); GDBHEAP_DEBUG=1 shows where")
    return _write(output, status)


def _fail(message: str, status: int = PARTIAL) -> int:
    """One line on standard error, if there is one."""
    from gdbheap.errors import one_line
    from gdbheap.report.style import encodable

    with contextlib.suppress(OSError, ValueError, AttributeError):
        start = "" if message.startswith("gdbheap") else "gdbheap: "
        sys.stderr.write(encodable(f"{start}{one_line(message)}\n", sys.stderr.encoding))
        sys.stderr.flush()
    return status


def _write(output: str, status: int) -> int:
    """Print the report, if there is one. A closed pipe ends quietly; a full disk or no standard output is an error."""
    from gdbheap.report.style import encodable

    try:
        sys.stdout.write(encodable(output + "\n" if output else "", sys.stdout.encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        _give_up_output()
    except (OSError, ValueError, AttributeError) as error:
        _give_up_output()
        reason = error.strerror if isinstance(error, OSError) else "standard output is closed"
        return _fail(f"the report could not be written: {reason}")
    return status


def _give_up_output() -> None:
    """What is still buffered would fail once more when Python exits."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
