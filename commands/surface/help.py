"""Make the help of a command from its declaration, for gdb, the shell and docs/commands.md."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from gdbheap.commands.surface.declaration import OPTIONS, SHELL, AnyCommand
from gdbheap.commands.surface.needs import Needs
from gdbheap.commands.surface.options import Common, Option, options_of

__all__ = [
    "LISTING",
    "NAMES",
    "anchor",
    "help_of_its_own",
    "help_text",
    "option_entry",
    "options_help",
]

# The width of a line, and of the column with the options' names. The help of a longer name begins further right.
WIDTH, NAMES = 78, 20
START = "--"
# Texts inside which a line is not broken: a default, and a quoted command.
WHOLE = re.compile(r"\[default[^]]*\]|(?:pip install )?'(?:gdb)?heap[^']*'")
NO_GROUPS: Mapping[str, Sequence[str]] = MappingProxyType({})
# The help of --top and --sort if it is not about one command.
LISTING = (
    Option("--top", "N", "list at most N rows; 0 or 'all': no limit", details="It also cuts the rows of --json."),
    Option("--sort", "KEY", "sort by KEY, largest first; names in alphabetical order"),
)


def help_text(
    command: AnyCommand,
    prog: str = "",
    subject: Needs[Any] | None = None,
    extra: Sequence[Option] = (),
    groups: Mapping[str, Sequence[str]] = NO_GROUPS,
) -> str:
    """Return the help of a command: a sentence, the usage, a line for each option, an example.

    ``subject``: the words after the command's name (a shell's TARGET), None for none; a command that exists only in a
    shell always has these words. ``groups``: the names of the commands that may follow, by the titles of their groups.
    """
    subject = subject or _own_subject(command)
    called = prog or command.name
    caller = SHELL if subject else called.split()[0]
    asked = f"{SHELL} help {OPTIONS}" if subject else f"help {caller} {OPTIONS}"
    common = " ".join(option.name for option in (*options_of(Common), *extra))
    lines = _head(command, called, subject)
    for title, nouns in groups.items():
        lines += _entry(title, " ".join(nouns), 16)
    lines += ["", "Options without a command:"] if groups else []
    lines += [*_entries(command), *_filled(f"Common options ({asked}): {common}", "  "), ""]
    lines += _about(command)
    return "\n".join([*lines, *_example(command, called, subject), f"More: docs/commands.md#{anchor(command)}"])


def help_of_its_own(command: AnyCommand) -> str:
    """Return the help of a command without the common options, for docs/commands.md. The usage and the example are
    those for gdb; for a command that gdb does not have, those for a shell.
    """
    subject = _own_subject(command)
    entries = [*_entries(command)]
    lines = [*_head(command, command.name, subject), *entries, *([""] if entries else []), *_about(command)]
    return "\n".join([*lines, *_example(command, command.name, subject)])


def options_help(caller: str, extra: Sequence[Option] = ()) -> str:
    """Return the help of the options that all commands have. ``caller``: the first word of commands; ``extra``: the
    options that only a shell has."""
    target = " TARGET" if extra else ""
    lines = ["Explain the options that most commands have.", "", f"Usage: {caller} NOUN{target} [options]", ""]
    for option in (*LISTING, *options_of(Common), *extra):
        lines += option_entry(option, NAMES)
    sizes = "A SIZE is a number of bytes, or has a unit: K, M, G or T (powers of 1024). A TIME is a number of seconds,"
    lines += ["", *_filled(f"{sizes} or has a unit: ms, s, m, h or d.")]
    example = f"{caller} holes 1234 --top=5 --json" if extra else f"{caller} holes --top=5 --json"
    return "\n".join([*lines, "", f"Example: {example}", "More: docs/commands.md#options-of-every-command"])


def anchor(command: AnyCommand) -> str:
    """Return the anchor of a command's section in docs/commands.md."""
    return command.name.replace(" ", "-")


def option_entry(option: Option, column: int) -> list[str]:
    """Return the lines for an option, with its details. ``column``: the width of the column of names."""
    details = f". {option.details}" if option.details else ""
    return _entry(option.spelling, f"{option.help}{details}", column)


def _own_subject(command: AnyCommand) -> Needs[Any] | None:
    return command.needs if command.needs.shell_only else None


def _head(command: AnyCommand, called: str, subject: Needs[Any] | None) -> list[str]:
    return [f"{command.summary}.", "", f"Usage: {_usage(command, called, subject)}", ""]


def _usage(command: AnyCommand, called: str, subject: Needs[Any] | None) -> str:
    """Return the usage of a command, such as "heap holes [options]". Words that are required come first."""
    words = subject.words if subject else command.needs.in_gdb
    needed = [option.spelling for option in command.own_options if option.needed]
    argument = command.argument.metavar if command.argument else ""
    noun = "[NOUN]" if subject is None and not command.noun else ""
    return _line(called, words, [noun, argument, *needed, "[options]"])


def _line(called: str, words: str, rest: Sequence[str]) -> str:
    """Return the usage as one line.

    The target follows the command's name, but comes last if it may be another program's command line.
    """
    ordered = [called, *rest, words] if START in words else [called, words, *rest]
    return " ".join(word for word in ordered if word)


def _entries(command: AnyCommand) -> Iterator[str]:
    """Yield the lines for the command's argument and for its own options, below the command's headings if there are
    any."""
    options = {option.name: option for option in (*command.own_options, *command.listing_options)}
    argument = command.argument
    titles = [option.spelling for option in options.values()] + ([argument.metavar] if argument else [])
    column = min(NAMES, max(map(len, titles), default=0))
    if argument:
        yield from _entry(argument.metavar, argument.help, column)
    for heading, names in command.headings.items():
        yield f"{heading}:"
        yield from (line for name in names for line in option_entry(options.pop(name), column))
    yield from (line for option in options.values() for line in option_entry(option, column))


def _about(command: AnyCommand) -> list[str]:
    return [*_filled(command.text), ""] if command.text else []


def _example(command: AnyCommand, called: str, subject: Needs[Any] | None) -> Iterator[str]:
    """Yield the line with the example. In a shell, the target follows the name of the command; in gdb, the example has
    no target."""
    target = subject.example if subject else ""
    yield f"Example: {_line(called, target, [command.example[len(command.name) :].strip()])}"


def _filled(text: str, later: str = "") -> list[str]:
    return _wrapped(" ".join(text.split()), "", later)


def _entry(title: str, text: str, column: int) -> list[str]:
    """Return the lines for a name, with its text in the next column."""
    return _wrapped(text, f"  {title:<{column}}  ", " " * (column + 4))


def _wrapped(text: str, first: str, later: str) -> list[str]:
    whole = WHOLE.sub(lambda found: found[0].replace(" ", "\xa0"), text)
    lines = textwrap.wrap(
        whole, WIDTH, initial_indent=first, subsequent_indent=later, break_on_hyphens=False, break_long_words=False
    )
    return [line.replace("\xa0", " ") for line in lines]
