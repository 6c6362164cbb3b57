"""Cores that a line of the shell names: by a path, or by what coredumpctl is asked for."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Union

from gdbheap.commands.surface.progress import shown, tell
from gdbheap.errors import one_line

if TYPE_CHECKING:
    from gdbheap.host.procfs import Named
    from gdbheap.targets.core import Core

__all__ = ["Stored", "Subject", "core_of", "name_of"]

NAME_SHOWN = 60


@dataclass(frozen=True)
class Stored:
    """A core that coredumpctl has, by what it is asked for."""

    match: str


Subject = Union["Named", str, Stored]
"""A process, held since its line was read, or the id of none; a core's path; or a core that is asked for."""


def name_of(core: str | Stored) -> str:
    """What messages call it."""
    from gdbheap.targets.cores.stored_cores import title

    return title(core.match) if isinstance(core, Stored) else core


def core_of(core: str | Stored, exe: str | None, sysroot: str | None) -> Core:
    """Opened, and unpacked where it is packed; what that takes is shown on a terminal. Raises what ``Core`` does."""
    # Imported here: commands that are about no core start faster.
    from gdbheap.targets.core import Core
    from gdbheap.targets.cores.debuginfod import fetcher
    from gdbheap.targets.cores.stored_cores import dump

    name = name_of(core)
    with shown(f"unpacking {one_line(name, NAME_SHOWN)}") as progress:
        unpacked = dump(core.match, progress) if isinstance(core, Stored) else None
        asked = fetcher(lambda build_id: tell(f"asking debuginfod for {build_id}"))
        found = Core(name, exe, sysroot, unpacked, progress, asked)
    if isinstance(core, Stored):
        found.words = f"--coredump={shlex.quote(core.match)}"
    return found
