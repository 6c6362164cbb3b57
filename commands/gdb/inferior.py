"""gdb's side of the target: what the selected inferior is, and a gdbheap Target of it.

Of a process on this machine and of a core only the threads' registers come from gdb; their bytes are read around it,
because gdb shows zeros for what a core does not hold and other files' bytes for what it leaves out. Of a process behind
a server everything comes through gdb: memory in its own calls, /proc by the remote protocol's file packets."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gdb

from gdbheap.commands.calls.inferior_call import Purpose, Stack
from gdbheap.commands.gdb.remote_files import RemoteFiles
from gdbheap.commands.gdb.remote_target import RemoteProcess
from gdbheap.errors import GdbheapError, NoTarget, Unsupported, UsageError, one_line
from gdbheap.target import procfs, refusal
from gdbheap.target.core import Core
from gdbheap.target.elf import LoadedObject
from gdbheap.target.mappings import Mapping, parse_maps
from gdbheap.target.process import Process, Registers
from gdbheap.target.target import Target

__all__ = ["GdbCaller", "Place", "attach", "build", "core_place", "place", "registers", "selection_kept", "settings"]

LIVE, CORE, REMOTE = "live", "core", "remote"
KINDS = {"native": LIVE, "core": CORE, "remote": REMOTE, "extended-remote": REMOTE}
GENERAL = "rax rbx rcx rdx rsi rdi rbp r8 r9 r10 r11 r12 r13 r14 r15".split()
ADDRESS_MASK = (1 << 64) - 1
FRAME_LIMIT = 64
CODE_LOOK = 1 << 20


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
        return Place(inferior.num, CORE, inferior.pid, _core_path(inferior), _program())
    if kind is None or not inferior.pid:
        raise NoTarget("there is no process and no core here: attach PID, or core-file FILE")
    if any(thread.is_running() for thread in inferior.threads()):
        raise UsageError("the process is running: interrupt it first")
    return Place(inferior.num, kind, inferior.pid, None, _program())


def core_place(path: str) -> Place:
    """A core that gdb itself has not taken, in place of the selected inferior."""
    return Place(gdb.selected_inferior().num, CORE, 0, path, _program())


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


def _program() -> str | None:
    """The file that gdb has as the program, or None."""
    space = gdb.current_progspace()
    return space.filename if space else None


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


def registers() -> list[Registers]:
    """Those of every thread of the selected inferior, in gdb's order."""
    found: list[Registers] = []
    with selection_kept():
        for thread in reversed(gdb.selected_inferior().threads()):
            thread.switch()
            frame = gdb.newest_frame()
            fs_base, sp, pc = (_register(frame, name) for name in ("fs_base", "sp", "pc"))
            general = [_register(frame, name) for name in GENERAL]
            found.append((thread.ptid[1] or thread.ptid[0], fs_base, sp, pc, general))
    return found


def _register(frame: gdb.Frame, name: str) -> int:
    """A register as an unsigned number, 0 when gdb does not have it."""
    try:
        return int(frame.read_register(name)) & ADDRESS_MASK
    except (gdb.error, ValueError):
        return 0


def build(where: Place) -> Target:
    """A Target of ``where``. Raises GdbheapError (no memory, not permitted, not supported)."""
    if where.kind == CORE:
        assert where.core is not None
        return Core(where.core, where.exe)
    _check_architecture()
    if where.kind == LIVE:
        return Process(where.pid, registers())
    return RemoteProcess(where.pid, registers(), _remote_read, _remote_files())


def _check_architecture() -> None:
    name = gdb.selected_inferior().architecture().name()
    if name != "i386:x86-64":
        raise Unsupported(f"this is a program for {one_line(name)}: gdbheap reads 64-bit x86_64 programs")


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


def _remote_get(path: str, limit: int) -> bytes:
    """A file of the server through a copy in a temporary file. Raises OSError."""
    with tempfile.NamedTemporaryFile() as copy:
        try:
            gdb.execute(f"remote get {path} {copy.name}", to_string=True)
        except gdb.error as error:
            raise OSError(0, one_line(error), path) from None
        return copy.read(limit)


@contextlib.contextmanager
def settings(**wanted: str) -> Iterator[None]:
    """gdb's settings as given inside the block ("_" stands for a hyphen); those that this gdb lacks are left out."""
    before = {}
    try:
        for key, value in wanted.items():
            name = key.replace("_", "-").replace("--", " ")
            with contextlib.suppress(gdb.error, RuntimeError):
                before[name] = gdb.parameter(name)
                gdb.execute(f"set {name} {value}", to_string=True)
        yield
    finally:
        for name, old in before.items():
            with contextlib.suppress(gdb.error):
                gdb.execute(f"set {name} {_spelled(old)}", to_string=True)


