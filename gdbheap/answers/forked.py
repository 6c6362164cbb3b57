"""The process that a target was forked from, where that runs still."""

from __future__ import annotations

from contextlib import suppress

from gdbheap.errors import GdbheapError
from gdbheap.host.procfs import ProcessFolder, parse_auxv
from gdbheap.targets.chosen_processes import running
from gdbheap.targets.target import AT_RANDOM, Target

__all__ = ["forked_from"]


def forked_from(target: Target) -> int | None:
    """Return the id of the parent, if both come from one exec; None where they do not, the kernel does not say, or
    gdb holds the target.

    An exec puts the kernel's random bytes at a random place of the new stack (AT_RANDOM): a fork has them at its
    parent's place."""
    is_here = target.kind == "process" and target.proc is not None and target.offered_in_gdb is None
    found = running(target.pid) if is_here and target.pid else None
    if found is None or AT_RANDOM not in target.auxv:
        return None
    with suppress(OSError, GdbheapError):
        auxv = parse_auxv(target.machine, ProcessFolder(found.parent).read("auxv"))
        return found.parent if auxv == target.auxv else None
    return None
