"""Print docs/commands.md from the declarations that the parsers use; with --write, write the file.

Run it with the Python that gdbheap is installed in.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from inspect import cleandoc
from pathlib import Path

from gdbheap.commands.shell.line import Extra
from gdbheap.commands.surface.declaration import AnyCommand
from gdbheap.commands.surface.help import LISTING, NAMES, anchor, help_of_its_own, option_entry
from gdbheap.commands.surface.needs import TARGET
from gdbheap.commands.surface.options import Common, Option, options_of
from gdbheap.commands.surface.registry import COMMANDS, GROUPS

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "commands.md"
HEAD = "| command | what it shows or does |\n| --- | --- |\n"
INTRODUCTION = f"""# Commands
<!-- scripts/command_docs.py --write makes this page from the commands' own declarations. -->

gdb and a shell have the same commands: `heap holes --min=1M` in gdb is `gdbheap holes TARGET --min=1M` in a shell.
TARGET is a process id or a core. `help heap` in gdb lists the commands, and `help heap holes` explains one. In a shell,
`gdbheap --help` lists the commands, and `gdbheap holes --help` explains one. A size is a number of bytes, or has a
unit: K, M, G or T (powers of 1024). An address is any expression in gdb, and hexadecimal or decimal in a shell.

{HEAD}"""
COLOURS = """
## Colours
A terminal cuts tables to its width, shows headings in bold, and colours a few words in its own palette. The ledger and
`heap map` show memory in use in green, free memory in red, the top of a heap in cyan, and the allocator's own memory in
magenta. Damage is red, and so is a finding of 10 % of RSS or more. Colours only repeat facts that the text shows, too.
Output to a pipe or a file has no colours. A terminal shows no colours if `NO_COLOR` is set, or if `TERM` is `dumb` or
not set. gdb shows no colours after `set style enabled off`.
"""
FACTS: tuple[tuple[str, Callable[[AnyCommand], bool]], ...] = (
    ("call a function of the process, after the proof that the call cannot hang", lambda command: bool(command.call)),
    ("can write a file", lambda command: command.writes),
)


def rows() -> Iterator[str]:
    """Yield the page's table: each group, the name of each command and what it does."""
    for title, nouns in GROUPS.items():
        yield f"| **{title}** | |\n"
        for command in (COMMANDS[noun] for noun in nouns if noun in COMMANDS):
            yield f"| [`{command.name}`](#{anchor(command)}) | {command.summary} |\n"


def facts() -> Iterator[str]:
    """Yield the needs and effects of commands that do more than read a target."""
    others = [command for command in COMMANDS.values() if command.needs.what != TARGET.what]
    yield f"- All commands take {TARGET.what}, except these:\n"
    for command in others:
        yield f"  - `{command.name}` takes {command.needs.what}\n"
    for what, is_so in FACTS:
        found = [f"`{command.name}`" for command in COMMANDS.values() if is_so(command)]
        yield f"- These commands {what}: {', '.join(found)}.\n"


def options() -> Iterator[str]:
    """Yield the options that do not belong to a single command."""
    yield "\n## Options of every command\nIn the usage lines below, `[options]` includes these options.\n"
    yield "`gdbheap help options` and `help heap options` print this list.\n"
    yield f"```\n{entries((*LISTING, *options_of(Common)))}\n```\n\nIn a shell, each command also has these options:\n"
    yield f"```\n{entries(options_of(Extra))}\n```\n"


def entries(options: Iterable[Option]) -> str:
    """Return the lines of options that no single command declares."""
    return "\n".join(line for option in options for line in option_entry(option, NAMES))


def section(command: AnyCommand) -> str:
    """Return one command's section: its help, and the longer text that the help leaves out."""
    details = f"\n{cleandoc(command.details)}\n" if command.details else ""
    return f"\n## {command.name}\n```\n{help_of_its_own(command)}\n```\n{details}"


def page() -> str:
    """Return the whole page."""
    sections = (section(command) for command in COMMANDS.values())
    return "".join([INTRODUCTION, *rows(), "\n", *facts(), *options(), COLOURS, *sections])


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
