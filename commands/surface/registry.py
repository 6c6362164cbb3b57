"""All commands by their noun, in the order in which help lists them. A new command is imported and listed here."""

from __future__ import annotations

from gdbheap.commands import (
    arenas,
    at,
    check,
    check_advice,
    chunks,
    heap,
    heap_map,
    holes,
    info,
    owners,
    pins,
    pools,
    pyobjects,
    refs,
    retained,
    sizes,
    stats,
    threads,
    trim,
    unreachable,
    why,
)
from gdbheap.commands.surface.declaration import AnyCommand

__all__ = ["COMMANDS", "HEAP"]

HEAP: AnyCommand = heap.COMMAND
"""The command without a noun."""

_NOUNS: tuple[AnyCommand, ...] = (
    arenas.COMMAND,
    stats.COMMAND,
    holes.COMMAND,
    pins.COMMAND,
    sizes.COMMAND,
    chunks.COMMAND,
    pools.COMMAND,
    pyobjects.COMMAND,
    trim.COMMAND,
    heap_map.COMMAND,
    at.COMMAND,
    refs.COMMAND,
    why.COMMAND,
    retained.COMMAND,
    unreachable.COMMAND,
    owners.COMMAND,
    threads.COMMAND,
    check.COMMAND,
    check_advice.COMMAND,
    info.COMMAND,
)

COMMANDS: dict[str, AnyCommand] = {command.noun: command for command in (HEAP, *_NOUNS)}
