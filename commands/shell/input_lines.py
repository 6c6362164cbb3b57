"""Read the lines of a session: from a terminal, with history and completion; or from a pipe or a file, without history
and completion."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Protocol

from gdbheap.errors import UsageError
from gdbheap.files import PRIVATE, hold_file, make_folder, open_to_append, open_to_read

__all__ = ["InputLines", "Piped", "history_file", "opened_lines"]

LINE_LIMIT = 64 << 10
MOST_LINES, LARGEST = 1000, 1 << 20
# The characters that separate words, as in a shell. All other characters belong to words.
DELIMITERS = " \t\n"

Complete = Callable[[str, str], "list[str]"]


class InputLines(Protocol):
    """The lines of a session, one after another."""

    is_terminal: bool

    def next(self) -> str | None:
        """Return the next line; None at the end. Raises UsageError if the line is too long, KeyboardInterrupt."""


class Piped:
    """Lines from standard input, if it is a pipe or a file. The last line may lack its line break."""

    is_terminal = False

    def next(self) -> str | None:
        """Return the next line of standard input; None at its end. Raises UsageError if the line is too long."""
        if sys.stdin is None:
            return None
        line = sys.stdin.buffer.readline(LINE_LIMIT)
        if len(line) == LINE_LIMIT and not line.endswith(b"\n"):
            while line and not line.endswith(b"\n"):
                line = sys.stdin.buffer.readline(LINE_LIMIT)
            raise UsageError(f"a line may have at most {LINE_LIMIT:,} bytes")
        return line.decode("utf-8", "surrogateescape") if line else None


class Typed:
    """Lines that a user types on a terminal. If Python has readline, they can be edited."""

    is_terminal = True

    def __init__(self, prompt: str) -> None:
        self._prompt = prompt

    def next(self) -> str | None:
        """Return the line that the user types; None for Ctrl-D. Raises UsageError for bytes that are not text."""
        try:
            return input(self._prompt)
        except EOFError:
            print()
            return None
        except UnicodeDecodeError:
            raise UsageError("the line contains bytes that are not text in this terminal's encoding") from None


def history_file(environment: Mapping[str, str]) -> str | None:
    """Return the path of the history file (XDG Base Directory Specification); None if no home is set."""
    folder = environment.get("XDG_STATE_HOME", "")
    if not os.path.isabs(folder):
        home = environment.get("HOME", "")
        if not os.path.isabs(home):
            return None
        folder = os.path.join(home, ".local", "state")
    return os.path.join(folder, "gdbheap", "history")


@contextmanager
def opened_lines(prompt: str, complete: Complete, history: str | None) -> Iterator[InputLines]:
    """Yield the lines of standard input.

    ``complete``: a function that gets the text before a word and the word's beginning, and returns the completions;
    ``history``: the path of the history file, None for none."""
    if not (sys.stdin and sys.stdout and sys.stdin.isatty() and sys.stdout.isatty()):
        yield Piped()
        return
    readline = _readline()
    if readline is None:
        yield Typed(prompt)
        return
    _complete_with(readline, complete)
    before = _remembered(readline, history)
    try:
        yield Typed(prompt)
    finally:
        _remember(readline, history, before)


def _readline() -> ModuleType | None:
    """Return the module readline; None if Python was built without it."""
    try:
        import readline
    except ImportError:
        return None
    return readline


def _complete_with(readline: ModuleType, complete: Complete) -> None:
    found: list[str] = []

    def candidate(last: str, number: int) -> str | None:
        if number == 0:
            start = readline.get_begidx()
            found[:] = [_ended(word) for word in complete(readline.get_line_buffer()[:start], last)]
        return found[number] if number < len(found) else None

    readline.set_completer_delims(DELIMITERS)
    readline.set_completer(candidate)
    is_libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")


def _ended(word: str) -> str:
    """Return a completion with a space after it. No space follows a folder, or an option that needs a value."""
    return word if word.endswith(("=", "/")) else f"{word} "


def _remembered(readline: ModuleType, history: str | None) -> int:
    """Load the history file, if it belongs to this user. Return the number of lines in the history."""
    readline.set_history_length(MOST_LINES)
    if history is not None and _is_at_home(history):
        with suppress(OSError, ValueError, UsageError), open_to_read(history) as stream:
            if _is_read_whole(stream.fileno()):
                readline.read_history_file(f"/proc/self/fd/{stream.fileno()}")
    return int(readline.get_current_history_length())


def _is_read_whole(descriptor: int) -> bool:
    """Return whether a history file belongs to this user and is small enough to be read whole. readline always reads
    all of it.
    """
    status = os.fstat(descriptor)
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_size <= LARGEST


def _is_at_home(history: str) -> bool:
    """Return whether the nearest existing folder of the path belongs to this user or to root. So root leaves no files
    in another user's home."""
    folder = os.path.dirname(history)
    while True:
        try:
            held = hold_file(folder, False).descriptor
        except (FileNotFoundError, NotADirectoryError):
            folder = os.path.dirname(folder)
            continue
        except (OSError, ValueError):
            return False
        try:
            return os.fstat(held).st_uid in (0, os.geteuid())
        finally:
            os.close(held)


def _remember(readline: ModuleType, history: str | None, before: int) -> None:
    """Append this session's lines to the history file. Another session may append at the same time. Errors are
    ignored."""
    new = int(readline.get_current_history_length()) - before
    if history is None or new <= 0 or not _is_at_home(history):
        return
    with suppress(OSError, ValueError, UsageError):
        make_folder(os.path.dirname(history))
        descriptor = open_to_append(history, make=True)
        try:
            if _is_read_whole(descriptor):
                os.fchmod(descriptor, PRIVATE)
                readline.append_history_file(min(new, MOST_LINES), f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)
