"""Run a session: read lines about one target, and answer each, until there are no more."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import TextIO

from gdbheap.answers.accounting.records import SCHEMA
from gdbheap.commands.shell.cores import Subject
from gdbheap.commands.shell.input_lines import InputLines, Piped, history_file, opened_lines
from gdbheap.commands.shell.line import Opener
from gdbheap.commands.shell.line_words import HELP, OFFERED, OWN, QUIT, REFRESH, completions, find_command, split
from gdbheap.commands.shell.session_target import SessionTarget
from gdbheap.commands.shell.streams import PARTIAL, complain, fault, told, wants_json, write
from gdbheap.commands.surface.declaration import GDB, OPTIONS, SHELL, AnyCommand
from gdbheap.commands.surface.help import help_text, options_help
from gdbheap.commands.surface.needs import CALLED, FOLLOWED
from gdbheap.commands.surface.options import Common
from gdbheap.commands.surface.parser import wants_help
from gdbheap.commands.surface.progress import tell
from gdbheap.commands.surface.registry import grouped
from gdbheap.commands.surface.session import Result, present, status_of
from gdbheap.contents.python.text.disclosure import NO_TEXT
from gdbheap.errors import GdbheapError, UsageError, or_none
from gdbheap.report.formats.json import error_document, error_keys, text_of
from gdbheap.report.text.style import Style, style_for
from gdbheap.text import IN_GDB, IN_SHELL

__all__ = ["ShellSession"]

PROMPT = "gdbheap> "
# The JSON document of the answer to a line without a question.
NOTHING = "null"
# If a line from a program contains this word, the answer is text instead of a document.
TEXT = "--text"
INTERRUPTED = "interrupted; the session goes on"
GREETING = f"'{HELP}' lists the commands, '{REFRESH}' reads the target again, '{QUIT[0]}' or Ctrl-D ends"


class _Ended(Exception):
    """Raised if the session is over: the user ended it, or nobody reads its answers any more."""


# Answers a command about the session's target.
Answering = Callable[[AnyCommand, Subject, list[str], Opener], Result]


class ShellSession:
    """The session of ``gdbheap shell``. ``options``: the options of the line that began the session; they apply to all
    commands. ``answering``: a function that answers a command."""

    def __init__(self, kept: SessionTarget, options: Common, answering: Answering) -> None:
        self._kept = kept
        self._options = options
        self._answering = answering
        self._status = 0
        # The number of the last line to which a program got a reply.
        self._replied = 0

    def run(self) -> int:
        """Answer all lines. Return the highest status of a command, or 0 if the lines come from a terminal.

        Raises GdbheapError if the target cannot be read, and KeyboardInterrupt if Ctrl-C came while no command was
        running.
        """
        self._kept.take()
        if self._options.json:
            with suppress(_Ended):
                self._for_program(Piped())
            return self._status
        history = None if self._options.no_text else history_file(os.environ)
        with opened_lines(PROMPT, completions, history) as lines:
            if lines.is_terminal:
                tell(GREETING)
            with suppress(_Ended):
                while self._goes_on(lines):
                    pass
        return 0 if lines.is_terminal else self._status

    def _for_program(self, lines: InputLines) -> None:
        """Answer each line that another program writes with exactly one line.

        Raises _Ended, and KeyboardInterrupt if a signal asks gdbheap to end.
        """
        for number in itertools.count(1):
            try:
                line = lines.next()
            except UsageError as error:
                self._reply(number, error.status, error=str(error), steps=error.next)
                continue
            if line is None:
                return
            try:
                self._reply_to(number, line)
            except KeyboardInterrupt as interrupt:
                if _ends_program(interrupt):
                    raise
                if self._replied < number:
                    self._reply(number, PARTIAL, error=INTERRUPTED)

    def _reply_to(self, number: int, line: str) -> None:
        words: list[str] = []
        try:
            words = split(line)
            answer, status = self._document(words)
        except _Ended:
            self._reply(number, 0)
            raise
        except Exception as error:
            message, status, steps = fault(error, [*words, *self._defaults()])
            self._reply(number, status, error=message, steps=steps)
        else:
            self._reply(number, status, answer)

    def _document(self, words: list[str]) -> tuple[str, int]:
        """Return the JSON document that answers a line, and the status. The document is "null" for a line without an
        answer."""
        asks_help = words[:1] == [HELP] or wants_help(words)
        if not words or (words[0] in OWN and not asks_help):
            self._do(words)
            return NOTHING, 0
        if asks_help:
            return _said(HELP, _help_about(words)), 0
        if TEXT in words:
            answered = self._answered([word for word in words if word != TEXT], as_json=False)
            text = present(answered, _style_of(answered, None, IN_SHELL))
            return _said(answered.command.name, text), status_of(answered)
        answered = self._answered(words)
        return present(answered, style_for(None, True, None)), status_of(answered)

    def _reply(
        self, number: int, status: int, answer: str = NOTHING, error: str | None = None, steps: Sequence[str] = ()
    ) -> None:
        """Write the reply to a line. Meanwhile Ctrl-C is ignored. Raises _Ended if the reply cannot be written."""
        self._note(status)
        keys = {} if error is None else {"error": error_keys(status, told(error), list(map(told, steps)))}
        body = text_of(keys)[1:-1] if keys else f'"answer": {answer}'
        with _ctrl_c_ignored():
            self._replied = number
            try:
                self._write(f'{{"line": {number}, "status": {status}, {body}}}')
            except BrokenPipeError:
                raise _Ended from None

    def _goes_on(self, lines: InputLines) -> bool:
        """Read and answer one line. Return False if there was none.

        On a terminal, a second Ctrl-C, which comes while the first is being reported, does not end the session."""
        try:
            return self._one(lines)
        except KeyboardInterrupt as interrupt:
            if not lines.is_terminal or _ends_program(interrupt):
                raise
            return True

    def _one(self, lines: InputLines) -> bool:
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
        """Answer one line. If that fails, report the error in one line, and go on."""
        words: list[str] = []
        try:
            words = split(line)
            if words:
                self._do(words)
        except KeyboardInterrupt as interrupt:
            if _ends_program(interrupt):
                raise
            self._note(complain(INTERRUPTED))
        except BrokenPipeError:
            raise _Ended from None
        except _Ended:
            raise
        except Exception as error:
            message, status, steps = fault(error, [*words, *self._defaults()])
            self._refuse(message, words, status, steps)

    def _do(self, words: list[str]) -> None:
        first, rest = (words or [""])[0], words[1:]
        if first in QUIT and not rest:
            raise _Ended
        if first == REFRESH and not rest:
            self._kept.take()
        elif first in OWN and first != HELP:
            raise UsageError(f"{first}: unrecognized arguments: {' '.join(rest)}")
        elif first == HELP or wants_help(words):
            self._write(_help_about(words))
        elif words:
            self._ask(words)

    def _answered(self, words: list[str], as_json: bool = True) -> Result:
        command, rest = find_command(words)
        if command.needs in (FOLLOWED, CALLED):
            self._kept.check_alive()
        return self._answering(command, self._kept.target, [*self._defaults(as_json), *rest], self._kept.open)

    def _ask(self, words: list[str]) -> None:
        answered = self._answered(words)
        text = present(answered, _style_of(answered, sys.stdout))
        is_terminal = sys.stdout is not None and sys.stdout.isatty()
        # A program that reads one document per line could not read the part of a document.
        with _ctrl_c_ignored() if wants_json(words) and not is_terminal else nullcontext():
            self._write(text)
        self._note(status_of(answered))

    def _refuse(self, message: str, words: list[str], status: int, steps: list[str]) -> None:
        """Report the error of a line; also as a JSON document if the line asks for JSON."""
        if wants_json(words):
            with suppress(GdbheapError, BrokenPipeError):
                write(text_of(error_document(_name(words), status, told(message), list(map(told, steps)))))
        self._note(complain(message, status))

    def _defaults(self, as_json: bool = True) -> list[str]:
        """Return the session's options as words, to be put before the words of each command. A command's own options
        override them."""
        options = self._options
        switches = {"--json": options.json and as_json, "--bytes": options.exact, NO_TEXT: options.no_text}
        return [*(name for name, given in switches.items() if given), f"--max-stop={options.max_stop}"]

    def _write(self, text: str) -> None:
        """Print a text. Raises BrokenPipeError if nobody reads it, _Ended if it cannot be written for another
        reason."""
        try:
            write(text)
        except GdbheapError as error:
            self._note(complain(str(error), PARTIAL))
            raise _Ended from None

    def _note(self, status: int) -> None:
        self._status = max(self._status, status)


@contextmanager
def _ctrl_c_ignored() -> Iterator[None]:
    """Ignore Ctrl-C while the block runs, so that a document is written whole."""
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _ends_program(interrupt: KeyboardInterrupt) -> bool:
    """Return whether the interrupt is a signal that asks the program to end. Ctrl-C ends only a command."""
    return type(interrupt) is not KeyboardInterrupt


def _style_of(answered: Result, stream: TextIO | None, command: str = IN_GDB) -> Style:
    """Return the style of an answer for a stream. If ``stream`` is None, the style is for a text inside of JSON."""
    info, encoding = answered.info, "utf-8" if stream is None else None
    return style_for(stream, answered.options.exact, info.rss, info.private, encoding, command)


def _said(command: str, text: str) -> str:
    """Return a JSON document that contains a plain text as its answer."""
    return text_of({"command": command, "schema": SCHEMA, "text": text})


def _name(words: list[str]) -> str:
    """Return the name of the command on a line; "heap" if it cannot be found."""
    found = or_none(lambda: find_command(words)[0])
    return GDB if found is None else found.name


def _help_about(words: list[str]) -> str:
    """Return the help for a line of a session that asks for help."""
    return _help(words[1:] if words[0] == HELP else [word for word in words if not word.startswith("-")])


def _help(words: list[str]) -> str:
    """Return the help of the command that the words name, or the list of commands."""
    if words in ([OPTIONS], [GDB, OPTIONS], [SHELL, OPTIONS]):
        return options_help(GDB)
    if words:
        command, _ = find_command(words)
        return help_text(command, command.name)
    return "\n".join([
        f"The commands ('{GDB}' may be left out):",
        *grouped(OFFERED, {}, GDB),
        "This session:",
        *(f"  {word:<17} {what}" for word, what in OWN.items()),
    ])  # fmt: skip
