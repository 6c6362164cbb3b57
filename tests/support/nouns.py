"""The commands' nouns by their use in tests, from the declarations: a new command is tested without being named."""

from __future__ import annotations

from gdbheap.commands.surface.declaration import ADDRESS, FILE, SOME_ADDRESS
from gdbheap.commands.surface.needs import CALLED, FOLLOWED, LOOKS, PROCESS, TARGET
from gdbheap.commands.surface.registry import COMMANDS

DRAWING = ("duplicates", "owners", "report", "retained", "snapshot", "tasks", "threads", "unreachable", "why", "refs")
# For a process or a core, without an address: the quick ones, and those that compute for long.
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
# For one kind of program only, with their own tests.
PARTICULAR = tuple(noun for noun, command in COMMANDS.items() if command.program)
# For a running process.
FOLLOWING = tuple(noun for noun, command in COMMANDS.items() if command.needs in (FOLLOWED, CALLED))
# Without a command in gdb: about many processes, or files.
SHELL_ONLY = tuple(noun for noun, command in COMMANDS.items() if command.needs.shell_only)
LIVE_ONLY = tuple(noun for noun, command in COMMANDS.items() if command.needs is PROCESS)
