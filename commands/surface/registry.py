"""All commands by their names, in the order of the help. A new command must be added here.

A command is imported on first use, because imports take most of a command's start-up time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import cast

from gdbheap.commands.surface.declaration import AnyCommand

__all__ = ["ABOUT_SEVERAL", "COMMANDS", "GROUPS", "HEAP_NOUN", "SHELL_ONLY", "grouped", "groups_of_gdb"]

HEAP_NOUN = ""
"""The key of the command that is called without a name."""

_GROUPS = {
    "Start here": {
        HEAP_NOUN: "heap",
        "ps": "ps",
        "owners": "owners",
        "report": "report",
        "doctor": "doctor",
    },
    "Freed but kept": {
        "holes": "holes",
        "pins": "pins",
        "trim": "trim",
        "map": "heap_map",
        "arenas": "arenas",
        "stats": "stats",
        "sizes": "sizes",
        "chunks": "chunks",
        "pools": "pools",
    },
    "In use": {
        "pyobjects": "pyobjects",
        "owners": "owners",
        "retained": "retained",
        "why": "why",
        "refs": "refs",
        "at": "at",
        "unreachable": "unreachable",
        "duplicates": "duplicates",
        "threads": "threads",
        "tasks": "tasks",
        "contexts": "contexts",
    },
    "Over time": {
        "snapshot": "snapshot",
        "diff": "diff",
        "growth": "growth",
        "catch": "catch",
        "record": "record",
        "plot": "plot",
        "top": "top",
        "watch": "watch",
    },
    "Every call": {
        "trace": "trace",
        "calls": "calls",
        "stacks": "call_stacks",
        "replay": "replay",
    },
    "Many processes": {
        "ps": "ps",
        "processes": "processes",
    },
    "Data and scripts": {
        "export": "export",
        "sql": "sql",
        "shell": "session",
    },
    "Checks": {
        "check": "check",
        "check-advice": "check_advice",
        "info": "info",
    },
}
_MODULES = {noun: module for group in _GROUPS.values() for noun, module in group.items()}

GROUPS = {title: [*nouns] for title, nouns in _GROUPS.items()}
"""The names of the commands by topic, in the order in which help lists them."""

SHELL_ONLY = frozenset({
    "report", "record", "plot", "top", "ps", "processes", "doctor", "watch", "trace", "replay", "stacks", "calls",
    "shell", "export", "sql",
})  # fmt: skip
"""The names of the commands that only a shell has: gdb starts without importing them."""

ABOUT_SEVERAL = "processes"
"""The default command if a line names several processes and no command."""


class _Commands(MutableMapping[str, AnyCommand]):
    """The commands by their names. Checking whether a name exists imports no command."""

    def __init__(self) -> None:
        self._found: dict[str, AnyCommand | None] = dict.fromkeys(_MODULES)

    def __getitem__(self, noun: str) -> AnyCommand:
        found = self._found[noun]
        if found is None:
            found = cast(AnyCommand, import_module(f"gdbheap.commands.{_MODULES[noun]}").COMMAND)
            self._found[noun] = found
        return found

    def __setitem__(self, noun: str, command: AnyCommand) -> None:
        self._found[noun] = command

    def __delitem__(self, noun: str) -> None:
        del self._found[noun]

    def __contains__(self, noun: object) -> bool:
        return noun in self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


COMMANDS: MutableMapping[str, AnyCommand] = _Commands()


def groups_of_gdb() -> dict[str, list[str]]:
    """Return the names of gdb's commands by the titles of their groups. gdb itself lists their summaries."""
    found = {title: [noun for noun in nouns if noun and noun not in SHELL_ONLY] for title, nouns in GROUPS.items()}
    return {title: nouns for title, nouns in found.items() if nouns}


def grouped(offered: Collection[str], others: Mapping[str, Mapping[str, str]], called: str = "") -> Iterator[str]:
    """Yield the lines of an overview: each group with those of its commands that are in ``offered``, and their
    summaries.

    ``others``: further entries of each group; ``called``: the word before each name."""
    for title, nouns in GROUPS.items():
        found = {f"{called} {noun}".strip() or "PID": COMMANDS[noun].summary for noun in nouns if noun in offered}
        rows = {**found, **others.get(title, {})}
        if rows:
            width = len(called) + bool(called) + 12
            yield f"{title}:"
            yield from (f"  {name:<{width}} {what}" for name, what in rows.items())
