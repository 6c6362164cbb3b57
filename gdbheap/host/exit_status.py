"""Find the exit status of a process that is a child of another process.

The ``stat`` file of a zombie has its exit code (proc(5)). The kernel shows the code only to users who may trace the
process. Since Linux 6.15 a pidfd keeps the exit code after the parent has waited (PIDFD_GET_INFO, <linux/pidfd.h>).
"""

from __future__ import annotations

import fcntl
import os
import struct
from contextlib import suppress

from gdbheap.host.procfs import ENDED, EXIT_CODE, PROC, STATE, ProcessFolder, stat_fields

__all__ = ["exit_status", "oom_kills"]

# struct pidfd_info of its first version: the mask, the id of a control group, 11 numbers of 32 bits, and the exit code.
INFO = struct.Struct("<QQ11Ii")
GET_INFO = 0xC0000000 | INFO.size << 16 | 0xFF << 8 | 11
INFO_EXIT = 1 << 3


def exit_status(folder: ProcessFolder, pidfd: int | None = None) -> int | None:
    """Return the exit status of a process that has ended; the negative signal number if a signal ended it.

    Return None if the process runs, or if the status is unknown. ``pidfd``: used for a process for which its parent has
    already waited.
    """
    with suppress(OSError, ValueError, IndexError):
        fields = stat_fields(folder.read("stat"))
        return os.waitstatus_to_exitcode(int(fields[EXIT_CODE])) if fields[STATE] in ENDED else None
    if pidfd is not None:
        with suppress(OSError):
            found = INFO.unpack(fcntl.ioctl(pidfd, GET_INFO, INFO.pack(INFO_EXIT, *[0] * 13)))
            return os.waitstatus_to_exitcode(found[-1]) if found[0] & INFO_EXIT else None
    return None


def oom_kills() -> int:
    """Return how many processes the kernel's OOM killer has killed since boot, in all control groups (Linux 4.13)."""
    with suppress(OSError, ValueError, IndexError), open(f"{PROC}/vmstat", "rb") as stream:
        return int(stream.read().partition(b"\noom_kill ")[2].split()[0])
    return 0
