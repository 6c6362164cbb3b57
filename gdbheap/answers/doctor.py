"""Check what gdbheap can read, of one process or in general. Name each obstacle, and the command that removes it.

No check stops a process. The kernel lets gdbheap open ``/proc/PID/mem`` only if gdbheap may also attach to the process
(PTRACE_MODE_ATTACH, ptrace(2)). But a seccomp filter may allow opening the file and forbid attaching. gdbheap therefore
also attaches to the process for a moment, which does not stop the process.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from gdbheap._native import open_patiently, read_patiently
from gdbheap.dataclass import dataclass
from gdbheap.environment import find_program
from gdbheap.errors import GdbheapError, NotPermitted, one_line
from gdbheap.host.cgroup import find_group
from gdbheap.host.identity import CONTAINER
from gdbheap.host.procfs import PROC, Named, ProcessFolder
from gdbheap.refusals import refusal
from gdbheap.refusals.attaching import attach_error
from gdbheap.refusals.causes import CAP_SYS_PTRACE, KUBERNETES_DEBUG, AccessFacts

__all__ = ["AccessCheck", "Doctor", "doctor", "remedy"]

Read = Literal["ok", "refused", "absent"]
OK: Read = "ok"
REFUSED: Read = "refused"
ABSENT: Read = "absent"
Place = Literal["host", "docker", "podman", "kubernetes", "systemd"]
PODMAN_MARKS = ("/run/.containerenv",)
SELF = "self"


@dataclass(frozen=True)
class AccessCheck:
    """A file or permission that gdbheap needs. ``state`` is "ok", "refused" or "absent"."""

    id: str
    state: Read
    detail: str = ""


@dataclass(frozen=True)
class Doctor:
    """The answer of ``gdbheap doctor``.

    ``where``: where gdbheap runs; "systemd" means a unit that lacks some of root's capabilities. ``reading_status``:
    the exit status of a command that would read the process, 0 if no process was given.
    """

    process: int | None
    where: Place
    rows: list[AccessCheck]
    obstacle: str | None
    advice: str | None
    reading_status: int = 0

    @property
    def targets(self) -> list[dict[str, Any]]:
        """The value of the key "targets" in the JSON document."""
        return [] if self.process is None else [{"kind": "process", "pid": self.process}]

    @property
    def exit_status(self) -> int:
        """The exit status of a command that would read the process."""
        return self.reading_status


def doctor(process: Named | None) -> Doctor:
    """Check a process or, if ``process`` is None, what gdbheap may read here. Raises NoTarget for an unknown
    process."""
    where = place()
    if process is None:
        facts = refusal.gather(ProcessFolder(os.getpid()))
        barred = attach_error()
        reason = None if facts.may_trace_all else _own_limits(facts)
        if barred is not None:
            reason = f"gdbheap can attach to no process ({one_line(barred.strerror)}{_filter(facts)})"
        return Doctor(None, where, [*_general(facts, barred)], reason, remedy(facts, where, "PID") if reason else None)
    try:
        folder = refusal.open_folder(process)
    except NotPermitted as error:
        checks = [AccessCheck("process", REFUSED, str(error))]
        return Doctor(int(str(process)), where, checks, str(error), f"sudo gdbheap {process}", 3)
    pid, checks = folder.pid, list(_of_process(folder))
    facts = refusal.gather(folder)
    found, barred = _in_the_way(folder, checks), None
    if found is None and (barred := attach_error(folder)) is not None:
        found = refusal.explain(folder, barred)
    elif tracer := refusal.other_tracer(folder):
        barred = PermissionError(errno.EPERM, f"process {tracer} traces it already")
    rows = [*checks, *_general(facts, barred)]
    if found is None:
        return Doctor(pid, where, rows, None, None)
    advice = remedy(facts, where, str(pid)) if isinstance(found, NotPermitted) else None
    return Doctor(pid, where, rows, str(found), advice, found.status)


def _filter(facts: AccessFacts) -> str:
    return ", probably because of its seccomp filter" if facts.seccomp else ""


def _in_the_way(folder: ProcessFolder, checks: list[AccessCheck]) -> GdbheapError | None:
    """Return the error that explains why a process's memory cannot be read; None if it can be read."""
    try:
        refusal.check(folder)
    except GdbheapError as error:
        return error
    memory = next(check for check in checks if check.id == "mem")
    return None if memory.state == OK else refusal.explain(folder, PermissionError(1, memory.detail))


def _of_process(folder: ProcessFolder) -> Iterator[AccessCheck]:
    """Yield a check for each file of a process that gdbheap reads. The files that most users may read come first."""
    for name in ("status", "maps", "smaps_rollup", "pagemap", "mem"):
        yield _opened(name, folder.path(name), 1 if name in ("status", "maps", "smaps_rollup") else 0)
    yield _group(folder.place)


