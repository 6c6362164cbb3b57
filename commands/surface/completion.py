"""Complete a word after a command's name, in gdb and in a session of the shell."""

from __future__ import annotations

from gdbheap.commands.surface.declaration import AnyCommand

__all__ = ["option_words"]


def option_words(command: AnyCommand) -> list[str]:
    """Return a command's options as they are typed. An option that accepts only a few values is also returned with each
    of them."""
    names = [f"{option.name}=" if option.takes_next else option.name for option in command.all_options]
    return [*names, *(f"{option.name}={value}" for option in command.all_options for value in option.values)]
