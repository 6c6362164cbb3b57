"""gdb's side of the target: what the selected inferior is, and a gdbheap Target of it.

Of a process on this machine and of a core only the threads' registers come from gdb; their bytes are read around it,
because gdb shows zeros for what a core does not hold and other files' bytes for what it leaves out. Of a process behind
a server everything comes through gdb: memory in its own calls, /proc by the remote protocol's file packets."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gdb

from gdbheap.commands.gdb.remote_files import RemoteFiles
from gdbheap.commands.gdb.remote_target import RemoteProcess
from gdbheap.errors import GdbheapError, NoTarget, Unsupported, UsageError, one_line
from gdbheap.files import hold_file, temporary_folder
from gdbheap.host.procfs import STATE, ProcessFolder, stat_fields
from gdbheap.machines.machine import READ_TITLES, Machine, machine_of_gdb
from gdbheap.targets.core import Core
from gdbheap.targets.cores.debuginfod import fetcher
from gdbheap.targets.process import Process, Registers
from gdbheap.targets.target import Target

__all__ = [
    "CORE",
    "LIVE",
    "REMOTE",
    "Place",
    "build",
    "core_place",
    "place",
    "program",
    "registers",
    "reread",
    "selection_kept",
    "sysroot",
    "word_of",
]

LIVE, CORE, REMOTE = "live", "core", "remote"
KINDS = {"native": LIVE, "core": CORE, "remote": REMOTE, "extended-remote": REMOTE}
# The state of a thread that a debugger has stopped (proc(5)).
TRACED = {"t"}


@dataclass(frozen=True)
class Place:
    """What an inferior is now; a Heap is kept for as long as this stays equal. ``kind``: live, core or remote."""

    inferior: int
    kind: str
    pid: int
    core: str | None
    exe: str | None


def place() -> Place:
    """The selected inferior. Raises NoTarget when it is nothing yet, UsageError while it runs."""
    inferior = gdb.selected_inferior()
    kind = _kind(inferior)
    if kind == CORE:
        return Place(inferior.num, CORE, inferior.pid, _core_path(inferior), program())
    if kind is None or not inferior.pid:
        raise NoTarget("there is no process and no core here: attach PID, or core-file FILE")
    if any(thread.is_running() for thread in inferior.threads()) and not (kind == LIVE and _stands(inferior.pid)):
        raise UsageError("the process is running: interrupt it first")
    return Place(inferior.num, kind, inferior.pid, None, program())


def _stands(pid: int) -> bool:
    """Whether all threads stand still: while gdb tests a breakpoint's condition it calls them running."""
    try:
        folder = ProcessFolder(pid)
        states = [stat_fields(folder.read(f"task/{tid}/stat"))[STATE] for tid in folder.tasks()]
    except (OSError, IndexError):
        return False
    return set(states) <= TRACED


def core_place(path: str) -> Place:
    """A core that gdb itself has not taken, in place of the selected inferior."""
    return Place(gdb.selected_inferior().num, CORE, 0, path, program())


def _kind(inferior: gdb.Inferior) -> str | None:
    """live, core, remote, or None for no target at all. Raises Unsupported for other kinds (a simulator)."""
    names = _target_names()
    known = next((KINDS[name] for name in names if name in KINDS), None)
    if known is None and inferior.pid:
        what = ", ".join(name for name in names if name not in ("exec", "None"))
        raise Unsupported(f"gdb debugs this through its target {what}: gdbheap knows processes, cores, gdbserver")
    return known


def _target_names() -> list[str]:
    """Short names of the targets that gdb looks through, the topmost first: "  - native (Native process)".

    Not by Inferior.connection: once that was asked for, gdb 13 fails an assertion when it is ended by a signal."""
    stack = gdb.execute("maintenance print target-stack", to_string=True)
    return re.findall(r"^\s*-\s+(\S+) \(", stack, re.MULTILINE)


def _core_path(inferior: gdb.Inferior) -> str:
    """The core's file. Inferior.corefile is in gdb 17 and later; before, only text says it."""
    corefile = getattr(inferior, "corefile", None)
    if corefile is not None:
        return str(corefile.filename)
    text = gdb.execute("info files", to_string=True)
    found = re.search(r"core[^\n]*\n\s*[`'‘]([^\n]+)['’], ", text)
    if found is None:
        raise GdbheapError("gdb does not say where this core's file is ('info files')")
    return os.path.abspath(found.group(1))


