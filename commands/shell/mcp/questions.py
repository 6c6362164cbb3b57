"""Check which commands and options a client may use, before anything is opened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Union

from gdbheap.commands.surface.declaration import FILE, SHELL, AnyCommand
from gdbheap.commands.surface.nearest import did_you_mean
from gdbheap.commands.surface.needs import CALLED, FOLLOWED, PROCESS, TARGET
from gdbheap.commands.surface.options import Common
from gdbheap.commands.surface.parser import parse
from gdbheap.commands.surface.registry import COMMANDS, HEAP_NOUN
from gdbheap.errors import UsageError

__all__ = ["CALLS", "COMPARED", "HEAP", "OFFERED", "Value", "command_named", "words_of"]

Value = Union[str, int, float, bool, None]
HEAP = "heap"
"""The name that clients use for the command whose own name is empty."""
COMPARED = "diff"
# Values of a command's ``needs`` for which a session answers the command.
KEPT = (TARGET, PROCESS)
CALLS = ("stats", "growth", "catch")
"""Commands that call into the process or change its code."""
ONCE = ("ps", "doctor", "processes", "sql")
"""Commands for a shell only: they are not part of a session about one target."""
PATHS = (FILE.metavar, "FOLDER")
# Options that name a file to read, never one to write.
READ = ("--since", "--calls")
MOST_CHARACTERS = 10_000
# Options that a client may not use, because the server's tools set them, or because they may end the process: under a
# seccomp filter a call may be answered by SIGSYS.
OWN = ("--json", "--no-text", "--with-contents")
DANGEROUS = ("--seccomp",)


def _is_offered(noun: str) -> bool:
    if noun in CALLS or noun in ONCE:
        return True
    command = COMMANDS[noun]
    return command.needs in KEPT and command.argument is not FILE


OFFERED = tuple(noun or HEAP for noun in COMMANDS if _is_offered(noun))
"""The names of the commands that a client may use."""


def command_named(name: str) -> AnyCommand:
    """Return the command that a client names. Raises UsageError if clients may not use it."""
    noun = name.removeprefix(f"{SHELL} ").removeprefix(f"{HEAP} ")
    noun = HEAP_NOUN if noun in (HEAP, SHELL) else noun
    if noun == COMPARED:
        raise UsageError("use the tool compare to compare two states")
    if (noun or HEAP) in OFFERED:
        return COMMANDS[noun]
    if noun in COMMANDS:
        raise UsageError(
            f"{noun} runs for long or writes files, and is not offered here: type {SHELL} {noun} in a shell"
        )
    raise UsageError(f"there is no command {noun!r}{did_you_mean(noun, OFFERED)}")


def words_of(command: AnyCommand, argument: str | None, options: Mapping[str, Value], allows_calls: bool) -> list[str]:
    """Return the words of a command line that follow the command's name.

    Raises UsageError for a wrong option or argument, and for an option that would write a file. If ``allows_calls`` is
    False, also raises UsageError for a call into the process."""
    if (argument is not None) != (command.argument is not None) and not _may_lack(command, argument):
        need = f"needs {command.argument.metavar} as its argument" if command.argument else "takes no argument"
        raise UsageError(f"{command.shell_name} {need}")
    if argument is not None and (argument.startswith("-") or not argument.strip() or len(argument) > MOST_CHARACTERS):
        raise UsageError(
            f"{command.shell_name}: the argument must not be empty or an option, or have more "
            f"than {MOST_CHARACTERS:,} characters"
        )
    words = [*([argument] if argument is not None else []), *_typed(command, options)]
    for word in words:
        if any(not part.isprintable() for part in word):
            raise UsageError(f"{command.shell_name}: line breaks and other control characters are not allowed")
    chosen, _, _ = parse(command, words, command.shell_name)
    _check_files(command, chosen)
    chosen.check()
    if not allows_calls and (command.needs in (FOLLOWED, CALLED) or command.call_for(chosen) is not None):
        raise UsageError(
            f"{command.shell_name}: this would call into the process or change its code; start the server with "
            "--allow-calls to allow it"
        )
    return words


def _check_files(command: AnyCommand, chosen: Common) -> None:
    """Raise UsageError if an option names a file to be written."""
    for option in command.own_options:
        if option.metavar in PATHS and option.name not in READ and getattr(chosen, option.key, None):
            raise UsageError(f"{command.shell_name}: {option.name} writes a file, which is not offered here")


def _may_lack(command: AnyCommand, argument: str | None) -> bool:
    return argument is None and command.argument is not None and command.argument.metavar.startswith("[")


def _typed(command: AnyCommand, options: Mapping[str, Value]) -> Iterator[str]:
    known = {option.name: option for option in command.all_options}
    for key, value in options.items():
        name = f"--{key.lstrip('-').replace('_', '-')}"
        if name not in known:
            usual = [word for word in known if word not in (*OWN, *DANGEROUS)]
            raise UsageError(f"{command.shell_name}: there is no option {name}{did_you_mean(name, usual)}")
        if name in OWN:
            raise UsageError(f"{command.shell_name}: {name} cannot be chosen here: the server sets it")
        if name in DANGEROUS:
            raise UsageError(f"{command.shell_name}: {name} may end the process, and is not offered here: use a shell")
        if value is True:
            yield name
        elif value is not None and value is not False:
            yield f"{name}={value}"
