"""Try to attach to a process, to find out whether it could be stopped, but without stopping it.

A seccomp filter may refuse ptrace(2) although the kernel allows us to open ``/proc/PID/mem``; only an attempt shows
this. A child of gdbheap attaches with PTRACE_SEIZE, which does not stop the process. When the child ends, it is
detached.
"""

from __future__ import annotations

import ctypes
import os
import signal

from gdbheap.host.procfs import ProcessFolder

__all__ = ["attach_error", "check_attaching"]

PTRACE_SEIZE = 0x4206


def attach_error(folder: ProcessFolder | None = None) -> OSError | None:
    """Return the error with which the kernel refuses to attach to a process; None if the kernel allows it. Without a
    process, try a child of our own, which shows whether any process can be attached to. Raises OSError if no child can
    be started.
    """
    child = os.fork()
    if child == 0:
        number = 1
        try:
            number = _seized(folder.pid) if folder is not None else _seized_child()
        finally:
            os._exit(number)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    # A filter may also kill the process that makes the call.
    number = status if status >= 0 else 1
    return OSError(number, os.strerror(number)) if number else None


def check_attaching(folder: ProcessFolder) -> None:
    """Raise OSError if the kernel refuses to attach to a process."""
    error = attach_error(folder)
    if error is not None:
        raise error


def _seized(pid: int) -> int:
    """Attach to a process with PTRACE_SEIZE, which does not stop it. Return 0, or the errno."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    return ctypes.get_errno() if libc.ptrace(PTRACE_SEIZE, pid, None, None) else 0


def _seized_child() -> int:
    other = os.fork()
    if other == 0:
        signal.pause()
        os._exit(0)
    try:
        return _seized(other)
    finally:
        os.kill(other, signal.SIGKILL)
