"""A session: lines are read and answered one after the other, about one target, until there are no more."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress

from gdbheap.commands.shell.cores import Subject
from gdbheap.commands.shell.kept import Kept
from gdbheap.commands.shell.line import Opener
from gdbheap.commands.shell.lines import Lines, history_file, opened_lines
from gdbheap.commands.shell.streams import PARTIAL, complain, fault, write
from gdbheap.commands.shell.words import HELP, OFFERED, OWN, QUIT, REFRESH, completions, find_command, split
from gdbheap.commands.surface.declaration import GDB, OPTIONS, SHELL, AnyCommand
from gdbheap.commands.surface.help import grouped, help_text, options_help
from gdbheap.commands.surface.needs import CALLED, FOLLOWED
from gdbheap.commands.surface.options import Common
from gdbheap.commands.surface.parser import wants_help
from gdbheap.commands.surface.progress import tell
from gdbheap.commands.surface.session import Result, present, status_of
from gdbheap.contents.python.text.disclosure import NO_TEXT
from gdbheap.errors import GdbheapError, UsageError
from gdbheap.report.text.style import style_for

__all__ = ["Talk"]

PROMPT = "gdbheap> "
GREETING = f"'{HELP}' lists the commands, '{REFRESH}' looks at the target anew, '{QUIT[0]}' or Ctrl-D ends"


class _Ended(Exception):
    """The session is over: somebody said so, or nobody reads its answers any more."""


# Answers a command about the session's target.
Answering = Callable[[AnyCommand, Subject, list[str], Opener], Result]


class Talk:
    """The session of ``gdbheap shell``. ``answering`` answers each command; the ``options`` that began the session hold
    for all of them."""

    def __init__(self, kept: Kept, options: Common, answering: Answering) -> None:
        self._kept = kept
        self._options = options
        self._answering = answering
        self._status = 0

    def run(self) -> int:
        """Answer all lines. Returns the highest status of a command, of a terminal's session 0. Raises GdbheapError
        where there is no target, KeyboardInterrupt where no command is interrupted."""
        self._kept.take()
        history = None if self._options.no_text else history_file(os.environ)
        with opened_lines(PROMPT, completions, history) as lines:
            if lines.is_terminal:
                tell(GREETING)
            with suppress(_Ended):
                while self._goes_on(lines):
                    pass
        return 0 if lines.is_terminal else self._status

    def _goes_on(self, lines: Lines) -> bool:
        """Read a line and answer it; False at the end. A Ctrl-C while another one is being told ends nothing."""
        try:
            return self._one(lines)
        except KeyboardInterrupt as interrupt:
            if not lines.is_terminal or _ends_program(interrupt):
                raise
            return True

    def _one(self, lines: Lines) -> bool:
        try:
            line = lines.next()
        except UsageError as error:
            self._note(complain(str(error), error.status))
            return True
        except KeyboardInterrupt as interrupt:
            if not lines.is_terminal or _ends_program(interrupt):
                raise
            print()
            return True
        if line is not None:
            self._answer(line)
        return line is not None

    def _answer(self, line: str) -> None:
        """Answer one line. What goes wrong is one line, and the next one is read."""
        words: list[str] = []
        try:
            words = split(line)
            if words:
                self._do(words)
        except KeyboardInterrupt as interrupt:
            if _ends_program(interrupt):
                raise
            self._note(complain("interrupted; the session goes on"))
        except BrokenPipeError:
            raise _Ended from None
        except _Ended:
            raise
        except Exception as error:
            self._note(complain(*fault(error, [*words, *self._defaults()])))

    def _do(self, words: list[str]) -> None:
        first, rest = words[0], words[1:]
        if first in QUIT and not rest:
            raise _Ended
        if first == REFRESH and not rest:
            self._kept.take()
        elif first in OWN and first != HELP:
            raise UsageError(f"{first}: unrecognized arguments: {' '.join(rest)}")
        elif first == HELP or wants_help(words):
            self._write(_help(rest if first == HELP else [word for word in words if not word.startswith("-")]))
        else:
            self._ask(words)

    def _ask(self, words: list[str]) -> None:
        command, rest = find_command(words)
        if command.needs in (FOLLOWED, CALLED):
            self._kept.check_alive()
        answered = self._answering(command, self._kept.target, [*self._defaults(), *rest], self._kept.open)
        style = style_for(sys.stdout, answered.options.exact, answered.info.rss, answered.info.private)
        self._write(present(answered, style))
        self._note(status_of(answered))

    def _defaults(self) -> list[str]:
        """The options that hold for each command, as they are typed; one that is typed again counts."""
        options = self._options
        switches = {"--json": options.json, "--bytes": options.exact, NO_TEXT: options.no_text}
        return [*(name for name, given in switches.items() if given), f"--max-stop={options.max_stop}"]

    def _write(self, text: str) -> None:
        """Raises BrokenPipeError where nobody reads any more, _Ended where nothing can be written."""
        try:
            write(text)
        except GdbheapError as error:
            self._note(complain(str(error), PARTIAL))
            raise _Ended from None

    def _note(self, status: int) -> None:
        self._status = max(self._status, status)


def _ends_program(interrupt: KeyboardInterrupt) -> bool:
    """Whether it is one of the signals that ask a program to end: Ctrl-C asks no more than a command."""
    return type(interrupt) is not KeyboardInterrupt


def _help(words: list[str]) -> str:
    """Of the command that the words name, or what there is."""
    if words in ([OPTIONS], [GDB, OPTIONS], [SHELL, OPTIONS]):
        return options_help(GDB)
    if words:
        command, _ = find_command(words)
        return help_text(command, command.name)
    return "\n".join([
        f"The commands, before which '{GDB}' may be left out:",
        *grouped(OFFERED, {}, GDB),
        "This session:",
        *(f"  {word:<17} {what}" for word, what in OWN.items()),
    ])  # fmt: skip
