"""Print docs/commands.md, or write it with --write: every command's help, from the declarations that the parsers use.

Run it with the Python that gdbheap is installed in.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gdbheap.commands.surface.declaration import Command, help_text
from gdbheap.commands.surface.registry import COMMANDS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "commands.md"
INTRODUCTION = """# Commands

The same words in gdb and in a shell: `heap holes --min=1M` in gdb is `gdbheap holes TARGET --min=1M` in a shell, where
TARGET is a process id or a core. In gdb, `help heap` lists the commands and `help heap holes` explains one; in a shell
it is `gdbheap --help` and `gdbheap holes --help`. Sizes take K, M, G, T (powers of 1024) or bytes; addresses are any
expression in gdb, hex or decimal in a shell.

This page is written by `scripts/command_docs.py --write` from the commands' own declarations.

| command | the question it answers |
| --- | --- |
"""


def rows() -> Iterator[str]:
    """Yield the table's rows: name and question."""
    for command in COMMANDS.values():
        yield f"| [`{command.name}`](#{command.name.replace(' ', '-')}) | {command.question} |"


def section(command: Command[Any]) -> str:
    """Return one command's section."""
    return f"\n## {command.name}\n```\n{help_text(command)}\n```\n"


def page() -> str:
    """Return the whole page."""
    return INTRODUCTION + "\n".join(rows()) + "\n" + "".join(section(command) for command in COMMANDS.values())


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
