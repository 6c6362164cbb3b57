"""Report a process's system calls through a tracepoint of the kernel, without stopping the process's threads."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from gdbheap import _native
from gdbheap.errors import EXHAUSTED, GdbheapError, NotPermitted, Unsupported, exhausted, one_line
from gdbheap.host import procfs
from gdbheap.host.procfs import PROC, ProcessFolder
from gdbheap.refusals import refusal
from gdbheap.targets.hits import CaughtProcess

__all__ = ["traced"]

REFUSED = (errno.EACCES, errno.EPERM)
PARANOID = f"{PROC}/sys/kernel/perf_event_paranoid"
TRACEFS = "/sys/kernel/tracing"
# The errors of a kernel that lacks tracepoints, or the options that are used.
NOT_THERE = (errno.ENODEV, errno.ENOENT, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


@contextmanager
def traced(folder: ProcessFolder, numbers: Sequence[int], with_stacks: bool) -> Iterator[CaughtProcess]:
    """Yield a ``CaughtProcess`` that reports these system calls of a process within the block. Raises GdbheapError."""
    tracepoint = _tracepoint()
    try:
        # A user who has only the right to tracepoints may not be allowed to read this.
        folder.read("maps", procfs.TABLE_LIMIT)
    except OSError as error:
        raise refusal.explain(folder, error) from error
    follower = _native.Follower.of_tracepoint(folder, tracepoint, list(numbers), with_stacks)
    try:
        try:
            follower.start()
        except OSError as error:
            raise _explained(folder, error) from error
        yield CaughtProcess(follower, list(numbers), [])
    finally:
        follower.end()


def _tracepoint() -> _native.Tracepoint:
    try:
        return _native.find_tracepoint()
    except OSError as error:
        if error.errno == errno.EACCES:
            raise NotPermitted(
                f"--perf reads {TRACEFS}, which this user may not read: run gdbheap as root (sudo)"
            ) from error
        if error.errno == errno.EPERM:
            raise NotPermitted(
                "--perf needs tracefs, which is not mounted here, and this user may not mount it: run gdbheap as"
                f" root (sudo), or mount it at {TRACEFS} so that this user may read it"
            ) from error
        raise _unsupported(error) from error


def _explained(folder: ProcessFolder, error: OSError) -> GdbheapError:
    if error.errno in REFUSED:
        return NotPermitted(
            f"the kernel refuses tracepoints of process {folder}: run gdbheap as root (sudo) or with CAP_PERFMON, or"
            f" lower kernel.perf_event_paranoid, which is {_paranoid()}, to 1; the seccomp filter of a container may"
            " refuse them too"
        )
    if error.errno in NOT_THERE:
        return _unsupported(error)
    return exhausted(error) if error.errno in EXHAUSTED else refusal.explain(folder, error)


def _unsupported(error: OSError) -> Unsupported:
    reason = one_line(error.strerror or error)
    return Unsupported(f"this kernel does not offer tracepoints for --perf ({reason}): leave out --perf")


def _paranoid() -> str:
    try:
        with open(PARANOID) as stream:
            return one_line(stream.read(20))
    except OSError:
        return "unknown"
