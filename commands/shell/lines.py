"""The lines of a session: typed on a terminal, with history and completion, or read from a pipe or file without
them."""

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

__all__ = ["Lines", "Piped", "history_file", "opened_lines"]

LINE_LIMIT = 64 << 10
MOST_LINES, LARGEST = 1000, 1 << 20
# As in a shell: all other characters belong to words.
DELIMITERS = " \t\n"

Complete = Callable[[str, str], "list[str]"]


class Lines(Protocol):
    """The lines of a session, one after another."""

    is_terminal: bool

    def next(self) -> str | None:
        """Return the next line, None at the end. Raises UsageError for a line that is too long, KeyboardInterrupt."""


class Piped:
    """Lines of standard input, a pipe or a file. The last one needs no line break."""

    is_terminal = False

    def next(self) -> str | None:
        """Return the next line, as in ``Lines``."""
        if sys.stdin is None:
            return None
        line = sys.stdin.buffer.readline(LINE_LIMIT)
        if len(line) == LINE_LIMIT and not line.endswith(b"\n"):
            while line and not line.endswith(b"\n"):
                line = sys.stdin.buffer.readline(LINE_LIMIT)
            raise UsageError(f"a line of more than {LINE_LIMIT:,} bytes is no command")
        return line.decode("utf-8", "surrogateescape") if line else None


class Typed:
    """Lines that are typed on a terminal; with readline they can be edited."""

    is_terminal = True

    def __init__(self, prompt: str) -> None:
        self._prompt = prompt

    def next(self) -> str | None:
        """Return the next line, as in ``Lines``."""
        try:
            return input(self._prompt)
        except EOFError:
            print()
            return None
        except UnicodeDecodeError:
            raise UsageError("the line is no text in this terminal's encoding") from None


def history_file(environment: Mapping[str, str]) -> str | None:
    """Return the path of the history (XDG Base Directory Specification); None without a home."""
    folder = environment.get("XDG_STATE_HOME", "")
    if not os.path.isabs(folder):
        home = environment.get("HOME", "")
        if not os.path.isabs(home):
            return None
        folder = os.path.join(home, ".local", "state")
    return os.path.join(folder, "gdbheap", "history")


@contextmanager
def opened_lines(prompt: str, complete: Complete, history: str | None) -> Iterator[Lines]:
    """Yield the lines of standard input.

    ``complete``: gets the text before a word and the word's beginning, and returns its completions; ``history``: the
    file that keeps lines, or None."""
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
    """Return the module readline; None for a Python that was built without it."""
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
    """Return a completion with a blank after it, except for an option before its value and a folder."""
    return word if word.endswith(("=", "/")) else f"{word} "


def _remembered(readline: ModuleType, history: str | None) -> int:
    """Load the history if the file is ours; return the number of its lines."""
    readline.set_history_length(MOST_LINES)
    if history is not None and _is_at_home(history):
        with suppress(OSError, ValueError, UsageError), open_to_read(history) as stream:
            if _is_read_whole(stream.fileno()):
                readline.read_history_file(f"/proc/self/fd/{stream.fileno()}")
    return int(readline.get_current_history_length())


def _is_read_whole(descriptor: int) -> bool:
    """Return whether a history file is our own and small enough: readline reads all of it, even to append."""
    status = os.fstat(descriptor)
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_size <= LARGEST


def _is_at_home(history: str) -> bool:
    """Return whether the nearest existing folder is ours or root's: root leaves no files in another user's home."""
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
    """Append this session's lines to the history, to which another session may append too. Errors are ignored."""
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
