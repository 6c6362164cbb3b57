"""The shell's ``gdbheap``: the entry point, and the one place where errors become a line and an exit status.

Everything else is imported inside, so that Ctrl-C ends in one line from the first moment on."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Sequence

__all__ = ["main"]

ENDING = (signal.SIGTERM, signal.SIGHUP)
# The word of the command that looks at all processes: what takes it long is begun at once.
READS_ALL = ["ps"]
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
    if words[:1] != READS_ALL:
        return _answered(words)
    from gdbheap.processes import ahead

    ahead.begin()
    try:
        return _answered(words)
    finally:
        ahead.end()


def _answered(words: list[str]) -> int:
    from gdbheap.commands.shell.commands import run
    from gdbheap.commands.shell.streams import complain, fault, write
    from gdbheap.errors import GdbheapError

    try:
        output, status = run(words)
    except Exception as error:
        return complain(*fault(error, words))
    try:
        write(output)
    except BrokenPipeError:
        pass
    except GdbheapError as error:
        return complain(str(error))
    return status


def _fail(message: str) -> int:
    from gdbheap.commands.shell.streams import complain

    return complain(message)
