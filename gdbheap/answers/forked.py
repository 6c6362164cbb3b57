"""Find the parent from which a target was forked, if the parent is still running."""

from __future__ import annotations

from contextlib import suppress

from gdbheap.errors import GdbheapError
from gdbheap.host.procfs import ProcessFolder, parse_auxv
from gdbheap.targets.running_processes import running
from gdbheap.targets.target import AT_RANDOM, Target

__all__ = ["forked_from"]


def forked_from(target: Target) -> int | None:
    """Return the process id of the target's parent if the target was forked from it and has called no exec since.

    Return None if the target was not forked in this way, if this is unknown, or if gdb controls the target. Each exec
    makes a new auxiliary vector with random addresses, such as the one in AT_RANDOM. So a target whose vector equals
    its parent's was forked.
    """
    is_here = target.kind == "process" and target.proc is not None and target.offered_in_gdb is None
    found = running(target.pid) if is_here and target.pid else None
    if found is None or AT_RANDOM not in target.auxv:
        return None
    with suppress(OSError, GdbheapError):
        auxv = parse_auxv(target.machine, ProcessFolder(found.parent).read("auxv"))
        return found.parent if auxv == target.auxv else None
    return None
