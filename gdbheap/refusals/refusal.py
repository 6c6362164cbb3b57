"""Find out from ``/proc`` why a process cannot be read, and name the cause and the next step in one line.

``check`` runs before a process is stopped. It finds causes that are visible without an attempt: no such process, a
thread, a zombie, a kernel thread, another architecture, another tracer. ``explain`` turns a refusal by the kernel into
the error that names its cause.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TypeVar

from gdbheap.errors import EXHAUSTED, GdbheapError, NoTarget, NotPermitted, Unsupported, exhausted, next_steps, one_line
from gdbheap.host.procfs import PF_KTHREAD, PROC, Named, ProcessFolder, parse_status
from gdbheap.machines import image
from gdbheap.machines.machine import READ_TITLES, THIS_MACHINE, Machine, machine_of
from gdbheap.refusals import causes
from gdbheap.refusals.causes import AccessFacts
from gdbheap.text import named

Answer = TypeVar("Answer")

PID_LIMIT = 1 << 22
FIRST_PID_NAMESPACE = "pid:[4026531836]"
SECCOMP_FILTER = "2"
NAME_LIMIT = 64
# The name of gdbheap's own processes.
OURS = b"gdbheap"
NAMESPACE_SEARCH_LIMIT = 20_000
# The end of the message if the kernel would make gdbheap wait for a process.
WAITING = "one of its threads waits, perhaps for a file system that does not respond; try again"


def open_folder(process: Named) -> ProcessFolder:
    """Open the folder ``/proc/PID``. A folder that is already open is returned unchanged.

    Raises NoTarget if there is no such process. Raises NotPermitted if it is hidden from us.
    """
    if isinstance(process, ProcessFolder):
        return process
    pid = process
    if not 0 < pid <= PID_LIMIT:
        raise NoTarget(
            f"there is no process {pid}: process ids go from 1 to {PID_LIMIT}",
            [f"process ids go from 1 to {PID_LIMIT}"],
        )
    try:
        return ProcessFolder(pid)
    except PermissionError:
        raise _hidden(pid) from None
    except OSError as error:
        raise _absent(pid, error) from None


def check(folder: ProcessFolder, may_be_traced: bool = False) -> Machine:
    """Return the machine that the process is for, with its usual page size. The check does not disturb the process.

    Raises NoTarget, NotPermitted or Unsupported if nobody can read the process, or if it is traced already and not
    ``may_be_traced``.
    """
    try:
        status, flags = folder.status(), folder.flags()
    except TimeoutError:
        raise NoTarget(f"process {folder.pid} is in execve(), which does not end: {WAITING}") from None
    except OSError as error:
        raise _gone(folder, error) from None
    reason = _no_memory(folder, status, flags)
    if reason:
        # Names are only in the first part of the reason.
        raise NoTarget(reason, next_steps(reason))
    facts = gather(folder)
    for cause in (causes.itself,) if may_be_traced else (causes.itself, causes.traced):
        if (refused := cause(facts)) is not None:
            raise NotPermitted(refused, next_steps(cause(facts.unnamed) or ""))
    _check_lock(folder)
    return _machine(folder, facts)


def explain(process: Named, error: BaseException) -> GdbheapError:
    """Return the error to report if reading a process failed with ``error``: one line with the cause and the
    next step.
    """
    try:
        folder = open_folder(process)
        check(folder)
    except GdbheapError as known:
        return known
    pid = folder.pid
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.EPERM, errno.EACCES):
        facts = gather(folder)
        return NotPermitted(causes.permission(facts), next_steps(causes.permission(facts.unnamed)))
    if number in (errno.ESRCH, errno.ENOENT):
        return NoTarget(f"process {pid} ended while it was being read: give its core, if it left a core")
    if number in EXHAUSTED:
        return exhausted(error)
    return GdbheapError(
        f"process {pid} cannot be read ({error}): try again, or let it write a core, and give that core"
    )


def other_tracer(folder: ProcessFolder) -> int:
    """Return the id of the process that traces this one or any of its threads. Return 0 if there is none, or if it is
    gdbheap itself.
    """
    tracer = _tracer(folder, _status(folder))
    return 0 if tracer == os.getpid() else tracer


def is_gdbheap(pid: int) -> bool:
    """Return whether a process has the name of gdbheap's own processes; False for the process id 0."""
    return pid != 0 and _read_bytes(f"{PROC}/{pid}/comm").strip() == OURS


