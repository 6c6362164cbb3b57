"""The help of a command, in gdb, in a shell and in docs/commands.md, from its declaration."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from gdbheap.commands.surface.declaration import AnyCommand
from gdbheap.commands.surface.needs import Needs
from gdbheap.commands.surface.options import Option

__all__ = ["help_of_its_own", "help_text", "option_text"]

WIDTH = 78
START = "--"


def help_text(
    command: AnyCommand, prog: str = "", subject: Needs[Any] | None = None, extra: Sequence[Option] = ()
) -> str:
    """One sentence, the usage, what it means, a paragraph per argument and option, an example. ``subject``: what is
    typed between the noun and the rest; None for nothing, unless only a shell has the command."""
    subject = subject or _own_subject(command)
    return _page(command, prog or command.name, subject, (*command.all_options, *extra), [])


def help_of_its_own(command: AnyCommand) -> str:
    """The help in gdb, or in a shell where gdb has no such command, without the options that every command has."""
    return _page(
        command, command.name, _own_subject(command), (*command.own_options, *command.listing_options), ["[OPTION]..."]
    )


def _own_subject(command: AnyCommand) -> Needs[Any] | None:
    return command.needs if command.needs.shell_only else None


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
    command: AnyCommand, prog: str, subject: Needs[Any] | None, options: Sequence[Option], more: list[str]
) -> str:
    """ "heap holes [--min=SIZE] …": first what cannot be left out."""
    words = subject.words if subject else command.needs.in_gdb
    needed = [option.spelling for option in options if option.needed]
    others = [f"[{option.spelling}]" for option in options if not option.needed]
    argument = command.argument.metavar if command.argument else ""
    return _line(prog, words, [argument, *needed, *others, *more])


def _line(prog: str, words: str, rest: Sequence[str]) -> str:
    """What is typed: what it is about follows the noun; where that may be another command's line, it comes last."""
    ordered = [prog, *rest, words] if START in words else [prog, words, *rest]
    return " ".join(word for word in ordered if word)


def option_text(option: Option) -> str:
    """An option's paragraph."""
    return _entry(option.spelling, option.help)


def _example(command: AnyCommand, prog: str, subject: Needs[Any] | None) -> str:
    """The example as it is typed here: a shell has the target after the noun."""
    return _line(prog, subject.example if subject else "", [command.example[len(command.name) :].strip()])


def _filled(text: str) -> str:
    return "\n\n".join(textwrap.fill(" ".join(part.split()), WIDTH) for part in text.strip().split("\n\n"))


def _entry(title: str, text: str) -> str:
    return textwrap.fill(f"{title}: {text}.", WIDTH, initial_indent="  ", subsequent_indent="      ")
