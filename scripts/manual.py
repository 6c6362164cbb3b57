"""Write the manual page, from the declarations that the parsers use: manual.py FILE.

``make build`` writes packaging/man/gdbheap.1, which is in the packages but not in the repository. Run it with the
Python that gdbheap is installed in.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from gdbheap import __version__
from gdbheap.commands.shell.line import Extra
from gdbheap.commands.surface.help import LISTING
from gdbheap.commands.surface.options import Common, options_of
from gdbheap.commands.surface.registry import COMMANDS

DESCRIPTION = """gdbheap shows where the memory of a process went. It reads a running process from outside, or the core
of a process that has ended, and runs nothing in the process. It shows how much memory the allocators keep and why they
do not return it, which types have the memory, and which variables hold it. TARGET is a process id or the path of a
core. gdbheap NOUN --help explains a command. After gdbheap install, gdb has the same commands, with heap instead of
gdbheap and without TARGET."""
STATUSES = (
    ("0", "The answer is complete."),
    ("1", "The answer is partial, or the heap is damaged."),
    ("2", "The command line is wrong."),
    ("3", "The system does not permit reading the target."),
    ("4", "There is no such process, or the file is not a core."),
    ("5", "gdbheap does not support this target, or not for this command."),
)
ESCAPED = str.maketrans({"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"})


def escaped(text: str) -> str:
    """Return a text for roff, in one line that begins with no request."""
    line = " ".join(text.split()).translate(ESCAPED)
    line = "".join(char if char.isascii() else f"\\[u{ord(char):04X}]" for char in line)
    return f"\\&{line}" if line.startswith((".", "\\(aq")) else line


def paragraph(text: str) -> Iterator[str]:
    """Yield a text with its paragraphs."""
    for part in text.strip().split("\n\n"):
        yield f".PP\n{escaped(part)}\n"


def entry(title: str, text: str) -> str:
    """Return a tagged paragraph."""
    return f".TP\n.B {escaped(title)}\n{escaped(text)}\n"


def manual() -> Iterator[str]:
    """Yield the page."""
    yield f'.TH GDBHEAP 1 "" "gdbheap {__version__}" "User Commands"\n.SH NAME\n'
    yield "gdbheap \\- where the memory of a process went, down to the last page\n.SH SYNOPSIS\n"
    yield ".B gdbheap\n.RI [ NOUN ]\n.RI [ TARGET ]\n.RI [ OPTION ...]\n.SH DESCRIPTION\n"
    yield from paragraph(DESCRIPTION)
    yield ".SH COMMANDS\n"
    for command in COMMANDS.values():
        needs = command.needs
        after = command.argument.metavar if command.argument else ""
        line = " ".join(part for part in (command.shell_name, needs.words, after) if part)
        yield f".SS {escaped(line)}\n{escaped(command.summary)}.\n"
        yield from paragraph(f"{command.text}\n\n{command.details}".replace("`", "").replace("\n    - ", "\n\n- "))
        for option in (*command.own_options, *command.listing_options):
            yield entry(option.spelling, f"{option.help}.")
    yield ".SH OPTIONS OF EVERY COMMAND\n"
    for option in (*LISTING, *options_of(Common), *options_of(Extra)):
        yield entry(option.spelling, f"{option.help}. {option.details}")
    yield ".SH EXIT STATUS\n"
    yield from (entry(status, meaning) for status, meaning in STATUSES)
    yield ".SH SEE ALSO\n.BR gdb (1),\n.BR ps (1),\n.BR proc (5),\n.BR malloc_stats (3)\n"


def main() -> None:
    """Write the file; create its folder if needed."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: manual.py FILE")
    path = Path(sys.argv[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(manual()), encoding="utf-8")


if __name__ == "__main__":
    main()
