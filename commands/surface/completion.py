"""What could complete a word that is typed after a noun, in gdb and in a session of the shell's."""

from __future__ import annotations

from gdbheap.commands.surface.declaration import AnyCommand

__all__ = ["option_words"]


def option_words(command: AnyCommand) -> list[str]:
    """The options of a command as they are typed, and with each value that is one of a few words."""
    names = [f"{option.name}=" if option.takes_next else option.name for option in command.all_options]
    return [*names, *(f"{option.name}={value}" for option in command.all_options for value in option.values)]
