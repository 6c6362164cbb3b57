"""The entry point of the shell's ``gdbheap``, and the only place that converts errors into a line and an exit status.

Other modules are imported inside functions, so that Ctrl-C prints only one line, even right after the start."""

from __future__ import annotations

# The module signal wraps these in enumerations, whose import takes as long as a short command.
import _signal as signal  # type: ignore[import-not-found]
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType
    from typing import NoReturn

__all__ = ["main", "script"]

ENDING = {signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}
# This command reads all processes. Its slow part is started at once.
READS_ALL = ["ps"]
# Command lines of one word that quick.py answers.
QUICK = ("ps", "--version", "-V", "--gdb-script")
# Python may drop the exception of a signal. It is raised again after this many seconds, where it cannot be dropped.
SOON = 0.01
BLOCKED = (
    "the memory of a process cannot be read: one of its threads holds the lock of its memory map, or a page fault does "
    "not end"
)
DEAF = "interrupted while the kernel waits for a file or a process; a process that was stopped runs on"
# The exception of a panic in the native half (pyo3), and its text where Python could not make an object: no memory.
PANIC, NO_OBJECT = "PanicException", "Python API call failed"
NO_MEMORY = "there is not enough memory; a process that was stopped runs on"


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``gdbheap`` and return the exit status. ``argv``: the arguments; None for the arguments of this process."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _heard(words)
    except SignalReceived as ended:
        return _fail(f"ended by {ended}; a process that was stopped runs on", words)
    except KeyboardInterrupt:
        return _fail("interrupted; a process that was stopped runs on", words)
    except MemoryError:
        return _fail(NO_MEMORY, words)
    except (ImportError, OSError) as error:
        return _fail(f"gdbheap cannot be loaded: {error}", words)
    except BaseException as error:
        if type(error).__name__ != PANIC:
            raise
        return _fail(NO_MEMORY if str(error) == NO_OBJECT else f"a fault of gdbheap ({PANIC})", words)


def script() -> NoReturn:
    """Run ``main()`` and end the process: the entry point of the shell's command.

    After a line that needs no parser, the process ends at once: Python's own shutdown takes a fifth of the run time,
    and has nothing to do."""
    _fill_streams()
    _take_name()
    words = sys.argv[1:]
    status = main(words)
    _stop_listening()
    if len(words) == 1 and words[0] in QUICK:
        os._exit(status)
    sys.exit(status)


def _fill_streams() -> None:
    """Open /dev/null for each standard stream that is closed. Otherwise the next file that is opened would get the
    stream's number, and the output that is meant for the stream.

    Python's sys.stdout stays closed, so that an answer is not lost without an error."""
    try:
        for number in range(3):
            _fill(number)
        if sys.stderr is None:
            sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
    except OSError:
        pass


def _take_name() -> None:
    """Set the name of this process to "gdbheap", by which gdbheap recognizes its own processes."""
    try:
        place = os.open("/proc/self/comm", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return
    os.write(place, b"gdbheap")
    os.close(place)


def _fill(number: int) -> None:
    try:
        os.fstat(number)
    except OSError:
        # open() returns the lowest free number, which is this one.
        os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


class SignalReceived(KeyboardInterrupt):
    """Raised when a signal asks the program to end. The argument is the signal's name."""


def _heard(words: list[str]) -> int:
    """Run the command in such a way that signals raise exceptions. ``_is_over`` looks for this function on the
    stack."""
    try:
        _listen()
    except ValueError:
        pass
    return _run(words)


def _listen() -> None:
    """Make signals raise exceptions. A signal that was ignored at the start stays ignored, as nohup needs.

    Raises ValueError outside the main thread."""
    for number in (*ENDING, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)
    signal.signal(signal.SIGALRM, _tell_again)
    sys.unraisablehook = _keep


def _stop_listening() -> None:
    """Make signals end the process at once. All output is already written, and Python's shutdown would print a
    traceback."""
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    for number in (*ENDING, signal.SIGINT):
        if signal.getsignal(number) is _end:
            signal.signal(number, signal.SIG_DFL)


def _end(number: int, frame: FrameType | None) -> None:
    """Raise the exception that ends the command.

    While the message about a finished command is being written, one signal is ignored. The next one ends the process,
    because perhaps nobody reads the message.
    """
    if _is_over(frame):
        signal.signal(number, signal.SIG_DFL)
    elif number in ENDING:
        raise SignalReceived(ENDING[number])
    else:
        raise KeyboardInterrupt


def _is_over(frame: FrameType | None) -> bool:
    """Return whether the command has ended, but script() has not. ``frame``: the frame that the signal interrupted."""
    while frame is not None and frame.f_code not in (_heard.__code__, script.__code__):
        frame = frame.f_back
    return frame is not None and frame.f_code is script.__code__


# Exceptions that were raised where Python drops them: in the callback of a weak reference, which the import system uses
# for its locks.
_dropped: list[BaseException] = []


def _keep(unraisable: sys.UnraisableHookArgs) -> None:
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        _dropped.append(unraisable.exc_value)
        signal.setitimer(signal.ITIMER_REAL, SOON)
    else:
        sys.__unraisablehook__(unraisable)


def _tell_again(_number: int, frame: FrameType | None) -> None:
    if _dropped and not _is_over(frame):
        raise _dropped.pop()


def _run(words: list[str]) -> int:
    from gdbheap.environment import clean

    clean()
    if words[:1] != READS_ALL:
        return _answered(words)
    from gdbheap.processes import early_reading

    early_reading.begin()
    try:
        return _answered(words)
    finally:
        early_reading.end()


def _answered(words: list[str]) -> int:
    from gdbheap.commands.shell.refusing import refuse
    from gdbheap.commands.shell.streams import complain, fault, write
    from gdbheap.errors import GdbheapError

    try:
        output, status = _of_quick(words) or _of_completion(words) or _of_any(words)
    except Exception as error:
        message, status, steps = fault(error, words)
        return refuse(message, words, status, steps)
    try:
        write(output)
    except BrokenPipeError:
        pass
    except GdbheapError as error:
        return complain(str(error))
    return status


def _of_quick(words: list[str]) -> tuple[str, int] | None:
    """Return the answer and the status for a line that needs no parser; None for other lines."""
    if len(words) != 1 or words[0] not in QUICK:
        return None
    from gdbheap.commands.shell.quick import LINES

    return LINES[words[0]](), 0


def _of_completion(words: list[str]) -> tuple[str, int] | None:
    """Return the completions that a shell asks for, and the status; None for other lines."""
    if words[:1] != ["--complete"]:
        return None
    from gdbheap.commands.shell.completing import complete

    return complete(words[1:]), 0


def _of_any(words: list[str]) -> tuple[str, int]:
    from gdbheap._native import end_where_deaf
    from gdbheap.commands.shell.commands import run

    end_where_deaf(f"gdbheap: {DEAF}\n".encode(), f"gdbheap: {BLOCKED}\n".encode())
    return run(words)


def _fail(message: str, words: Sequence[str]) -> int:
    from gdbheap.commands.shell.refusing import refuse

    return refuse(message, words)
