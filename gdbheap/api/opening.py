"""Open a heap: of a process, a core, a snapshot, or the target that is selected in gdb."""

from __future__ import annotations

import os

from gdbheap.api.arguments import Seconds, Target, pid_of, seconds_of
from gdbheap.api.current import current
from gdbheap.api.heap import Heap
from gdbheap.api.open_target import SharedTarget
from gdbheap.api.targets import CoreFile, Current, LiveProcess
from gdbheap.contents.python.text.disclosure import wanted
from gdbheap.errors import NoTarget, NotPermitted, UsageError
from gdbheap.files import find_file
from gdbheap.host.procfs import ProcessFolder
from gdbheap.refusals import refusal
from gdbheap.snapshots.file import is_snapshot, read
from gdbheap.targets.stopping import when_untraced
from gdbheap.targets.typed_target import parse_target

__all__ = ["here", "meant", "open"]


def open(target: Target, *, clone: bool = False, max_stop: Seconds = 5, no_text: bool = False) -> Heap:
    """Open a process by its id, or a core or a snapshot by its path.

    Nothing is read yet. If the process ends and another process gets its id, the other process is not read. At the
    first question a process is stopped while its private memory is copied, for at most ``max_stop`` (seconds, or "2s";
    0: no limit). ``clone``: stop it only while the kernel makes a frozen copy of it. ``no_text``: answers show no
    contents of strings, bytes and keys (GDBHEAP_NO_TEXT=1 does the same). Raises NoTarget if the target does not exist,
    NotPermitted if it may not be read, and UsageError for options that do not fit the target."""
    limit = seconds_of(max_stop) or None
    hidden = no_text or wanted(os.environ)
    found = meant(target)
    if isinstance(found, ProcessFolder):
        if found.pid == os.getpid():
            itself = f"process {found.pid} is the running program itself"
            raise NotPermitted(f"{itself}: gdbheap.snapshot(FILE) reads it from inside")
        when_untraced(found, lambda: refusal.check(found))
        process = LiveProcess(found, limit, clone)
        return Heap(SharedTarget(process, process.name, hidden))
    if clone:
        raise UsageError("clone=True needs a process")
    if is_snapshot(found):
        return Heap(SharedTarget(read(found), f"snapshot {found}", hidden), found)
    if find_file(found) is None:
        raise NoTarget(f"there is no file {found}: give the id of a process, or the path of a core or a snapshot")
    core = CoreFile(found)
    return Heap(SharedTarget(core, core.name, hidden))


def meant(target: Target) -> ProcessFolder | str:
    """Return the open folder of the process that ``target`` names, or the path of the file that it names.

    Raises NoTarget, NotPermitted or UsageError."""
    found = parse_target(os.fspath(target)) if isinstance(target, (str, os.PathLike)) else pid_of(target)
    return refusal.open_folder(found) if isinstance(found, int) else found


def here() -> Heap:
    """Open the process or core that is selected in gdb, as it is at this stop, in gdb's own Python.

    gdb's commands must be loaded: ``heap`` was typed, or gdb was started with ``-x gdbheap``. Raises UsageError outside
    gdb, and if gdb has no process."""
    found = current()
    if found is None:
        raise UsageError("gdbheap.here() works only in gdb's own Python: type 'heap' in gdb first, which loads gdbheap")
    return Heap(SharedTarget(Current(found), found.name, wanted(os.environ)))