def program() -> str | None:
    """The file that gdb has as the program, or None."""
    space = gdb.current_progspace()
    return space.filename if space else None


def sysroot() -> str | None:
    """The folder that gdb takes for the target's root folder ("set sysroot"), if it is one of this machine."""
    folder = str(gdb.parameter("sysroot") or "")
    if not os.path.isabs(folder):
        return None
    try:
        held = hold_file(folder)
    except (OSError, ValueError):
        return None
    try:
        real = os.readlink(f"/proc/self/fd/{held.descriptor}")
    finally:
        os.close(held.descriptor)
    return real if real != "/" and stat.S_ISDIR(held.mode) else None


@contextlib.contextmanager
def selection_kept() -> Iterator[None]:
    """Whatever thread and frame a block selects, the ones that were selected before are so again after it."""
    thread = gdb.selected_thread()
    try:
        frame = gdb.selected_frame()
    except gdb.error:
        frame = None
    try:
        yield
    finally:
        if thread is not None and thread.is_valid():
            thread.switch()
        if frame is not None and frame.is_valid():
            frame.select()


def reread() -> None:
    """Have gdb read anew what others have changed in the process: threads' registers, and memory (gdb 12 and later)."""
    with selection_kept():
        for line in ("maintenance flush register-cache", "maintenance flush dcache"):
            with contextlib.suppress(gdb.error):
                gdb.execute(line, to_string=True)


def registers(machine: Machine) -> list[Registers]:
    """Those of every thread of the selected inferior, in gdb's order."""
    found: list[Registers] = []
    names = machine.gdb
    with selection_kept():
        for thread in reversed(gdb.selected_inferior().threads()):
            thread.switch()
            frame = gdb.newest_frame()
            pointer, sp, pc = (_register(machine, frame, name) for name in (names.thread_pointer, "sp", "pc"))
            general = [_register(machine, frame, name) for name in names.general]
            found.append(Registers(thread.ptid[1] or thread.ptid[0], pointer, sp, pc, general))
    return found


def _register(machine: Machine, frame: gdb.Frame, name: str) -> int:
    """A register as an unsigned number, 0 when gdb does not have it."""
    try:
        return int(frame.read_register(name)) % machine.address_end
    except (gdb.error, ValueError):
        return 0


def build(where: Place) -> Target:
    """A Target of ``where``. Raises GdbheapError (no memory, not permitted, not supported)."""
    if where.kind == CORE:
        assert where.core is not None
        return Core(where.core, where.exe, sysroot(), fetch=fetcher())
    machine = _machine()
    if where.kind == LIVE:
        return Process(where.pid, registers(machine))
    return RemoteProcess(where.pid, registers(machine), _remote_read, _remote_files(), machine)


def _machine() -> Machine:
    name = gdb.selected_inferior().architecture().name()
    machine = machine_of_gdb(name)
    if machine is None:
        raise Unsupported(f"this is a program for {one_line(name)}: gdbheap reads {READ_TITLES} programs")
    return machine


def _remote_read(address: int, size: int) -> bytes:
    return gdb.selected_inferior().read_memory(address, size).tobytes()


FileReader = Callable[[str, int], bytes]


def _remote_files() -> RemoteFiles | FileReader:
    """How to read files of the server's side: packets (gdb 12 and later), or else whole files by 'remote get'."""
    connection = getattr(gdb.selected_inferior(), "connection", None)
    return RemoteFiles(_send_packet) if hasattr(connection, "send_packet") else _remote_get


def _send_packet(packet: bytes) -> bytes:
    connection: Any = gdb.selected_inferior().connection
    answer: bytes = connection.send_packet(packet)
    return answer


def word_of(path: str) -> str:
    """Return a path as a word of gdb's command line. Raises gdb.error where it would be more than that: a line break
    begins another command."""
    if not path.isprintable():
        raise gdb.error("the name has a control character")
    return "".join("\\" + letter if letter in " \t\"'\\" else letter for letter in path)


def _remote_get(path: str, limit: int) -> bytes:
    """A file of the server through a copy in a temporary file. Raises OSError."""
    with temporary_folder() as folder:
        copy = f"{folder}/copy"
        try:
            gdb.execute(f"remote get {word_of(path)} {copy}", to_string=True)
        except gdb.error as error:
            raise OSError(0, one_line(error), path) from None
        with open(copy, "rb") as stream:
            return stream.read(limit)