def gather(folder: ProcessFolder) -> AccessFacts:
    """Read from ``/proc`` the facts that decide whether a process can be read.

    A fact that cannot be read is not treated as an obstacle.
    """
    status = _status(folder)
    own = parse_status(_read_bytes(f"{PROC}/self/status"))
    tracer = _tracer(folder, status)
    uids = _numbers(status.get("Uid"))
    label = _quiet(partial(folder.read, "attr/current"), b"")
    return AccessFacts(
        pid=folder.pid,
        name=one_line(status.get("Name", ""), NAME_LIMIT),
        uids=frozenset(uids[:3]),
        gids=frozenset(_numbers(status.get("Gid"))[:3]),
        permitted=_mask(status.get("CapPrm")),
        dumpable=not uids or _quiet(folder.owner, uids[1]) == uids[1],
        tracer=tracer,
        tracer_name=_process_name(tracer),
        label=label.decode("utf-8", "replace").strip("\0\n "),
        own_pid=os.getpid(),
        own_uid=os.getuid(),
        own_gid=os.getgid(),
        capabilities=_mask(own.get("CapEff")),
        bounding=_mask(own.get("CapBnd")),
        ptrace_scope=_number(_read_bytes(f"{PROC}/sys/kernel/yama/ptrace_scope").decode("ascii", "replace")),
        seccomp=own.get("Seccomp") == SECCOMP_FILTER,
        user_namespace=_read_bytes(f"{PROC}/self/uid_map").split() != [b"0", b"0", b"4294967295"],
        container=container(),
    )


def container(root: str = "", environment: Mapping[str, str] = os.environ) -> str:
    """Return the environment in which gdbheap itself runs: ``kubernetes``, another ``container``, or ``""`` outside of
    containers.

    The environment is recognised by marks that container runtimes leave in variables and in files below ``root``.
    """
    marks = _read_bytes(f"{root}{PROC}/1/cgroup")
    if "KUBERNETES_SERVICE_HOST" in environment or b"kubepods" in marks:
        return "kubernetes"
    files = ("/.dockerenv", "/run/.containerenv")
    runtimes = (b"docker", b"containerd", b"lxc")
    found = any(os.path.exists(root + path) for path in files) or any(mark in marks for mark in runtimes)
    return "container" if found or environment.get("container") else ""


def _no_memory(folder: ProcessFolder, status: dict[str, str], flags: int) -> str | None:
    """Return why the process has no memory that could be read; None if it has memory."""
    process = f"process {folder.pid} ({one_line(status.get('Name', '?'), NAME_LIMIT)})"
    leader = _number(status.get("Tgid"))
    if leader not in (0, folder.pid):
        return f"{folder.pid} is a thread of process {leader}: give the process, {leader}"
    if flags & PF_KTHREAD:
        return f"{process} is a kernel thread and has no memory of its own: give a user process"
    if status.get("State", "")[:1] not in ("Z", "X"):
        return None
    if _number(status.get("Threads")) > 1:
        return f"the first thread of {process} has ended, so gdbheap cannot read its memory: give a core of it"
    parent = _number(status.get("PPid"))
    who = f"{named(_process_name(parent) or '?')} (process {parent})"
    return f"{process} is a zombie: its memory is gone, and only {who} can reap it: give its core, if it left a core"


def _check_lock(folder: ProcessFolder) -> None:
    """Raise NoTarget if the process's memory map stays locked, because reads of its memory would then wait."""
    try:
        folder.read("cmdline", 1)
    except TimeoutError:
        raise NoTarget(f"process {folder.pid} keeps its memory map locked: {WAITING}") from None
    except OSError:
        return


def _machine(folder: ProcessFolder, facts: AccessFacts) -> Machine:
    """Return the machine that the program is for. If the program's file may not be read, return the machine on which
    gdbheap runs.

    Raises Unsupported for a machine that gdbheap does not know.
    """
    header = image.parse_header(_quiet(partial(folder.read, "exe", image.HEADER_SIZE), b""))
    if header is None:
        return THIS_MACHINE
    machine = machine_of(header)
    if machine is None:
        what = f"a {header.bits} program for {header.machine_name}"
        raise Unsupported(f"{facts.process} is {what}, and gdbheap reads {READ_TITLES} only: use gdb on it")
    return machine


