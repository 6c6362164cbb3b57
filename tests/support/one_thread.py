"""Hold one thread of a process with ptrace(2) while the others run."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

from gdbheap.machines.machine import X86_64

TRACEME, GETREGS, DETACH, SEIZE, INTERRUPT = 0, 12, 17, 0x4206, 0x4207
# __WALL of waitpid(2): wait for threads too.
WALL = 0x40000000
FS_BASE, REGISTERS = 21, 27
_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_libc.ptrace.restype = ctypes.c_long


def ptrace(request: int, tid: int, data: object = None) -> None:
    """Call ptrace(2). Raises OSError."""
    if _libc.ptrace(request, tid, None, data) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def trace_me() -> None:
    """Let this process stop once it executes a program."""
    ptrace(TRACEME, 0)


def registers(tid: int) -> tuple[list[int], int]:
    """Return the registers of a stopped thread as DWARF numbers them, and its thread pointer."""
    found = (ctypes.c_ulong * REGISTERS)()
    ptrace(GETREGS, tid, ctypes.cast(found, ctypes.c_void_p))
    return [found[index] for index in X86_64.frames.dwarf], found[FS_BASE]


@contextlib.contextmanager
def held(tid: int) -> Iterator[tuple[list[int], int]]:
    """Yield a thread's registers while it is stopped."""
    ptrace(SEIZE, tid)
    ptrace(INTERRUPT, tid)
    os.waitpid(tid, WALL)
    try:
        yield registers(tid)
    finally:
        ptrace(DETACH, tid)
