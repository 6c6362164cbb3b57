"""Where the kernel shows a process's memory. Once its first thread has ended, all below /proc/PID is as of a zombie,
though other threads run on: what they have is shown below task/TID alone (proc(5))."""

from __future__ import annotations

import os
from contextlib import suppress

from gdbheap.host.procfs import ENDED, STATE, stat_fields

__all__ = ["shown_in"]

STAT_BYTES = 4 << 10


def shown_in(process: str) -> str | None:
    """Return the part of a path that follows ``process``, a path of /proc/PID: "" as long as its first thread has not
    ended, then "task/TID/" of the first one that has not; None where all have."""
    if _runs(f"{process}/stat"):
        return ""
    with suppress(OSError):
        tids = sorted(int(name) for name in os.listdir(f"{process}/task") if name.isdigit())
        return next((f"task/{tid}/" for tid in tids if _runs(f"{process}/task/{tid}/stat")), None)
    return None


def _runs(stat: str) -> bool:
    with suppress(OSError, IndexError):
        descriptor = os.open(stat, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return stat_fields(os.read(descriptor, STAT_BYTES))[STATE] not in ENDED
        finally:
            os.close(descriptor)
    return False
