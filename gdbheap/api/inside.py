"""Snapshots and reports that a program makes of itself.

The program makes a frozen copy of itself, another process reads the copy, and the copy ends. This code runs in signal
handlers, in server requests and by ``sys.remote_exec``, so it takes no lock and imports little. The other process is a
new interpreter (copy_reader), because a copy of a program with threads may run no Python."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from gdbheap._native import BY_SIGNAL, NO_OWN_MEMORY, NOT_STARTED, OwnCopy
from gdbheap.api.arguments import Seconds, seconds_of
from gdbheap.dataclass import dataclass
from gdbheap.errors import EXHAUSTED, GdbheapError, NotPermitted, Unsupported, UsageError, one_line
from gdbheap.files import check_writable
from gdbheap.host import headroom
from gdbheap.host.procfs import PROC, kib, parse_status
from gdbheap.machines.machine import own_machine

__all__ = ["Saved", "snapshot", "write_report"]

SNAPSHOT, REPORT = "snapshot", "report"
# The memory that the reader needs, in addition to the copy's page tables.
READER_BYTES = 64 << 20
# A word of a command line has at most 128 KiB, and one word contains all threads.
MAX_THREADS = 2000
CODE = (
    "import sys, json; order = json.loads(sys.argv[1]); sys.path += order['path'];"
    " from gdbheap.api.copy_reader import main; main(order)"
)
# Variables that change how an interpreter or malloc works; they are meant for the program, and not for the reader.
NOT_HANDED_ON = ("PYTHON", "MALLOC_", "GLIBC_", "LD_PRELOAD", "LD_AUDIT")
INSTEAD = "read the program from outside ('gdbheap PID'), or let it write a core"
# The ids of processes whose copy is being read now. A child that is forked meanwhile has another id, so it does not
# count as busy.
_busy: dict[int, object] = {}


@dataclass(frozen=True)
class Saved:
    """A file that a program wrote about itself.

    ``size``: the size of the file in bytes.
    ``paused``: for how many seconds the calling thread was paused while the copy was made.
    ``seconds``: the time of the whole call.
    """

    path: str
    size: int
    paused: float
    seconds: float


def snapshot(
    path: str | os.PathLike[str],
    *,
    blocks: bool = False,
    owners: bool | None = None,
    max_time: Seconds | None = None,
    python: str | None = None,
) -> Saved:
    """Write a snapshot of the calling program, as ``Heap.save`` does for another program.

    The call needs no rights that the program does not have, and no process traces the program (docs/inside.md). The
    calling thread is paused while the kernel copies page tables, then waits for the file, while other threads run on.
    After ``max_time`` (seconds, or "30s") the copy and its reader are ended. ``python``: the interpreter that reads the
    copy, if the program's own is not suitable. Raises UsageError for a file that cannot be written, Unsupported if no
    copy can be made, NotPermitted if the copy cannot be read, and GdbheapError."""
    return _written(SNAPSHOT, path, {"blocks": blocks, "owners": owners}, max_time, python)


def write_report(
    path: str | os.PathLike[str],
    *,
    owners: bool | None = None,
    max_time: Seconds | None = None,
    python: str | None = None,
) -> Saved:
    """Write one HTML page about the calling program, as ``Heap.write_report`` does for another program.

    The arguments have the same meaning as for ``snapshot``."""
    return _written(REPORT, path, {"owners": owners}, max_time, python)


def _written(
    what: str, path: str | os.PathLike[str], options: dict[str, Any], max_time: Seconds | None, python: str | None
) -> Saved:
    began, file = time.monotonic(), os.path.abspath(os.fspath(path))
    limit = None if max_time is None else seconds_of(max_time)
    check_writable(file)
    _refuse()
    order = {"what": what, "file": file, "pid": os.getpid(), "threads": _threads(), "path": _path(), **options}
    words = [_interpreter(python), "-I", "-S", "-c", CODE, json.dumps(order)]
    mine = object()
    if _busy.setdefault(os.getpid(), mine) is not mine:
        raise GdbheapError("another copy of this program is being read now: try again when that reading has ended")
    try:
        copy = _copy(words)
        ended = copy.wait(limit)
    finally:
        _busy.pop(os.getpid(), None)
    if ended is None:
        raise GdbheapError(f"reading the copy took longer than {limit:g} s and was ended: allow more time (max_time)")
    return Saved(file, _size(*ended), copy.paused, time.monotonic() - began)


def _copy(words: list[str]) -> OwnCopy:
    encoded = [os.fsencode(word) for word in words]
    environment = [
        name + b"=" + value
        for name, value in os.environb.items()
        if not name.startswith(tuple(map(str.encode, NOT_HANDED_ON)))
    ]
    try:
        return OwnCopy(encoded, environment)
    except OSError as error:
        why = EXHAUSTED.get(error.errno or 0) or f"{error.strerror}: {INSTEAD}"
        raise Unsupported(f"the kernel refuses a copy of this program: {why}") from None


def _size(status: int, said: bytes) -> int:
    """Return the size of the written file in bytes, from the reader's output.

    If the reader wrote no size, raise the error that it reported, or the error for its exit status.
    """
    try:
        told: dict[str, Any] = json.loads(said.decode("utf-8", "replace").strip().rpartition("\n")[2] or "{}")
    except ValueError:
        told = {}
    if status == 0 and isinstance(told.get("size"), int):
        return int(told["size"])
    if "error" in told:
        error = _kind(told.get("status"))(str(told["error"]))
        raise error
    if status == NOT_STARTED:
        raise Unsupported("the interpreter for reading the copy cannot be started: name another interpreter (python=…)")
    if status == NO_OWN_MEMORY:
        raise NotPermitted(f"/proc/self/mem cannot be opened in the copy (is /proc mounted?): {INSTEAD}")
    if status > BY_SIGNAL:
        why = "memory ran out, or a seccomp filter forbids the process's system calls"
        raise GdbheapError(f"the process that read the copy was killed (signal {status - BY_SIGNAL}; {why}): {INSTEAD}")
    words = one_line(said.decode("utf-8", "replace"), 200)
    raise GdbheapError(f"the copy could not be read (status {status}; {words}): {INSTEAD}")


def _kind(status: object) -> type[GdbheapError]:
    kinds = (UsageError, NotPermitted, Unsupported)
    return next((kind for kind in kinds if kind.status == status), GdbheapError)


def _refuse() -> None:
    """Raise Unsupported if making a copy could harm this program, or is not allowed."""
    if own_machine() is None:
        raise Unsupported(f"gdbheap cannot copy a program on this machine: {INSTEAD}")
    if os.getuid() != os.geteuid() or os.getgid() != os.getegid():
        raise Unsupported(f"this program does not run with the rights of the user who started it (set-uid): {INSTEAD}")
    spaces = [os.readlink(f"{PROC}/self/ns/{name}") for name in ("pid", "pid_for_children")]
    if spaces[0] != spaces[1]:
        raise Unsupported(f"children of this program get their own process namespace (unshare): {INSTEAD}")
    if headroom.processes_left("self") < 2:
        raise Unsupported(
            "the control group of this program allows fewer than two more processes (pids.max): raise that limit, "
            f"or {INSTEAD}"
        )
    with open(f"{PROC}/self/status", "rb") as stream:
        tables = kib(parse_status(stream.read()).get("VmPTE")) or 0
    left = headroom.memory_left("self")
    if left < tables + READER_BYTES:
        need = f"copying page tables needs {tables >> 20} MiB, and the reader about {READER_BYTES >> 20} MiB"
        raise Unsupported(f"{need}, but only {left >> 20} MiB are left: raise the memory limit, or {INSTEAD}")


def _threads() -> list[tuple[int, int]]:
    """Return the id (0: unknown) and the thread pointer of each Python thread.

    No lock is taken: the lock of ``threading`` may be held by the very thread that a signal interrupted."""
    threading = sys.modules.get("threading")
    known = dict(getattr(threading, "_active", {}))
    numbers = {ident: getattr(thread, "native_id", None) or 0 for ident, thread in known.items()}
    return [(numbers.get(ident, 0), ident) for ident in list(sys._current_frames())[:MAX_THREADS]]


def _path() -> list[str]:
    """Return the folders for the reader's ``sys.path``: the folder of this package, and the folder of elftools, which
    this package needs.

    No other package is imported from these folders."""
    from importlib.util import find_spec

    found = [os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))]
    spec = find_spec("elftools")
    if spec is not None and spec.origin:
        found.append(os.path.dirname(os.path.dirname(os.path.abspath(spec.origin))))
    return list(dict.fromkeys(found))


def _interpreter(python: str | None) -> str:
    """Return the interpreter that reads the copy. Raises Unsupported if none is found.

    In a server that embeds Python, sys.executable is another program."""
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    places = [os.path.join(prefix, "bin", name) for prefix in (sys.exec_prefix, sys.base_exec_prefix)]
    own = sys.executable or ""
    candidates = [python] if python is not None else [own if "python" in os.path.basename(own) else "", *places]
    for path in candidates:
        if path and os.access(path, os.X_OK) and os.path.isfile(path):
            return os.path.abspath(path)
    raise Unsupported(f"no interpreter for reading the copy was found: name an interpreter (python=…), or {INSTEAD}")