def _general(facts: AccessFacts, barred: OSError | None) -> Iterator[AccessCheck]:
    """Yield the checks that do not depend on one process. ``barred``: the error with which attaching failed."""
    capable = "CAP_SYS_PTRACE"
    yield AccessCheck(
        "ptrace", OK if facts.may_trace_all else REFUSED, capable if facts.may_trace_all else f"no {capable}"
    )
    yield AccessCheck(
        "yama", REFUSED if facts.ptrace_scope and not facts.may_trace_all else OK, str(facts.ptrace_scope)
    )
    yield AccessCheck("attach", OK if barred is None else REFUSED, "" if barred is None else barred.strerror or "")
    yield AccessCheck("seccomp", REFUSED if facts.seccomp and (barred or not facts.may_trace_all) else OK)
    yield AccessCheck("user-namespace", REFUSED if facts.user_namespace else OK)
    if facts.pid == os.getpid():
        yield _opened("smaps_rollup", f"{PROC}/{SELF}/smaps_rollup", 1)
        yield _opened("pagemap", f"{PROC}/{SELF}/pagemap", 0)
        yield _group(SELF)
    found = find_program("gdb")
    yield AccessCheck("gdb", OK if found else ABSENT, found or "")


def _group(process: str) -> AccessCheck:
    group = find_group(process)
    return (
        AccessCheck("cgroup", ABSENT)
        if group is None
        else AccessCheck("cgroup", OK, f"{group.path} (version {group.version})")
    )


def _opened(name: str, path: str, size: int) -> AccessCheck:
    """Return a check that says whether a file can be opened.

    If ``size`` is not 0, that many bytes are read too, because some files can be opened but not read.
    """
    try:
        if size:
            read_patiently(path, size)
        else:
            os.close(open_patiently(path, False))
    except FileNotFoundError as error:
        return AccessCheck(name, ABSENT, error.strerror or "")
    except OSError as error:
        return AccessCheck(name, REFUSED, error.strerror or "")
    return AccessCheck(name, OK)


def _own_limits(facts: AccessFacts) -> str:
    """Return a text that says which processes gdbheap can read without CAP_SYS_PTRACE."""
    if facts.ptrace_scope >= 2:
        return f"no process can be read (ptrace_scope is {facts.ptrace_scope}) without CAP_SYS_PTRACE"
    if facts.ptrace_scope == 1:
        return "only processes that gdbheap starts can be read (ptrace_scope is 1) without CAP_SYS_PTRACE"
    return "only dumpable processes of the same user can be read without CAP_SYS_PTRACE"


def place(root: str = "", environment: Mapping[str, str] = os.environ, bounding: int | None = None) -> Place:
    """Return the kind of environment in which gdbheap runs, such as "docker". It is recognised by files that container
    runtimes create below ``root``.

    "systemd": a unit whose bounding set lacks CAP_SYS_PTRACE. "host": none of the others. ``bounding``: the bounding
    set, a mask of capabilities; None for gdbheap's own."""
    kind = refusal.container(root, environment)
    if kind == "kubernetes":
        return "kubernetes"
    if kind:
        marks = _text(f"{root}{PROC}/1/cgroup") + _text(f"{root}{PROC}/self/mountinfo")
        is_podman = any(os.path.exists(root + path) for path in PODMAN_MARKS) or "libpod" in marks
        return "podman" if is_podman else "docker"
    own = refusal.gather(ProcessFolder(os.getpid())).bounding if bounding is None else bounding
    is_unit = ".service" in _text(f"{root}{PROC}/self/cgroup")
    return "systemd" if is_unit and not own & CAP_SYS_PTRACE else "host"


def remedy(facts: AccessFacts, where: str, process: str, root: str = "") -> str | None:
    """Return the gdbheap command that can read the process; None if no command can (ptrace_scope 3, or another tracer).

    ``where``: the environment of gdbheap (see ``place``). ``process``: the process as the command line names it.
    ``root``: the folder with the root file system of gdbheap.
    """
    if facts.ptrace_scope >= 3 or facts.tracer not in (0, os.getpid()):
        return None
    asked = f"gdbheap {process}"
    if where == "kubernetes":
        return f"{KUBERNETES_DEBUG} -- {asked}"
    if where in ("docker", "podman"):
        found = CONTAINER.search(_text(f"{root}{PROC}/self/cgroup").encode())
        name = found[1].decode("ascii")[:12] if found else "CONTAINER"
        return f"{where} run --rm -it --pid=container:{name} --cap-add=SYS_PTRACE IMAGE_WITH_GDBHEAP {asked}"
    if where == "systemd":
        return f"sudo systemd-run --pty --collect {asked}"
    return f"sudo {asked}"


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read(1 << 16)
    except OSError:
        return ""
