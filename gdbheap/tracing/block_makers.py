"""Find the stack that allocated a block, in the log of a recorded process."""

from __future__ import annotations

from collections.abc import Sequence

from gdbheap import _native
from gdbheap.errors import UsageError, one_line
from gdbheap.host.headroom import room_for_copy
from gdbheap.stacks import AllocatingCall
from gdbheap.tracing.call_stacks import Namer
from gdbheap.tracing.log import BY_TIME, ProcessCalls, read_log
from gdbheap.tracing.recorder_files import RecorderFile, parts_path

__all__ = ["maker", "makers"]

# Stands for the end of the log, which has fewer calls than this.
LAST = 10**18
# The log is read again if stages moved into it from the recorder's file meanwhile.
TRIES = 10


def maker(path: str, pid: int | None, address: int) -> AllocatingCall | None:
    """Return the call that allocated the block which contains ``address``; None if no recorded call with a stack did.
    Raises the errors of ``makers``."""
    return makers(path, pid, [address]).get(address)


def makers(path: str, pid: int | None, addresses: Sequence[int]) -> dict[int, AllocatingCall]:
    """Return the recorded calls that allocated the blocks which contain ``addresses``, by address.

    The blocks are those in use at the end of the log or, if the process is still being recorded, now. Calls without a
    stack are missing. Raises UsageError if the file is not a log, or has no stacks of the process ``pid``."""
    for _ in range(TRIES):
        process = _process(path, pid)
        rest = _rest(path, process)
        if len(_process(path, pid).frames) == len(process.frames):
            break
    mean, room = process.who.stacks, room_for_copy()
    found = _native.live_stacks(process.opened, process.frames, room, mean, [LAST], rest, list(addresses))
    namer = Namer(found, process.who)
    return {one.wanted: AllocatingCall(one.address, one.size, list(namer.frames(one.stack))) for one in found.makers}


def _process(path: str, pid: int | None) -> ProcessCalls:
    """Return the newest process with this id. There may be several, because each exec starts a new one. Raises
    UsageError."""
    processes = [process for process in read_log(path).processes if process.who.pid == pid]
    if not processes:
        raise UsageError(f"{one_line(path)} contains no calls of process {pid}")
    newest = max(processes, key=lambda process: process.who.began)
    if not newest.who.stacks:
        raise UsageError(f"{one_line(path)} has no stacks: gdbheap trace --stacks records them")
    if newest.who.order == BY_TIME and not newest.ended:
        raise UsageError(
            f"{one_line(path)}: process {pid} is still being recorded (--order=time): wait until it has ended"
        )
    return newest


def _rest(path: str, process: ProcessCalls) -> list[bytes]:
    """Return the stages of a process that are still in the recorder's file and not yet in the log."""
    try:
        file = RecorderFile(parts_path(path, process.who), taken=len(process.frames))
    except OSError:
        return []
    try:
        return file.rest()
    finally:
        file.close()
