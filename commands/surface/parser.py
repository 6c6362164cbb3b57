"""Parse the words of a command line after the command's name, for gdb and for the shell."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn, TypeVar

from gdbheap.commands.surface.declaration import SHELL, AnyCommand, Command
from gdbheap.commands.surface.nearest import did_you_mean
from gdbheap.commands.surface.options import Common, Option
from gdbheap.contents.python.text.disclosure import wanted
from gdbheap.errors import UsageError

__all__ = ["help_call", "parse", "wants_help"]

WIDTH = 80
Chosen = TypeVar("Chosen", bound=Common)


class _Parser(argparse.ArgumentParser):
    """An argparse parser that raises UsageError. argparse itself would exit: in gdb that would print a Python
    exception, in a shell two lines."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message} (see {help_call(self.prog)})")


def help_call(prog: str) -> str:
    """Return the text to type for help about a command. ``prog``: the command's name, in gdb or in a shell."""
    return f"'{prog} --help'" if prog.startswith(SHELL) else f"'help {prog}'"


def _typed(option: Option) -> Callable[[str], Any]:
    """Return a parser of the option's value. If it fails, argparse's error contains the parser's own message."""

    def convert(text: str) -> Any:
        try:
            return option.parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def _parser(command: AnyCommand, prog: str, extra: Sequence[Option]) -> argparse.ArgumentParser:
    # Without a width, argparse asks for the terminal's, and imports shutil for this.
    plain = partial(argparse.HelpFormatter, width=WIDTH)
    parser = _Parser(prog=prog, add_help=False, allow_abbrev=False, formatter_class=plain)
    for option in (*command.all_options, *extra):
        if option.takes_next:
            parser.add_argument(option.name, dest=option.key, metavar=option.metavar, type=_typed(option))
        elif option.metavar:
            # argparse also calls the type's function for ``const``.
            parser.add_argument(option.name, dest=option.key, nargs="?", const=option.bare, type=_typed(option))
        else:
            parser.add_argument(option.name, dest=option.key, action="store_true")
    parser.add_argument("words", nargs="*", metavar=command.argument.metavar if command.argument else "WORD")
    return parser


def wants_help(words: Sequence[str]) -> bool:
    """Return whether the words ask for help. If they do, the other words are ignored."""
    return "--help" in words or "-h" in words


def parse(
    command: Command[Any, Chosen, Any], words: Sequence[str], prog: str = "", extra: Sequence[Option] = ()
) -> tuple[Chosen, dict[str, Any], list[str]]:
    """Parse the words. Return the command's options, the values of the options ``extra`` by key, and all other words.
    Raises UsageError with a message of one line."""
    parser = _parser(command, prog or command.name, extra)
    known, rest = _split(words, command, extra, parser)
    names = [option.name for option in (*command.all_options, *extra)]
    for name in (word.partition("=")[0] for word in known):
        # The value may directly follow the letter: -oFILE.
        if name not in names and (name.startswith("--") or name[:2] not in names):
            parser.error(f"there is no option {name}{did_you_mean(name, names)}")
    typed = vars(parser.parse_args([*known, "--", *rest]))
    found = {key: value for key, value in typed.items() if value is not None}
    left = [word for word in found.pop("words") if word != "--"]
    others = {option.key: found.pop(option.key) for option in extra if option.key in found}
    return _options(command, found), others, left


def _split(
    words: Sequence[str], command: AnyCommand, extra: Sequence[Option], parser: argparse.ArgumentParser
) -> tuple[list[str], list[str]]:
    """Separate the words into options with their values, and all other words.

    argparse alone cannot do that: an expression may contain words that begin with a hyphen.
    """
    valued = {option.name for option in (*command.all_options, *extra) if option.takes_next}
    known: list[str] = []
    rest: list[str] = []
    waiting = iter(words)
    for word in waiting:
        if not _is_option(word, command):
            rest.append(word)
            continue
        known.append(word)
        if word in valued:
            value = next(waiting, None)
            if value is None:
                parser.error(f"argument {word}: expected one argument")
            known[-1] = f"{word}={value}"
    return known, rest


def _is_option(word: str, command: AnyCommand) -> bool:
    """Return whether a word is an option: it has two hyphens and a name, or one hyphen and a letter.

    If the command has an argument, a word with one hyphen may also be a part of an expression ("-offset"). Such a word
    is an option only if the command declares it."""
    if command.argument is not None:
        own = {option.name for option in command.own_options}
        return word.startswith("--") and len(word) > 2 or word.partition("=")[0] in own
    return word.startswith("-") and word.lstrip("-")[:1].isalpha()


def _options(command: Command[Any, Chosen, Any], values: dict[str, Any]) -> Chosen:
    options = command.options(**{"top": command.top, **values})
    given = values.get("top")
    options.has_top = given is not None
    options.no_text = options.no_text or wanted(os.environ)
    options.top = options.top or None
    options.sort = options.sort or next(iter(command.sorts), "")
    return options
