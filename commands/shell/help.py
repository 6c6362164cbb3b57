"""The texts of ``gdbheap --help`` and ``gdbheap NOUN --help``."""

from __future__ import annotations

from gdbheap.commands.shell.line import extra_options
from gdbheap.commands.surface.help import help_text
from gdbheap.commands.surface.registry import COMMANDS, GROUPS

__all__ = ["help_of", "overview"]

# What the shell does itself, by the group in which it is listed.
OWN = {
    "Start here": {
        "install": "Have gdb know these commands: gdb -p PID -ex heap (--remove: no longer)",
        "help": "What a command does and shows: help NOUN, NOUN --help (also --version, --gdb-script)",
    },
    "Data and scripts": {"schema": "What each key of --json means: schema [NOUN]"},
}


def help_of(noun: str) -> str:
    """Return the help of the command with that noun."""
    command = COMMANDS[noun]
    return help_text(command, command.shell_name, command.needs, extra_options(command))


def overview() -> str:
    """Return one screen with all commands, in groups, each with the question that it answers."""
    lines: list[str] = []
    for title, nouns in GROUPS.items():
        questions = {noun or "PID": COMMANDS[noun].question for noun in nouns}
        lines += [f"{title}:", *(f"  {noun:<12} {what}" for noun, what in {**questions, **OWN.get(title, {})}.items())]
    return "\n".join([
        "gdbheap says where a process's memory went, down to the last page, and what to do about it.",
        "Usage: gdbheap [NOUN] TARGET [ADDRESS] [--json] [--top=N] [--option=VALUE]; several: PID PID…, --children",
        "TARGET is a process id or the path of a core. NOUN is one of these, or left out:",
        *lines,
        "Exit status: 0 answered, 1 damaged or partial, 2 wrong usage, 3 not permitted, 4 no target, 5 not supported",
    ])  # fmt: skip
