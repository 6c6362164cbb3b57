"""What is told while watching: each event is a record, whose field names are the keys of its line with --json."""

from __future__ import annotations

from dataclasses import dataclass, field

from gdbheap.stacks import StackFrame
from gdbheap.watching.triggers import Cause

__all__ = ["Event", "Limit"]


@dataclass(frozen=True)
class Limit:
    """A limit that is watched: of a control group, of the machine where ``group`` is "". In bytes; ``mark``: where it
    counts as near. ``ours``: this program's own memory counts there, too."""

    group: str
    bytes: int
    mark: int
    ours: bool = False


@dataclass(frozen=True)
class Event:
    """``event``: "began" (a process is watched from now on), "ended", "killed" (the kernel killed a process of
    ``group`` for want of memory), "unseen" (its MemoryErrors cannot be seen), "unrestored" (its code is still changed),
    "missed" (a look failed), "left-out" (``pids`` are meant and not watched), "serving" (metrics are to be had at
    ``url``; ``everybody``: by other machines, too), "acted", "end" (nothing is watched any more). ``time``: seconds
    since 1970. ``name``: the process's. ``cause``: why it was acted. ``files``: what was written, by its kind;
    ``errors``: what failed, a line each; ``held``: for how many seconds the process stood still for the look;
    ``partial``: something is missing in it; ``run``: the status of the command that ran. ``limits``: those that are
    near when "began". ``acted`` and ``failed``, at the "end": how often, and how often something failed; ``why``:
    "count", "ended" (all processes), "duration", "asked". ``stack``: of the thread that has no memory, the outermost
    frame first."""

    event: str
    time: float
    pid: int | None = None
    name: str = ""
    cause: Cause | None = None
    group: str | None = None
    files: dict[str, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    held: float | None = None
    partial: bool = False
    run: int | None = None
    limits: list[Limit] = field(default_factory=list)
    acted: int = 0
    failed: int = 0
    why: str = ""
    stack: list[StackFrame] = field(default_factory=list)
    url: str | None = None
    everybody: bool = False
    pids: list[int] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return not self.failed
