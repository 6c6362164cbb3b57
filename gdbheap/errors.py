"""The exceptions that gdbheap raises for people to read, all derived from one class.

Each message is one line that says what failed and what to do next. ``status`` is the exit status of the shell command
and of ``gdb -batch``. This module prints nothing and raises nothing.
"""

from __future__ import annotations

import errno

from gdbheap._native import Fault
from gdbheap.text import Sentence, printable

# Importing the module typing takes as long as a short command, so it is not imported at run time.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    A = TypeVar("A")

__all__ = [
    "EXHAUSTED",
    "CallEnded",
    "Fault",
    "GdbheapError",
    "NoTarget",
    "NotAPython",
    "NotInUse",
    "NotPermitted",
    "Unsupported",
    "UsageError",
    "exhausted",
    "next_steps",
    "one_line",
    "or_none",
    "reason_of",
]

EXHAUSTED = {
    errno.ENOMEM: "there is not enough memory: raise the limit (ulimit -v, or the container's), or stop other programs",
    errno.EAGAIN: "another thread could not be started: raise the limit (ulimit -u, or the container's pids.max)",
    errno.EMFILE: "the limit on open files is too low: raise the limit (ulimit -n)",
    errno.ENFILE: "too many files are open on this machine (fs.file-max)",
    errno.ENOSPC: "the disk is full: free some space, or set TMPDIR to another folder",
    errno.EDQUOT: "the disk quota is used up: free some space, or set TMPDIR to another folder",
}
"""For each errno, what the system has run out of, and what to do next."""

LINE_LIMIT = 1000


def one_line(text: object, limit: int = LINE_LIMIT) -> str:
    """Return ``text`` on one line of at most ``limit`` characters, ``printable`` and with single blanks.

    If it is cut inside double quotes, a closing quote is added.
    """
    words = printable(" ".join(str(text).split()))
    if len(words) <= limit:
        return words
    shown = words[: limit - 1]
    if shown.count('"') % 2 == 0:
        return f"{shown}…"
    return f'{words[: limit - 2]}…"' if words[limit - 2] != '"' else f"{words[: limit - 2]}…"


def next_steps(message: str) -> list[str]:
    """Return the next steps that a message names: the commands of gdbheap that it quotes.

    If it quotes no command, return the words after its last colon or, if a question follows the colon, after the
    question. A text of the target cannot contain a quoted command (``printable_record``).
    """
    # Imported here, because only a program that reads the error asks for it.
    import re

    quoted = re.findall(r"'((?:gdbheap|heap|help)(?: [^']*)?)'", message)
    said, _colon, rest = message.rpartition(": ")
    _asked, question, step = rest.rpartition("? ")
    # A prefix such as "heap stats: …" names the command, and is no next step.
    has_step = question or not re.fullmatch(r"(gdbheap|heap)( [a-z-]+)?|", said)
    return list(dict.fromkeys(quoted)) or ([step] if has_step else [])


class GdbheapError(Exception):
    """Base of all errors that a person is meant to read.

    ``str(error)`` is one line: what failed, a colon, and what to do next. ``status`` is the exit status: 1 answered but
    damaged or partial, 2 wrong usage, 3 not permitted, 4 no such process or not a core, 5 not supported.
    """

    status: int = 1

    def __init__(self, message: object = "") -> None:
        super().__init__(one_line(message))

    def __str__(self) -> str:
        """Return the message as one line. Names that the target chose are already printable in it."""
        return Sentence(super().__str__())

    @property
    def next(self) -> list[str]:
        """The next steps that the message names (see ``next_steps``)."""
        return next_steps(str(self))


class UsageError(GdbheapError):
    """The command was typed wrongly: an unknown option, an invalid address, a value out of range."""

    status = 2


class NotPermitted(GdbheapError):
    """The kernel refuses access to the process or the file; the message names the cause and the remedy."""

    status = 3


class NoTarget(GdbheapError):
    """There is no memory to read: the process does not exist, is a zombie or a kernel thread, or the file is empty or
    is no core.
    """

    status = 4


class Unsupported(GdbheapError):
    """gdbheap does not know the allocator, the interpreter or the architecture."""

    status = 5


class NotAPython(Unsupported):
    """The target has no Python interpreter; questions that are not about Python can still be answered."""


class NotInUse(Unsupported):
    """The target does not use an allocator that it could use."""


class CallEnded(GdbheapError):
    """A call into the process did not return. The message says what happened; no other error may replace this one."""


def or_none(answer: Callable[[], A], kind: type[GdbheapError] = GdbheapError) -> A | None:
    """Return the result of ``answer``; None if it raises an error of the class ``kind``."""
    try:
        return answer()
    except kind:
        return None


def exhausted(error: BaseException) -> GdbheapError:
    """Return the error for a MemoryError, or for an OSError whose errno is in EXHAUSTED."""
    number = error.errno if isinstance(error, OSError) and error.errno else errno.ENOMEM
    return GdbheapError(f"gdbheap could not continue: {EXHAUSTED[number]}; a process that was stopped runs on")


def reason_of(error: BaseException) -> str:
    """Return on one line why one of several processes could not be read."""
    if isinstance(error, GdbheapError):
        return str(error)
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in EXHAUSTED):
        return str(exhausted(error))
    if isinstance(error, OSError):
        return one_line(error)
    if isinstance(error, KeyboardInterrupt):
        return "reading this process was interrupted; the process runs on"
    return f"a fault of gdbheap ({type(error).__name__})"
