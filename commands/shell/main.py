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
# Seconds until a dropped signal is told again, somewhere else.
SOON = 0.01
NO_MEMORY = "there is not enough memory; a process that was stopped runs on"


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``gdbheap`` with ``argv`` (default: the process's own arguments) and return the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        with contextlib.suppress(ValueError):
            _listen()
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


def _listen() -> None:
    """Have signals raise. One that was ignored when this program began stays ignored, as nohup wants it. Raises
    ValueError outside of the main thread."""
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)
    signal.signal(signal.SIGALRM, _tell_again)
    sys.unraisablehook = _keep


def _end(number: int, _frame: object) -> None:
    raise Ended(signal.Signals(number).name)


# What was raised where Python can only drop it: in the callback of a weak reference, such as import's locks have.
_dropped: list[BaseException] = []


def _keep(unraisable: sys.UnraisableHookArgs) -> None:
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        _dropped.append(unraisable.exc_value)
        signal.setitimer(signal.ITIMER_REAL, SOON)
    else:
        sys.__unraisablehook__(unraisable)


def _tell_again(_number: int, _frame: object) -> None:
    if _dropped:
        raise _dropped.pop()


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
