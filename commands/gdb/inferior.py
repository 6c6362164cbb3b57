"""gdb's selected inferior as a gdbheap Target.

For a process on this machine and for a core, only the registers of threads come from gdb. Memory is read directly: for
bytes that are not in a core, gdb shows zeros, or bytes of files that are not the core's own. For a process behind a
server everything comes through gdb: memory by gdb's functions, /proc by packets of the remote protocol."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from typing import Any

import gdb

from gdbheap.commands.gdb.remote_files import RemoteFiles
from gdbheap.commands.gdb.remote_target import RemoteProcess
from gdbheap.dataclass import dataclass
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
    "TargetIdentity",
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
class TargetIdentity:
    """The facts that identify an inferior's target. ``kind``: LIVE, CORE or REMOTE. A heap stays in the cache for
    further commands as long as these facts stay equal."""

    inferior: int
    kind: str
    pid: int
    core: str | None
    exe: str | None


def place() -> TargetIdentity:
    """Return the identity of the selected inferior's target. Raises NoTarget if it has none, UsageError while the
    process runs.
    """
    inferior = gdb.selected_inferior()
    kind = _kind(inferior)
    if kind == CORE:
        return TargetIdentity(inferior.num, CORE, inferior.pid, _core_path(inferior), program())
    if kind is None or not inferior.pid:
        raise NoTarget("gdb has no process and no core: type attach PID, or core-file FILE")
    if any(thread.is_running() for thread in inferior.threads()) and not (kind == LIVE and _stands(inferior.pid)):
        raise UsageError("the process is running: interrupt it first")
    return TargetIdentity(inferior.num, kind, inferior.pid, None, program())


def _stands(pid: int) -> bool:
    """Return whether all threads of a process are stopped. The states are read from /proc, because gdb reports the
    threads as running while it tests a breakpoint's condition.
    """
    try:
        folder = ProcessFolder(pid)
        states = [stat_fields(folder.read(f"task/{tid}/stat"))[STATE] for tid in folder.tasks()]
    except (OSError, IndexError):
        return False
    return set(states) <= TRACED


def core_place(path: str) -> TargetIdentity:
    """Return the identity of a core that gdb itself refused to open.

    This core is then used instead of the selected inferior's target.
    """
    return TargetIdentity(gdb.selected_inferior().num, CORE, 0, path, program())


def _kind(inferior: gdb.Inferior) -> str | None:
    """Return the kind of an inferior's target: live, core or remote; None if it has none. Raises Unsupported for other
    kinds (a simulator)."""
    names = _target_names()
    known = next((KINDS[name] for name in names if name in KINDS), None)
    if known is None and inferior.pid:
        what = ", ".join(name for name in names if name not in ("exec", "None"))
        raise Unsupported(f"gdbheap does not support gdb's target {what}, only processes, cores and gdbserver")
    return known


def _target_names() -> list[str]:
    """Return the short names in gdb's target stack, the topmost first. They are read from lines such as "  - native
    (Native process)".

    Inferior.connection is not used: once it was read, gdb 13 fails an assertion if a signal ends gdb."""
    stack = gdb.execute("maintenance print target-stack", to_string=True)
    return re.findall(r"^\s*-\s+(\S+) \(", stack, re.MULTILINE)


def _core_path(inferior: gdb.Inferior) -> str:
    """Return the path of the core. Since gdb 17 Inferior.corefile has it; older versions only print it. Raises
    GdbheapError."""
    corefile = getattr(inferior, "corefile", None)
    if corefile is not None:
        return str(corefile.filename)
    text = gdb.execute("info files", to_string=True)
    # The program's path comes first, and its folder may have any name.
    found = re.findall(r"^Local core dump file:\n\s*[`'‘]([^\n]+)['’], file type ", text, re.MULTILINE)
    if not found:
        raise GdbheapError("gdb does not say where this core's file is ('info files')")
    return os.path.abspath(str(found[-1]))


def program() -> str | None:
    """Return the file that gdb uses as the program; None if it has none."""
    space = gdb.current_progspace()
    return space.filename if space else None


def sysroot() -> str | None:
    """Return the folder that gdb uses as the target's root ("set sysroot"). Return None if it is "/", or not a folder
    of this machine."""
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
    """Restore the selected thread and frame at the end of the block."""
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
    """Make gdb reread the data that another program may have changed in the process: registers, and memory (gdb 12 and
    later).
    """
    with selection_kept():
        for line in ("maintenance flush register-cache", "maintenance flush dcache"):
            with contextlib.suppress(gdb.error):
                gdb.execute(line, to_string=True)


def registers(machine: Machine) -> list[Registers]:
    """Return the registers of each thread of the selected inferior, in gdb's order."""
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
    """Return a register as an unsigned number; 0 if gdb does not have it."""
    try:
        return int(frame.read_register(name)) % machine.address_end
    except (gdb.error, ValueError):
        return 0


def build(where: TargetIdentity) -> Target:
    """Return a new target for the inferior that ``where`` identifies. Raises GdbheapError if the target cannot be read,
    or gdbheap does not support it."""
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
        raise Unsupported(f"this is a program for {one_line(name)}: gdbheap reads only {READ_TITLES} programs")
    return machine


def _remote_read(address: int, size: int) -> bytes:
    return gdb.selected_inferior().read_memory(address, size).tobytes()


FileReader = Callable[[str, int], bytes]


def _remote_files() -> RemoteFiles | FileReader:
    """Return the reader of the server's files. The reader uses packets of the remote protocol (gdb 12 and later), or
    else 'remote get', which copies whole files.
    """
    connection = getattr(gdb.selected_inferior(), "connection", None)
    return RemoteFiles(_send_packet) if hasattr(connection, "send_packet") else _remote_get


def _send_packet(packet: bytes) -> bytes:
    connection: Any = gdb.selected_inferior().connection
    answer: bytes = connection.send_packet(packet)
    return answer


def word_of(path: str) -> str:
    """Return a path quoted as one word of gdb's command line.

    Raises gdb.error if it has control characters, because a line break would begin another command.
    """
    if not path.isprintable():
        raise gdb.error("the name of the file or folder has a control character, which gdb's command line cannot have")
    return "".join("\\" + letter if letter in " \t\"'\\" else letter for letter in path)


def _remote_get(path: str, limit: int) -> bytes:
    """Read a file of the server, by copying it into a temporary file. Raises OSError."""
    with temporary_folder() as folder:
        copy = f"{folder}/copy"
        try:
            gdb.execute(f"remote get {word_of(path)} {copy}", to_string=True)
        except gdb.error as error:
            raise OSError(0, one_line(error), path) from None
        with open(copy, "rb") as stream:
            return stream.read(limit)
