"""The commands' nouns by what tests do with them, from the declarations: a new command is tried without being named."""

from __future__ import annotations

from gdbheap.commands.surface.declaration import ADDRESS, FILE, SOME_ADDRESS
from gdbheap.commands.surface.needs import CALLED, FOLLOWED, LOOKS, PROCESS, TARGET
from gdbheap.commands.surface.registry import COMMANDS

DRAWING = ("duplicates", "owners", "report", "retained", "snapshot", "tasks", "threads", "unreachable", "why", "refs")
# Of a process or a core, without an address: those that are quick, and those that compute for long.
PLAIN, GRAPHS = (
    tuple(
        noun
        for noun, command in COMMANDS.items()
        if command.needs is TARGET
        and not command.program
        and command.argument in (None, SOME_ADDRESS)
        and (noun in DRAWING) is draws
    )
    for draws in (False, True)
)
ADDRESSED = tuple(noun for noun, command in COMMANDS.items() if command.argument is ADDRESS)
WRITING = tuple(noun for noun, command in COMMANDS.items() if command.argument is FILE)
COMPARING = tuple(noun for noun, command in COMMANDS.items() if command.needs is LOOKS)
# Of one program alone, with tests of their own.
PARTICULAR = tuple(noun for noun, command in COMMANDS.items() if command.program)
# A process while it runs.
FOLLOWING = tuple(noun for noun, command in COMMANDS.items() if command.needs in (FOLLOWED, CALLED))
# What gdb has no command for: about many processes, or files.
SHELL_ONLY = tuple(noun for noun, command in COMMANDS.items() if command.needs.shell_only)
LIVE_ONLY = tuple(noun for noun, command in COMMANDS.items() if command.needs is PROCESS)
