"""The help of a command, in gdb, in a shell and in docs/commands.md, from its declaration."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from gdbheap.commands.surface.declaration import AnyCommand
from gdbheap.commands.surface.needs import Needs
from gdbheap.commands.surface.options import Option

__all__ = ["help_of_its_own", "help_text", "option_text"]

WIDTH = 78


def help_text(
    command: AnyCommand, prog: str = "", subject: Needs[Any] | None = None, extra: Sequence[Option] = ()
) -> str:
    """One sentence, the usage, what it means, a paragraph per argument and option, an example. ``subject``: what is
    typed between the noun and the rest, None for nothing."""
    return _page(command, prog or command.name, subject, (*command.all_options, *extra), [])


def help_of_its_own(command: AnyCommand) -> str:
    """The help in gdb without the options that every command has."""
    return _page(command, command.name, None, (*command.own_options, *command.listing_options), ["[OPTION]..."])


def _page(
    command: AnyCommand, prog: str, subject: Needs[Any] | None, options: Sequence[Option], more: list[str]
) -> str:
    paragraphs = [command.question, f"Usage: {_usage(command, prog, subject, options, more)}", _filled(command.text)]
    if command.argument:
        paragraphs.append(_entry(command.argument.metavar, command.argument.help))
    paragraphs.extend(option_text(option) for option in options)
    paragraphs.append(f"Example:\n  {_example(command, prog, subject)}")
    return "\n\n".join(paragraphs)


def _usage(
    command: AnyCommand, prog: str, subject: Needs[Any] | None, options: Iterable[Option], more: list[str]
) -> str:
    """ "heap holes [--min=SIZE] …"."""
    words = [
        prog,
        subject.words if subject else command.needs.in_gdb,
        command.argument.metavar if command.argument else "",
    ]
    spelled = [f"[{option.spelling}]" for option in options]
    return " ".join(word for word in [*words, *spelled, *more] if word)


def option_text(option: Option) -> str:
    """An option's paragraph."""
    return _entry(option.spelling, option.help)


def _example(command: AnyCommand, prog: str, subject: Needs[Any] | None) -> str:
    """The example as it is typed here: a shell has the target after the noun."""
    rest = command.example[len(command.name) :].strip()
    return " ".join(word for word in (prog, subject.example if subject else "", rest) if word)


def _filled(text: str) -> str:
    return "\n\n".join(textwrap.fill(" ".join(part.split()), WIDTH) for part in text.strip().split("\n\n"))


def _entry(title: str, text: str) -> str:
    return textwrap.fill(f"{title}: {text}.", WIDTH, initial_indent="  ", subsequent_indent="      ")
