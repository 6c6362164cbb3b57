"""``gdbheap --complete WORD…``: complete the last word of a command line for a shell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from gdbheap.commands.shell.commands import VERBS
from gdbheap.commands.shell.line import extra_options
from gdbheap.commands.surface.declaration import GDB
from gdbheap.commands.surface.options import Option
from gdbheap.commands.surface.registry import COMMANDS, HEAP_NOUN
from gdbheap.text import printable

__all__ = ["complete"]

# These options are only valid as the only word on a line.
OWN = ("--version", "--gdb-script")


def complete(words: Sequence[str]) -> str:
    """Return the completions of the last of ``words``, one on each line: a word, a space, and the word's meaning if it
    is known.

    Names of files are not among the completions, because shells complete these themselves."""
    *before, last = words or [""]
    found = _options(before, last) if last.startswith("-") else iter([*_nouns(before), *_processes(last)])
    return "\n".join(f"{word} {what}" if what else word for word, what in found if word.startswith(last))


def _nouns(before: Sequence[str]) -> Iterator[tuple[str, str]]:
    if not before:
        yield from ((noun, "") for noun in dict.fromkeys([GDB, *filter(None, COMMANDS), *VERBS]))


def _options(before: Sequence[str], last: str) -> Iterator[tuple[str, str]]:
    name, given, value = last.partition("=")
    command = COMMANDS[next((word for word in before[:1] if word in COMMANDS), HEAP_NOUN)]
    found = [*command.all_options, *extra_options(command)]
    if given:
        for option in (option for option in found if option.name == name):
            start = value[: value.rfind(",") + 1] if option.takes_several else ""
            yield from ((f"{name}={start}{each}", "") for each in option.values)
        return
    yield from ((word, "") for word in ("--help", *(() if before else OWN)))
    for option in {option.name: option for option in found}.values():
        yield f"{option.name}=" if option.takes_next else option.name, _told(option)


def _told(option: Option) -> str:
    """Return the help of an option without its default."""
    return option.help.partition(" [default")[0]


def _processes(last: str) -> Iterator[tuple[str, str]]:
    """Yield the processes whose id begins with ``last``: the id and the process's name."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and folder.name.startswith(last):
            try:
                yield folder.name, printable((folder / "comm").read_text(errors="replace").strip())
            except OSError:
                continue
