"""The texts of ``gdbheap --help``, ``gdbheap NOUN --help`` and ``gdbheap help options``."""

from __future__ import annotations

from gdbheap.commands.shell.line import Extra, extra_options
from gdbheap.commands.surface.declaration import SHELL
from gdbheap.commands.surface.help import help_text, options_help
from gdbheap.commands.surface.options import options_of
from gdbheap.commands.surface.registry import COMMANDS, grouped

__all__ = ["help_of", "help_of_options", "overview"]

# Commands that the shell runs itself, in the groups of the overview.
OWN = {
    "Start here": {
        "install": "Add these commands to gdb: gdb -p PID -ex heap (or --remove)",
        "help": "Explain NOUN, or the 'options' of all commands",
    },
    "Data and scripts": {
        "schema": "Print the JSON Schema of NOUN: schema [NOUN]",
        "mcp": "Answer questions of coding agents (Model Context Protocol)",
    },
}


def help_of(noun: str) -> str:
    """Return the text of ``gdbheap NOUN --help``. ``noun``: the command's name. Raises KeyError if there is none."""
    command = COMMANDS[noun]
    return help_text(command, command.shell_name, command.needs, extra_options(command))


def help_of_options() -> str:
    """Return the help of the options that all commands have, including those of a shell."""
    return options_help(SHELL, options_of(Extra))


def overview() -> str:
    """Return one screen with all commands in groups, each with its summary."""
    return "\n".join([
        "gdbheap shows where the memory of TARGET went: a process, several, or a core.",
        "Usage: gdbheap [NOUN] TARGET [options]; 'gdbheap NOUN --help' explains it.",
        *grouped(COMMANDS, OWN),
        "Exit status: 0 answer, 1 partial, 2 usage, 3 denied, 4 no target, 5 unsupported",
    ])  # fmt: skip
