"""Whether the kernel's tracepoints can be used on this machine (without asking gdbheap), and the format of the one that
gdbheap uses.
"""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import struct
import subprocess

from support.programs import PATIENCE

SYS_PERF_EVENT_OPEN = 298
SOFTWARE, DUMMY, SIZE = 1, 9, 112
FOLDER = "/sys/kernel/tracing"
FORMAT = "events/raw_syscalls/sys_exit/format"
# A separate mount namespace, so that mounts are not visible elsewhere.
ALONE = ["unshare", "--mount", "--propagation", "private", "sh", "-c"]


def why_not() -> str:
    """Return why no tracepoint can be used here; "" if they can."""
    if os.geteuid() != 0:
        return "tracepoints take root or CAP_PERFMON"
    refused = _event_refused()
    if refused:
        return f"the kernel has no events for this process ({os.strerror(refused)})"
    return "" if format_text() else "tracefs cannot be read here"


def _event_refused() -> int:
    """Return the error number with which the kernel refuses an event that counts nothing; 0 if it accepts the event."""
    attributes = struct.pack("<IIQ", SOFTWARE, SIZE, DUMMY).ljust(SIZE, b"\0")
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.syscall(SYS_PERF_EVENT_OPEN, attributes, 0, -1, -1, 0)
    if descriptor < 0:
        return ctypes.get_errno()
    os.close(descriptor)
    return 0


@functools.cache
def format_text() -> str:
    """Return the format of the tracepoint for the end of system calls, from tracefs; "" if it cannot be mounted or
    read.
    """
    if shutil.which("unshare") is None:
        return ""
    script = f"mount -t tracefs tracefs {FOLDER} && cat {FOLDER}/{FORMAT}"
    done = subprocess.run([*ALONE, script], capture_output=True, text=True, timeout=PATIENCE)
    return done.stdout if done.returncode == 0 else ""


def beside_readable_format(command: list[str]) -> list[str]:
    """Return a command that runs ``command`` in a mount namespace where every user may read a copy of the tracepoint's
    format, but nothing else of tracefs.
    """
    script = (
        f"mount -t tmpfs -o mode=755 tmpfs {FOLDER} && mkdir -p {FOLDER}/{FORMAT.rpartition('/')[0]}"
        f' && printf %s "$0" > {FOLDER}/{FORMAT} && exec "$@"'
    )
    return [*ALONE, script, format_text(), *command]
