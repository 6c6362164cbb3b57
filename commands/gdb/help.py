"""The help texts of gdbheap's commands in gdb. They are stored in gdbheap/loader/help.txt. This module does not import
gdb."""

from __future__ import annotations

from collections.abc import Iterator

from gdbheap.commands.surface.declaration import OPTIONS
from gdbheap.commands.surface.help import help_text, options_help
from gdbheap.commands.surface.registry import COMMANDS, SHELL_ONLY, groups_of_gdb

__all__ = ["ATTACH", "OFFERED", "OPTIONS", "attach_help", "help_file"]

# gdb has one target at a time. Commands that need two targets, other files or no target exist only in a shell.
OFFERED = {noun: COMMANDS[noun] for noun in COMMANDS if noun not in SHELL_ONLY}
ATTACH = "attach"
ATTACH_HELP = """Read a process's symbols first, then attach to the process.

Usage: {prefix} attach PID

gdb's own attach reads symbols while the process is stopped. For a Python
program, reading symbols takes most of the stop. This command first reads the
symbols of the program, of libpython and of libc, and then stops the process.
The stop takes a third of the time.

Example: {prefix} attach 1234"""
FUNCTIONS = {
    "heap_block": """
$heap_block(ADDR): the address of the block around ADDR, as malloc() returned
it. The value is 0 if no block is there.

Example: x/4gx $heap_block($rdi)""",
    "heap_size": """
$heap_size(ADDR): the bytes of the block around ADDR, with its header.
The value is 0 if no block is there.

Example: break consume if $heap_size(buffer) > 1 << 20""",
    "heap_type": """
$heap_type(ADDR): what the used block around ADDR is, as 'heap at' says: the
type of its object, its owner, or what its bytes look like. The value is
"(none)" if no used block is there.

Example: break consume if $_streq($heap_type(item), "app.Session")""",
    "heap_owner": """
$heap_owner(ADDR): the path to the used block around ADDR, from a variable, a
thread or a library's data, as 'heap at --path' says. The value is "(none)" if
no used block is there. The first use after each stop reads all references.

Example: print $heap_owner(item)""",
}
PREFIX = "{prefix}"


def attach_help(prefix: str) -> str:
    """Return the help of ``heap attach``. ``prefix``: the first word of the command."""
    return ATTACH_HELP.replace(PREFIX, prefix)


def help_file() -> str:
    """Return the text of help.txt: the name and the help of each command and of each function.

    The command without a name comes first, and the functions come last.

    gdbheap/loader/start.py inserts the prefix of the commands."""
    return "".join(f"\f{name}\n{text}\n" for name, text in _parts())


def _parts() -> Iterator[tuple[str, str]]:
    for noun, command in OFFERED.items():
        yield noun, help_text(command, f"{PREFIX} {noun}".strip(), groups={} if noun else groups_of_gdb())
    yield ATTACH, ATTACH_HELP
    yield OPTIONS, options_help(PREFIX)
    for name, text in FUNCTIONS.items():
        yield f"${name}", text.strip()
