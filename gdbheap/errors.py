"""The exceptions that gdbheap raises for people to read, all derived from one class.

Each message is one line that says what failed and what to do next. ``status`` is the exit status of the shell command
and of ``gdb -batch``. This module prints nothing and raises nothing.
"""

from __future__ import annotations

import errno
import sys

from gdbheap._native import Fault
from gdbheap.text import Sentence, printable, without_commands

# Importing the module typing takes as long as a short command, so it is not imported at run time.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import CodeType, FrameType
    from typing import Any, TypeVar

    A = TypeVar("A")

__all__ = [
    "EXHAUSTED",
    "CallEnded",
    "Fault",
    "GdbheapError",
    "NO_MATCH",
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
    "own_line",
    "reason_of",
]

OTHER_DISK = "free some space, or choose another disk (-o, or TMPDIR for temporary files)"
EXHAUSTED = {
    errno.ENOMEM: "there is not enough memory: raise the limit (ulimit -v, or the container's), or stop other programs",
    errno.EAGAIN: "another thread could not be started: raise the limit (ulimit -u, or the container's pids.max)",
    errno.EMFILE: "the limit on open files is too low: raise the limit (ulimit -n)",
    errno.ENFILE: "too many files are open on this machine (fs.file-max)",
    errno.ENOSPC: f"the disk is full: {OTHER_DISK}",
    errno.EDQUOT: f"the disk quota is used up: {OTHER_DISK}",
}
"""For each errno, what the system has run out of, and what to do next."""

LINE_LIMIT = 1000


def one_line(text: object, limit: int = LINE_LIMIT) -> str:
    """Return a text on one line of at most ``limit`` characters. A target or a file may have chosen the text.

    Control characters and invisible characters are escaped, and runs of blanks become one. A quoted command of gdbheap
    is escaped, so that nobody pastes it. The message of a GdbheapError, and a Sentence, keep their commands.
    """
    line = own_line(text, limit)
    return line if isinstance(text, (GdbheapError, Sentence)) else without_commands(line)


def own_line(text: object, limit: int = LINE_LIMIT) -> str:
    """Return gdbheap's own ``text`` on one line of at most ``limit`` characters.

    Control characters and invisible characters are escaped, and runs of blanks become one. If the text is cut inside
    double quotes, a closing quote is added.
    """
    words = printable(" ".join(str(text).split()))
    if len(words) <= limit:
        return words
    shown = words[: limit - 1]
    if shown.count('"') % 2 == 0:
        return f"{shown}…"
    return f'{words[: limit - 2]}…"' if words[limit - 2] != '"' else f"{words[: limit - 2]}…"


def next_steps(message: str) -> list[str]:
    """Return the next steps that gdbheap's own message names: the commands that it quotes.

    If it quotes no command, return the words after its last colon or, if a question follows the colon, after the
    question. Do not pass a message that contains text of a target or of a file: that text could name steps.
    """
    return _quoted_commands(message) or _advice(message)


def _quoted_commands(message: str) -> list[str]:
    # Imported here, because only a program that reads the error asks for it.
    import re

    return list(dict.fromkeys(re.findall(r"'((?:gdbheap|heap|help)(?: [^']*)?)'", message)))


def _advice(message: str) -> list[str]:
    import re

    said, _colon, rest = message.rpartition(": ")
    _asked, question, step = rest.rpartition("? ")
    # A prefix such as "heap stats: …" names the command, and is no next step.
    return [step] if question or not re.fullmatch(r"(gdbheap|heap)( [a-z-]+)?|", said) else []


class GdbheapError(Exception):
    """Base of all errors that a person is meant to read. ``str(error)`` is one line: what failed, a colon, and what to
    do next.

    ``status``: the exit status. 1: answered but damaged or partial; 2: wrong usage; 3: not permitted; 4: no such
    process or not a core; 5: not supported.
    ``steps``: the next steps. If it is None, ``next`` returns only steps that are literally in the code that makes the
    error. So no text of a target or of a file becomes a step.
    """

    status: int = 1

    def __init__(self, message: object = "", steps: Sequence[str] | None = None) -> None:
        super().__init__(own_line(message))
        self._steps = message.next if steps is None and isinstance(message, GdbheapError) else steps
        self._makers = _makers(sys._getframe(1)) if self._steps is None else []

    def __str__(self) -> str:
        """Return the message as one line. Names that the target chose are already printable in it."""
        return Sentence(super().__str__())

    @property
    def next(self) -> list[str]:
        """The next steps, in gdbheap's own words: commands to type, or advice."""
        if self._steps is not None:
            return list(self._steps)
        own, message = [text for code, names in self._makers for text in _texts_of(code, names)], str(self)
        quoted = [step for step in _quoted_commands(message) if any(f"'{step}'" in text for text in own)]
        return quoted or [step for step in _advice(message) if any(_ends_with(text, step) for text in own)]


def _makers(frame: FrameType) -> list[tuple[CodeType, dict[str, Any]]]:
    """Return the function that makes an error, as (its code, the global names of its module). Add its caller if that is
    in the same file.
    """
    caller = frame.f_back
    found = [frame] if caller is None or caller.f_code.co_filename != frame.f_code.co_filename else [frame, caller]
    return [(each.f_code, each.f_globals) for each in found]


def _texts_of(code: CodeType, names: dict[str, Any]) -> Iterator[str]:
    """Yield the strings in a function's source, and the string constants of its module that the function uses."""
    yield from (text for text in code.co_consts if isinstance(text, str))
    constants = (names.get(name) for name in code.co_names if name.isupper())
    yield from (text for text in constants if isinstance(text, str))


def _ends_with(text: str, step: str) -> bool:
    return text == step or text.endswith((f": {step}", f"? {step}"))


class UsageError(GdbheapError):
    """The command was typed wrongly: an unknown option, an invalid address, a value out of range."""

    status = 2


class NotPermitted(GdbheapError):
    """The kernel refuses access to the process or the file; the message names the cause and the remedy."""

    status = 3


class NoTarget(GdbheapError):
    """There is no memory to read. Either the process does not exist, or is a zombie or a kernel thread, or the file is
    empty or not a core.
    """

    status = 4


NO_MATCH = "no running process matches: 'heap ps' lists the programs"


class Unsupported(GdbheapError):
    """gdbheap does not know the allocator, the interpreter or the architecture."""

    status = 5


class NotAPython(Unsupported):
    """The target has no Python interpreter; questions that are not about Python can still be answered."""


class NotInUse(Unsupported):
    """The target contains an allocator that it does not use."""


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
    cause = EXHAUSTED[number]
    return GdbheapError(f"gdbheap could not continue: {cause}; a process that was stopped runs on", next_steps(cause))


def reason_of(error: BaseException) -> str:
    """Return the reason, on one line, why one of several processes could not be read."""
    if isinstance(error, GdbheapError):
        return str(error)
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in EXHAUSTED):
        return str(exhausted(error))
    if isinstance(error, OSError):
        return one_line(error)
    if isinstance(error, KeyboardInterrupt):
        return "reading this process was interrupted; the process runs on"
    return f"a fault of gdbheap ({type(error).__name__})"
