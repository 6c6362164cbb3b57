"""What can go wrong, as one family of exceptions.

Every message is one line that says what failed and what to do next. ``status`` is the exit status that the shell
command and ``gdb -batch`` end with. Nothing is printed here, and no exception is raised here.
"""

from __future__ import annotations

import errno

from gdbheap._native import Fault
from gdbheap.text import Sentence, printable

# The module typing takes as long to import as a short command.
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
    errno.ENOMEM: "there is not enough memory: raise the limit (ulimit -v, the container's), or stop other programs",
    errno.EAGAIN: "no further thread could be started: raise the limit (ulimit -u, the container's pids)",
    errno.EMFILE: "the limit on open files is too low: raise the limit (ulimit -n)",
    errno.ENFILE: "too many files are open on this machine (fs.file-max)",
    errno.ENOSPC: "the disk is full: free some space, or give another folder (TMPDIR)",
    errno.EDQUOT: "the disk quota is used up: free some space, or give another folder (TMPDIR)",
}
"""What the system ran out of, by the number of the error, and the next step."""

LINE_LIMIT = 1000


def one_line(text: object, limit: int = LINE_LIMIT) -> str:
    """Return ``text`` on one line of at most ``limit`` characters, ``printable`` and with single blanks. What is in
    quotes stays in them."""
    words = printable(" ".join(str(text).split()))
    if len(words) <= limit:
        return words
    shown = words[: limit - 1]
    if shown.count('"') % 2 == 0:
        return f"{shown}…"
    return f'{words[: limit - 2]}…"' if words[limit - 2] != '"' else f"{words[: limit - 2]}…"


def next_steps(message: str) -> list[str]:
    """Return what a message says to do next: the commands of ours that it quotes; where it quotes none, the words
    behind its last colon, and behind a question there. Texts of the target have no quoted commands in it
    (``printable_record``)."""
    # Imported here: only a program that reads the error asks for it.
    import re

    quoted = re.findall(r"'((?:gdbheap|heap|help)(?: [^']*)?)'", message)
    said, _colon, rest = message.rpartition(": ")
    _asked, question, step = rest.rpartition("? ")
    # "heap stats: …" says whose message it is.
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
        """The line; names of a target in it are ``named`` where it is made."""
        return Sentence(super().__str__())

    @property
    def next(self) -> list[str]:
        """What to do next, as ``next_steps`` of the message."""
        return next_steps(str(self))


class UsageError(GdbheapError):
    """The command was typed wrongly: an unknown option, an address that is none, a value out of range."""

    status = 2


class NotPermitted(GdbheapError):
    """The kernel refuses access to the process or the file; the message names the cause and the remedy."""

    status = 3


class NoTarget(GdbheapError):
    """There is no memory to look at: no such process, a zombie, a kernel thread, not a core, an empty file."""

    status = 4


class Unsupported(GdbheapError):
    """An allocator, an interpreter or an architecture that gdbheap does not know."""

    status = 5


class NotAPython(Unsupported):
    """The target holds no Python interpreter; what is not about Python can still be answered."""


class NotInUse(Unsupported):
    """The target could have an allocator, and does without."""


class CallEnded(GdbheapError):
    """A call into the process did not return; the message says what became of it, which nothing else may hide."""


def or_none(answer: Callable[[], A], kind: type[GdbheapError] = GdbheapError) -> A | None:
    """The answer; None where an error of that kind is raised for it."""
    try:
        return answer()
    except kind:
        return None


def exhausted(error: BaseException) -> GdbheapError:
    """The error for a MemoryError, or for an OSError whose number is in EXHAUSTED."""
    number = error.errno if isinstance(error, OSError) and error.errno else errno.ENOMEM
    return GdbheapError(f"gdbheap could not go on: {EXHAUSTED[number]}; a process that was stopped runs on")


def reason_of(error: BaseException) -> str:
    """Return why one of several processes could not be looked at, in a line."""
    if isinstance(error, GdbheapError):
        return str(error)
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in EXHAUSTED):
        return str(exhausted(error))
    if isinstance(error, OSError):
        return one_line(error)
    if isinstance(error, KeyboardInterrupt):
        return "the look was interrupted; the process runs on"
    return f"a fault of gdbheap ({type(error).__name__})"
