"""The events that a watch reports. With --json, each event is printed as one line, whose keys are the names of its
fields.
"""

from __future__ import annotations

from dataclasses import field

from gdbheap.dataclass import dataclass
from gdbheap.stack_frames import StackFrame
from gdbheap.watching.triggers import Cause

__all__ = ["WatchMessage", "Limit"]


@dataclass(frozen=True)
class Limit:
    """A memory limit that is watched.

    ``limit``: the limit in bytes.
    ``mark``: the bytes at which the watch acts.
    ``is_ours``: whether gdbheap itself is in this control group.
    """

    cgroup: str
    limit: int
    mark: int
    is_ours: bool = False


@dataclass(frozen=True)
class WatchMessage:
    """An event of a watch. ``event`` has one of these values.

    "began": a process is watched from now on.
    "ended": it has ended, with ``exit_status`` (negative for a signal, None if unknown). ``oom``: whether the kernel's
    OOM killer was active at that time.
    "nobody": no process matches yet.
    "unreadable": the memory of the processes ``pids`` cannot be read.
    "killed": the kernel killed a process of ``cgroup``.
    "unseen": the process's MemoryErrors cannot be caught.
    "unrestored": the process's code is still changed.
    "missed": a read of the process's heap failed.
    "left-out": the processes ``pids`` match but cannot be watched.
    "lost": lines were not printed, because nothing read them.
    "serving": metrics are served at ``url``.
    "acting": the steps take long. ``step``: the step that still runs, "save" or "run" (the command of --run).
    "acted": the steps were done. ``too_late``: nothing was done, because the process ended before it was read.
    "end": the watch is over, for the reason ``why_ended``: "count", "ended" (all processes), "duration" or "asked".
    """

    event: str
    time: float
    pid: int | None = None
    name: str = ""
    cause: Cause | None = None
    cgroup: str | None = None
    files: dict[str, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    held: float | None = None
    partial: bool = False
    run: int | None = None
    limits: list[Limit] = field(default_factory=list)
    acted: int = 0
    failed: int = 0
    why_ended: str = ""
    stack: list[StackFrame] = field(default_factory=list)
    url: str | None = None
    everybody: bool = False
    pids: list[int] = field(default_factory=list)
    exit_status: int | None = None
    oom: bool = False
    too_late: bool = False
    step: str = ""

    @property
    def ok(self) -> bool:
        """Whether no step of the action failed."""
        return not self.failed
