"""The names of commands by their use in tests, taken from the declarations, so that a new command is tested without
being listed.
"""

from __future__ import annotations

from gdbheap.commands.surface.declaration import ADDRESS, FILE, SOME_ADDRESS
from gdbheap.commands.surface.needs import CALLED, FOLLOWED, LOOKS, PROCESS, TARGET
from gdbheap.commands.surface.registry import COMMANDS

DRAWING = ("duplicates", "owners", "report", "retained", "snapshot", "tasks", "threads", "unreachable", "why", "refs")
# Commands for a process or a core without an address: the quick ones, and those that compute for long.
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
# Commands for one kind of program only, which have their own tests.
PARTICULAR = tuple(noun for noun, command in COMMANDS.items() if command.program)
# Commands for a running process.
FOLLOWING = tuple(noun for noun, command in COMMANDS.items() if command.needs in (FOLLOWED, CALLED))
# Commands that gdb does not have, because they are about many processes or about files.
SHELL_ONLY = tuple(noun for noun, command in COMMANDS.items() if command.needs.shell_only)
LIVE_ONLY = tuple(noun for noun, command in COMMANDS.items() if command.needs is PROCESS)
