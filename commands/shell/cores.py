"""Open a core: one that a shell's command line names by its path, or one that coredumpctl has stored."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Union

from gdbheap.commands.surface.progress import shown, tell
from gdbheap.dataclass import dataclass
from gdbheap.errors import one_line

if TYPE_CHECKING:
    from gdbheap.host.procfs import Named
    from gdbheap.targets.core import Core

__all__ = ["Stored", "Subject", "core_of", "name_of"]

NAME_SHOWN = 60


@dataclass(frozen=True)
class Stored:
    """A core that coredumpctl has stored. ``match``: the pid or the program for which coredumpctl is asked."""

    match: str


Subject = Union["Named", str, Stored]
"""The subject that a line names: a process, whose folder is kept open from then on; an id that no process has; the path
of a core; or a core that coredumpctl has stored.
"""


def name_of(core: str | Stored) -> str:
    """Return the name of a core for messages: its path or, for a stored core, the pid or program for which coredumpctl
    is asked.
    """
    from gdbheap.targets.cores.stored_cores import title

    return title(core.match) if isinstance(core, Stored) else core


def core_of(core: str | Stored, exe: str | None, sysroot: str | None) -> Core:
    """Open a core. If it is packed, unpack it first, with progress on a terminal. Raises the errors of ``Core``."""
    # Imported here, so that commands without a core start faster.
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
