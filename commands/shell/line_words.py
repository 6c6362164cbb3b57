"""Handle lines of a session: split them into words, find the command, complete them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from typing import Any

from gdbheap.commands.surface.completion import option_words
from gdbheap.commands.surface.declaration import FILE, GDB, OPTIONS, SHELL, AnyCommand
from gdbheap.commands.surface.nearest import did_you_mean
from gdbheap.commands.surface.needs import LOOKS
from gdbheap.commands.surface.registry import COMMANDS, HEAP_NOUN, SHELL_ONLY
from gdbheap.errors import UsageError
from gdbheap.files import open_folder

__all__ = ["HELP", "OFFERED", "OWN", "QUIT", "REFRESH", "completions", "find_command", "split"]

HELP, REFRESH, QUIT = "help", "refresh", ("quit", "exit")
# The words that a session itself understands, with their texts for help.
OWN = {
    HELP: "show this list; 'help NOUN' explains a command, 'help options' explains options",
    REFRESH: "read the target as it is now",
    **dict.fromkeys(QUIT, "end the session, like Ctrl-D"),
}
# The same commands as in gdb, because a session has only one target, as gdb has.
OFFERED = tuple(noun for noun in COMMANDS if noun not in SHELL_ONLY)
PATHS = ("FILE", "FOLDER")
MOST_PATHS = 1000
COMMENT = "#"


def split(line: str) -> list[str]:
    """Split a line into words; empty for an empty line or a comment. Raises UsageError if a quote is not closed."""
    if line.lstrip().startswith(COMMENT):
        return []
    try:
        return shlex.split(line)
    except ValueError as error:
        raise UsageError(f"the line cannot be read: {error}") from None


def find_command(words: list[str]) -> tuple[AnyCommand, list[str]]:
    """Return the command on a line, and the words after its name. Raises UsageError."""
    noun, rest = _noun(words)
    if noun in OFFERED:
        return COMMANDS[noun], rest
    if noun in COMMANDS:
        raise UsageError(f"{noun} does not work in a session: type {COMMANDS[noun].shell_name} in a shell")
    raise UsageError(f"{noun!r} is not a command here{did_you_mean(noun, OFFERED)} ('{HELP}' lists the commands)")


def _noun(words: list[str]) -> tuple[str, list[str]]:
    """Return the command's name on a line, and the words after it.

    "heap" or "gdbheap" may come before the name. A line without a name means the command ``heap``.
    """
    left = words[1:] if words[:1] in ([GDB], [SHELL]) else words
    if not left or left[0].startswith("-"):
        return HEAP_NOUN, left
    return left[0], left[1:]


def completions(before: str, last: str) -> list[str]:
    """Return the completions of the word ``last``. ``before``: the text before it on the line."""
    words = before.split()
    about_help = words[:1] == [HELP]
    words = words[1:] if about_help else words
    prefixed = words[:1] in ([GDB], [SHELL])
    if prefixed:
        words = words[1:]
    if not words and not last.startswith("-"):
        own = (OPTIONS,) if about_help else () if prefixed else OWN
        return _starting([*filter(None, OFFERED), *own, *([] if prefixed else [GDB])], last)
    noun = words[0] if words and not words[0].startswith("-") else HEAP_NOUN
    if about_help or noun not in OFFERED:
        return []
    return list(_arguments(COMMANDS[noun], last))


def _arguments(command: AnyCommand, last: str) -> Iterator[str]:
    name, given, value = last.partition("=")
    if last.startswith("-") and not given:
        yield from _starting(option_words(command), last)
    elif last.startswith("-"):
        yield from _starting(option_words(command), last)
        option = next((option for option in command.all_options if option.name == name), None)
        if option is not None and option.metavar in PATHS:
            yield from (f"{name}={path}" for path in _paths(value))
    elif command.argument is FILE or command.needs is LOOKS:
        yield from _paths(last)


def _starting(words: list[str], last: str) -> list[str]:
    return [word for word in words if word.startswith(last)]


def _paths(start: str) -> Iterator[str]:
    """Yield the paths that begin with ``start``. Paths that would need quotes, such as those with escape sequences, are
    left out."""
    folder, name = os.path.split(start)
    try:
        number = open_folder(os.path.expanduser(folder) or ".")
    except (OSError, ValueError):
        return
    try:
        with os.scandir(number) as entries:
            found = [_path(folder, entry) for entry, _ in zip(entries, range(MOST_PATHS)) if _is_meant(entry, name)]
    except OSError:
        return
    finally:
        os.close(number)
    # "~" is the only special character that needs no quotes, and only at the beginning.
    yield from sorted(path for path in found if shlex.quote(rest := path.removeprefix("~")) == rest)


def _is_meant(entry: os.DirEntry[Any], name: str) -> bool:
    return entry.name.startswith(name) and (bool(name) or not entry.name.startswith("."))


def _path(folder: str, entry: os.DirEntry[str]) -> str:
    # Do not follow a link, because its file system may never answer.
    return os.path.join(folder, entry.name) + ("/" if entry.is_dir(follow_symlinks=False) else "")