def _gone(folder: ProcessFolder, error: OSError) -> GdbheapError:
    """Return the error for a process that has ended, or whose id now belongs to another process."""
    if folder.is_there() or not os.path.exists(f"{PROC}/{folder.pid}/stat"):
        return _absent(folder.pid, error)
    return another(folder)


def another(folder: ProcessFolder) -> NoTarget:
    """Return the error for a process id that now belongs to another process."""
    return NoTarget(f"process {folder.pid} has ended; another process now has its id")


def _absent(pid: int, error: OSError) -> GdbheapError:
    """Return the error for a process id that ``/proc`` does not show, with the most likely reason.

    Such reasons are a hidden process, an id from inside a container, or no process at all.
    """
    if error.errno in EXHAUSTED:
        return exhausted(error)
    if not os.path.isdir(f"{PROC}/self"):
        return NotPermitted(f"there is no {PROC} here ({error.strerror}): mount it (mount -t proc proc {PROC})")
    with suppress(ProcessLookupError):
        try:
            os.kill(pid, 0)
        except PermissionError:
            return _hidden(pid)
    inner = _inner_process(pid)
    if inner:
        return NoTarget(
            f"there is no process {pid} here, but process {pid} of a container is process {inner} here: give {inner}"
        )
    if _quiet(partial(os.readlink, f"{PROC}/self/ns/pid"), FIRST_PID_NAMESPACE) != FIRST_PID_NAMESPACE:
        return NoTarget(f"there is no process {pid} in this PID namespace (container): ps -e lists its processes")
    return NoTarget(f"there is no process {pid}: ps -e lists the running processes")


def _hidden(pid: int) -> NotPermitted:
    return NotPermitted(f"process {pid} is another user's and {PROC} hides it (hidepid): run gdbheap as root (sudo)")


def _inner_process(pid: int) -> int:
    """Return the id that a process in a child PID namespace (a container) has in gdbheap's own PID namespace.

    ``pid``: the id of the process in the child namespace. Return 0 if there is no such process.
    """
    nobody: list[str] = []
    for name in _quiet(partial(os.listdir, PROC), nobody)[:NAMESPACE_SEARCH_LIMIT]:
        if name.isdigit():
            ids = _numbers(parse_status(_read_bytes(f"{PROC}/{name}/status")).get("NSpid"))
            if len(ids) > 1 and ids[-1] == pid:
                return ids[0]
    return 0


def _tracer(folder: ProcessFolder, status: dict[str, str]) -> int:
    """Return the id of the process that traces this one or any of its threads; 0 if no process does.

    The kernel names the thread that traces, not its process.
    """
    leader = _number(status.get("TracerPid"))
    if leader or status.get("Threads") == "1":
        return _process_of(leader)
    threads: list[int] = _quiet(folder.tasks, [])
    tracers = (_number(_status(folder, tid).get("TracerPid")) for tid in threads)
    return _process_of(next((tracer for tracer in tracers if tracer), 0))


def _process_of(thread: int) -> int:
    """Return the id of the process that a thread belongs to; the thread's own id if the process is hidden."""
    status = parse_status(_read_bytes(f"{PROC}/{thread}/status")) if thread else {}
    return _number(status.get("Tgid")) or thread


def _status(folder: ProcessFolder, task: int | None = None) -> dict[str, str]:
    nothing: dict[str, str] = {}
    return _quiet(partial(folder.status, task), nothing)


def _process_name(pid: int) -> str:
    return one_line(_read_bytes(f"{PROC}/{pid}/comm").decode("utf-8", "replace"), NAME_LIMIT) if pid else ""


def _read_bytes(path: str) -> bytes:
    with suppress(OSError), open(path, "rb") as stream:
        return stream.read(1 << 16)
    return b""


def _quiet(read: Callable[[], Answer], default: Answer) -> Answer:
    try:
        return read()
    except OSError:
        return default


def _numbers(text: str | None) -> list[int]:
    return [int(word) for word in (text or "").split() if word.isdigit()]


def _number(text: str | None) -> int:
    return next(iter(_numbers(text)), 0)


def _mask(text: str | None) -> int:
    try:
        return int(text or "0", 16)
    except ValueError:
        return 0
