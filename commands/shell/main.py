"""The shell's ``gdbheap``: the entry point, and the one place where errors become a line and an exit status.

Everything else is imported inside, so that Ctrl-C ends in one line from the first moment on."""

from __future__ import annotations

# What the module signal wraps in enumerations, which take as long to import as a short command.
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
# The word of the command that looks at all processes: what takes it long is begun at once.
READS_ALL = ["ps"]
# Lines of one word that quick.py answers.
QUICK = ("ps", "--version", "-V", "--gdb-script")
# Seconds until a dropped signal is told again, somewhere else.
SOON = 0.01
DEAF = "interrupted while the kernel waits for a file or a process; a process that was stopped runs on"
NO_MEMORY = "there is not enough memory; a process that was stopped runs on"


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``gdbheap`` with ``argv`` (default: the process's own arguments) and return the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _heard(words)
    except Ended as ended:
        return _fail(f"ended by {ended}; a process that was stopped runs on", words)
    except KeyboardInterrupt:
        return _fail("interrupted; a process that was stopped runs on", words)
    except MemoryError:
        return _fail(NO_MEMORY, words)
    except (ImportError, OSError) as error:
        return _fail(f"gdbheap cannot be loaded: {error}", words)


def script() -> NoReturn:
    """What the command is in a shell: main(), and the end of the process.

    After a line that needs no parser the process ends at once: Python's own end takes a fifth of the time of a start,
    and there is nothing that it would have to end."""
    _fill_streams()
    words = sys.argv[1:]
    status = main(words)
    _stop_listening()
    if len(words) == 1 and words[0] in QUICK:
        os._exit(status)
    sys.exit(status)


def _fill_streams() -> None:
    """Open /dev/null in the place of each standard stream that is closed: whatever is opened next would get its number,
    and what others write there would go into it. Standard output stays closed to Python, as an answer would be lost."""
    try:
        for number in range(3):
            _fill(number)
        if sys.stderr is None:
            sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
    except OSError:
        pass


def _fill(number: int) -> None:
    try:
        os.fstat(number)
    except OSError:
        # The lowest number that is free.
        os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


class Ended(KeyboardInterrupt):
    """A signal that asks a program to end; its name."""


def _heard(words: list[str]) -> int:
    """Run the command while signals raise, which ``_is_over`` finds on the stack."""
    try:
        _listen()
    except ValueError:
        pass
    return _run(words)


def _listen() -> None:
    """Have signals raise. One that was ignored when this program began stays ignored, as nohup wants it.

    Raises ValueError outside of the main thread."""
    for number in (*ENDING, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)
    signal.signal(signal.SIGALRM, _tell_again)
    sys.unraisablehook = _keep


def _stop_listening() -> None:
    """Have signals end the process at once: everything is said, and Python's own end would show where one came."""
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    for number in (*ENDING, signal.SIGINT):
        if signal.getsignal(number) is _end:
            signal.signal(number, signal.SIG_DFL)


def _end(number: int, frame: FrameType | None) -> None:
    """Raise what ends the command. While the line about one signal is written another one is ignored, and a third ends
    the process: nobody may be reading."""
    if _is_over(frame):
        signal.signal(number, signal.SIG_DFL)
    elif number in ENDING:
        raise Ended(ENDING[number])
    else:
        raise KeyboardInterrupt


def _is_over(frame: FrameType | None) -> bool:
    """Return whether the command has ended, and script() has not. ``frame``: where the signal came."""
    while frame is not None and frame.f_code not in (_heard.__code__, script.__code__):
        frame = frame.f_back
    return frame is not None and frame.f_code is script.__code__


# What was raised where Python can only drop it: in the callback of a weak reference, such as import's locks have.
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
        message, status = fault(error, words)
        return refuse(message, words, status)
    try:
        write(output)
    except BrokenPipeError:
        pass
    except GdbheapError as error:
        return complain(str(error))
    return status


def _of_quick(words: list[str]) -> tuple[str, int] | None:
    """What a line comes to that is read without a parser; None for all others."""
    if len(words) != 1 or words[0] not in QUICK:
        return None
    from gdbheap.commands.shell.quick import LINES

    return LINES[words[0]](), 0


def _of_completion(words: list[str]) -> tuple[str, int] | None:
    """The words that a shell may complete a line with; None for a line that does not ask for them."""
    if words[:1] != ["--complete"]:
        return None
    from gdbheap.commands.shell.completing import complete

    return complete(words[1:]), 0


def _of_any(words: list[str]) -> tuple[str, int]:
    from gdbheap._native import end_where_deaf
    from gdbheap.commands.shell.commands import run

    end_where_deaf(f"gdbheap: {DEAF}\n".encode())
    return run(words)


def _fail(message: str, words: Sequence[str]) -> int:
    from gdbheap.commands.shell.refusing import refuse

    return refuse(message, words)