def _spelled(value: object) -> str:
    """A setting's value as it is typed."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return "unlimited" if value is None else str(value)


@contextlib.contextmanager
def _stop_signal_ignored() -> Iterator[None]:
    """A process stopped by SIGSTOP may have one pending: gdb would abandon a call half-way, with the process in it."""
    row = gdb.execute("info signals SIGSTOP", to_string=True).splitlines()[-1].split()[1:4]
    words = zip(("stop", "print", "pass"), row)
    gdb.execute("handle SIGSTOP nostop noprint nopass", to_string=True)
    try:
        yield
    finally:
        before = " ".join(word if yes.startswith("Y") else f"no{word}" for word, yes in words)
        gdb.execute(f"handle SIGSTOP {before}", to_string=True)


def _version(text: str) -> int:
    """The major number in "13.1" or "Fedora Linux 13.2-1"; 0 when there is none."""
    found = re.search(r"\b(\d+)\.\d", text)
    return int(found[1]) if found else 0


class GdbCaller:
    """What ``inferior_call.Caller`` asks for of a server's process, by gdb, in the selected thread. Calls are made
    inside ``ready()``."""

    def __init__(self, where: Place, target: Target, purpose: Purpose) -> None:
        self._where = where
        self._target = target
        self._purpose = purpose

    def check(self, libc: LoadedObject, allow_seccomp: bool) -> None:
        """Raise GdbheapError when gdb cannot follow the stacks of this process, cannot put its registers back, or a
        filter may kill it for a call."""
        known = {getattr(objfile, "build_id", None) for objfile in gdb.objfiles()}
        if libc.build_id not in known:
            raise GdbheapError(
                f"{self._purpose.command}: gdb has not read the process's own {os.path.basename(libc.path)}, so that "
                "it cannot be proven that no thread is inside malloc: 'set sysroot /proc/PID/root' mends that for a "
                "container"
            )
        assert isinstance(self._target, RemoteProcess)
        reason = self._target.unrestorable(_version(gdb.VERSION))
        if reason:
            raise self._purpose.error(f"{reason}; gdbheap on the server's own machine can call")
        if self._target.status().get("Seccomp", "0") != "0" and not allow_seccomp:
            raise GdbheapError(
                f"{self._purpose.command}: the process runs under a seccomp filter, which may kill it for an "
                f"unexpected call: {self._purpose.instead}, or --seccomp to call all the same"
            )

    @contextlib.contextmanager
    def ready(self) -> Iterator[None]:
        """Only the selected thread runs, and a call that fails leaves no frame behind."""
        wanted = {
            "scheduler_locking": "on", "unwindonsignal": "on", "unwind_on_terminating_exception": "on",
            "language": "c", "backtrace__limit": "unlimited", "suppress_cli_notifications": "on",
        }  # fmt: skip
        with selection_kept(), settings(**wanted), _stop_signal_ignored():
            try:
                yield
            finally:
                self._forget_signal()

    def _forget_signal(self) -> None:
        """Step over one "nop" and put the registers back.

        A call of gdb ends with a SIGSEGV where it returns to the stack, which gdb takes for the breakpoint that it is.
        gdbserver remembers it as the last stop and delivers it when it detaches: the process would die. A step makes a
        SIGTRAP the last stop, which is never delivered (gdbserver/linux-low.cc, get_detach_signal)."""
        nop = self._nop()
        frame = gdb.newest_frame()
        before = {name: int(frame.read_register(name)) for name in ("rip", "eflags", "rax", "orig_rax")}
        gdb.execute("set $orig_rax = -1", to_string=True)  # else the kernel sets rip back to restart a system call
        gdb.execute(f"set $rip = {nop:#x}", to_string=True)
        gdb.execute("stepi", to_string=True)
        for name, value in before.items():
            gdb.execute(f"set ${name} = {value}", to_string=True)

    def _nop(self) -> int:
        """The address of a byte 0x90 in the code of the process: wherever it stands, it is an instruction by itself."""
        for mapping in filter(_is_code, self._target.mappings):
            found = self._target.space.read_available(mapping.start, CODE_LOOK).find(b"\x90")
            if found >= 0:
                return mapping.start + found
        raise self._purpose.error("no code of the process can be read, which a call through a server needs")

    def stacks(self) -> list[Stack]:
        """The stack of every thread of the selected inferior."""
        found = []
        with selection_kept():
            for thread in gdb.selected_inferior().threads():
                thread.switch()
                found.append(_stack(thread))
        return found

    def call(self, function: int, *arguments: int) -> int:
        """Call by address: no symbol or type is needed."""
        types = ",".join(["long"] * len(arguments)) or "void"
        text = f"((long (*)({types})) {function:#x})({','.join(map(str, arguments))})"
        try:
            return int(gdb.parse_and_eval(text))
        except gdb.error as error:
            raise GdbheapError(f"{self._purpose.command}: a call into the process failed: {one_line(error)}") from None

    def read(self, address: int, size: int) -> bytes:
        """Memory as gdb sees it now."""
        try:
            return gdb.selected_inferior().read_memory(address, size).tobytes()
        except gdb.error as error:
            raise GdbheapError(f"{self._purpose.command}: {one_line(error)}") from None

    def write(self, address: int, data: bytes) -> None:
        """Change memory of the process."""
        try:
            gdb.selected_inferior().write_memory(address, data)
        except gdb.error as error:
            raise GdbheapError(f"{self._purpose.command}: {one_line(error)}") from None


def _is_code(mapping: Mapping) -> bool:
    return mapping.perms.startswith("r-x") and mapping.path.startswith("/")


def _stack(thread: gdb.InferiorThread) -> Stack:
    """The counters of the selected thread. Frames that are only inlined have no counter of their own."""
    name = f"{thread.ptid[1] or thread.ptid[0]} ({one_line(thread.name or '?', 40)})"
    counters: list[int] = []
    frame: gdb.Frame | None = None
    try:
        frame = gdb.newest_frame()
        while frame is not None and len(counters) < FRAME_LIMIT:
            if frame.type() != gdb.INLINE_FRAME:
                counters.append(int(frame.pc()))
            last, frame = frame, frame.older()
    except gdb.error as error:
        return Stack(name, counters, str(error))
    if frame is None and last.unwind_stop_reason() not in (gdb.FRAME_UNWIND_NO_REASON, gdb.FRAME_UNWIND_OUTERMOST):
        return Stack(name, counters, gdb.frame_stop_reason_string(last.unwind_stop_reason()))
    return Stack(name, counters, "")


def attach(pid: int) -> None:
    """Attach to a process with the symbols of its program, libpython and libc read before it is stopped.

    Raises GdbheapError that explains a refusal."""
    folder = refusal.open_folder(pid)
    refusal.check(folder)
    program = _read_program(folder)
    spare = [_spare_inferior(path) for path in _libraries(folder, program)]
    try:
        gdb.execute(f"attach {pid}")
    except gdb.error as error:
        explained = refusal.explain(pid, PermissionError(errno.EPERM, str(error)))
        raise explained from None
    finally:
        for number in filter(None, spare):
            with contextlib.suppress(gdb.error):
                gdb.execute(f"remove-inferiors {number}", to_string=True)


def _read_program(folder: procfs.ProcessFolder) -> str:
    """Have gdb read the program, unless it has one already."""
    path = folder.path("root") + folder.link("exe")
    if _program() is None:
        with contextlib.suppress(gdb.error):
            gdb.execute(f"file {_quoted(path)}", to_string=True)
    return path


def _libraries(folder: procfs.ProcessFolder, program: str) -> list[str]:
    """libpython and libc as the process has them mapped; none when it may not be looked at."""
    with contextlib.suppress(OSError):
        mappings = parse_maps(folder.read("maps", procfs.TABLE_LIMIT))
        paths = {
            mapping.path
            for mapping in mappings
            if os.path.basename(mapping.path).startswith(("libpython", "libc.so", "libc-"))
        }
        return [folder.path("root") + path for path in sorted(paths)]
    return []


def _spare_inferior(path: str) -> int | None:
    """An inferior that holds the symbols of a file: gdb shares them with every other that maps the same file."""
    before = {inferior.num for inferior in gdb.inferiors()}
    with contextlib.suppress(gdb.error):
        gdb.execute(f"add-inferior -no-connection -exec {_quoted(path)}", to_string=True)
    return next((inferior.num for inferior in gdb.inferiors() if inferior.num not in before), None)


def _quoted(path: str) -> str:
    return "".join("\\" + letter if letter in " \t\"'\\" else letter for letter in path)
