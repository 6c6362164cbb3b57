"""All commands by their noun, in the order in which help lists them. A new command is listed here.

Each is imported when it is first asked for: most of the time that a command takes to start is spent on imports.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import cast

from gdbheap.commands.surface.declaration import AnyCommand

__all__ = ["ABOUT_LOGS", "ABOUT_SEVERAL", "COMMANDS", "HEAP_NOUN", "SHELL_ONLY"]

HEAP_NOUN = ""
"""The noun of the command that is called without one."""

_MODULES = {
    HEAP_NOUN: "heap",
    "arenas": "arenas",
    "stats": "stats",
    "holes": "holes",
    "pins": "pins",
    "sizes": "sizes",
    "chunks": "chunks",
    "pools": "pools",
    "pyobjects": "pyobjects",
    "contexts": "contexts",
    "trim": "trim",
    "map": "heap_map",
    "at": "at",
    "refs": "refs",
    "why": "why",
    "retained": "retained",
    "unreachable": "unreachable",
    "owners": "owners",
    "threads": "threads",
    "tasks": "tasks",
    "duplicates": "duplicates",
    "snapshot": "snapshot",
    "diff": "diff",
    "report": "report",
    "growth": "growth",
    "catch": "catch",
    "record": "record",
    "plot": "plot",
    "top": "top",
    "ps": "ps",
    "processes": "processes",
    "watch": "watch",
    "trace": "trace",
    "replay": "replay",
    "stacks": "call_stacks",
    "stats FILE": "call_stats",
    "export": "export",
    "sql": "sql",
    "shell": "session",
    "doctor": "doctor",
    "check": "check",
    "check-advice": "check_advice",
    "info": "info",
}

SHELL_ONLY = frozenset({
    "report", "record", "plot", "top", "ps", "processes", "doctor", "watch", "trace", "replay", "stacks", "stats FILE",
    "shell", "export", "sql",
})  # fmt: skip
"""The nouns whose needs a shell alone can meet: gdb starts without importing their commands."""

ABOUT_SEVERAL = "processes"
"""The noun of the command that is meant where several processes are named without one."""

ABOUT_LOGS = {"stats": "stats FILE"}
"""By the word that is typed: the noun of the command that is meant where a log of calls is named."""


class _Commands(MutableMapping[str, AnyCommand]):
    """The commands; a noun is looked up without importing any."""

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
