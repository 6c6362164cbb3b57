"""The events that a watch reports: each is a record, whose field names are the keys of its line with --json."""

from __future__ import annotations

from dataclasses import dataclass, field

from gdbheap.stacks import StackFrame
from gdbheap.watching.triggers import Cause

__all__ = ["Event", "Limit"]


@dataclass(frozen=True)
class Limit:
    """A limit that is watched. ``limit`` and ``mark`` (the size at which the watch acts): bytes."""

    cgroup: str
    limit: int
    mark: int
    is_ours: bool = False


@dataclass(frozen=True)
class Event:
    """An event of a watch, by ``event``.

    "began": a process is watched from now on; "ended"; "killed": the kernel killed a process of ``cgroup``; "unseen":
    its MemoryErrors cannot be caught; "unrestored": its code is still changed; "missed": a read of its heap failed;
    "left-out": ``pids`` are wanted but cannot be watched; "serving": metrics are at ``url``; "acted"; "end": nothing is
    watched any more. ``why_ended``: "count", "ended" (all processes), "duration", "asked"."""

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

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return not self.failed
