"""Print docs/commands.md, or with --write put it in place, from the declarations that the parsers use.

Run it with the Python that gdbheap is installed in.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from gdbheap.commands.shell.line import Extra
from gdbheap.commands.surface.declaration import AnyCommand
from gdbheap.commands.surface.help import help_of_its_own, option_text
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Common, Option, options_of
from gdbheap.commands.surface.registry import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "commands.md"
HEAD = "| command | the question it answers |\n| --- | --- |\n"
INTRODUCTION = f"""# Commands

The same words in gdb and in a shell: `heap holes --min=1M` in gdb is `gdbheap holes TARGET --min=1M` in a shell, where
TARGET is a process id or a core. In gdb, `help heap` lists the commands and `help heap holes` explains one; in a shell
it is `gdbheap --help` and `gdbheap holes --help`. Sizes take K, M, G, T (powers of 1024) or bytes; addresses are any
expression in gdb, hex or decimal in a shell.

On a terminal tables are cut to its width, headings are bold, and a few words have colours of the terminal's own
palette: of the ledger's lines green is in use, red is free, cyan the top of a heap, magenta what the allocator needs
for itself, as in `heap map`; a finding that is worth a tenth of RSS is red, and so is damage. Nothing is said by a
colour alone. There are none in a pipe or a file, with `NO_COLOR`, where `TERM` is `dumb` or not set, and in gdb while
`set style enabled off` is in force.

This page is written by `scripts/command_docs.py --write` from the commands' own declarations.

{HEAD}"""
# Accepted by every command; what they mean is said by those that list something.
LISTING = (
    Option("--top", "N", "how many rows to list; 0 or 'all' lists all"),
    Option("--sort", "KEY", "what to order the rows by"),
)
FACTS: tuple[tuple[str, Callable[[AnyCommand], bool]], ...] = (
    ("call a function of the process, after the proof that the call cannot hang", lambda command: bool(command.call)),
    ("can write a file", lambda command: command.writes),
)


def rows() -> Iterator[str]:
    """Yield the page's table: name and question."""
    for command in COMMANDS.values():
        yield f"| [`{command.name}`](#{anchor(command)}) | {command.question} |\n"


def anchor(command: AnyCommand) -> str:
    """Return what a link to the command's section ends with."""
    return command.name.replace(" ", "-")


def facts() -> Iterator[str]:
    """Yield what commands need and do beyond reading a target."""
    others = [command for command in COMMANDS.values() if command.needs is not TARGET]
    named = ", ".join(f"`{command.name}` ({command.needs.what})" for command in others)
    yield f"- All take {TARGET.what}, except {named}.\n"
    for what, is_so in FACTS:
        found = [f"`{command.name}`" for command in COMMANDS.values() if is_so(command)]
        yield f"- These {what}: {', '.join(found)}.\n"


def options() -> Iterator[str]:
    """Yield the options that are not declared by one command."""
    common = "\n\n".join(map(option_text, (*LISTING, *options_of(Common))))
    yield "\n## Options of every command\nThe usage lines below have them as `[OPTION]...`.\n"
    yield f"```\n{common}\n```\n\nIn a shell there are also these:\n"
    yield "```\n" + "\n\n".join(map(option_text, options_of(Extra))) + "\n```\n"


def section(command: AnyCommand) -> str:
    """Return one command's section."""
    return f"\n## {command.name}\n```\n{help_of_its_own(command)}\n```\n"


def page() -> str:
    """Return the whole page."""
    sections = (section(command) for command in COMMANDS.values())
    return "".join([INTRODUCTION, *rows(), "\n", *facts(), *options(), *sections])


def main() -> None:
    """Print the page, or write it."""
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page(), encoding="utf-8")
    elif sys.argv[1:]:
        raise SystemExit("usage: command_docs.py [--write]")
    else:
        sys.stdout.write(page())


if __name__ == "__main__":
    main()
