"""Build the target programs of tests/programs, start them until they rest, dump their cores, ask gdbheap about them,
and end them.

A program rests when its main thread is inside pause(2), or reads standard input: nothing in it changes any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import platform
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from support import forked
from support.schemas import assert_fits

SOURCES = Path(__file__).resolve().parent.parent / "programs"
GDBHEAP = Path(sys.executable).with_name("gdbheap")
PROCESS, GCORE, KERNEL_CORE = FORMS = ("process", "gcore", "kernel core")
# The beginnings of /proc/PID/syscall in pause(2), which is ppoll(NULL, 0) on aarch64, and in read(2) of descriptor 0.
RESTING = {"x86_64": ("34 ", "0 0x0 "), "aarch64": ("73 0x0 0x0 ", "63 0x0 ")}[platform.machine()]
PATIENCE = 120
# The largest document that is compared with its schema, in characters. Larger ones would take seconds.
MAX_FITTED = 300_000
_programs: dict[str, str] = {}
_built = tempfile.TemporaryDirectory(prefix="gdbheap-programs-")
# A root folder whose interpreters are tested instead of this system's. GDBHEAP_RELEASE selects one of them.
ROOT_FOLDER = os.environ.get("GDBHEAP_ROOT", "")
# The program has its own mounts, which end with it. The folders that it names have the same paths inside and outside.
_ENTER = """root=$1 sources=$2 temporary=$3
shift 3
for folder in "$sources" "$temporary"; do
    mkdir -p "$root$folder"
    mount --bind "$folder" "$root$folder"
done
mount -t proc proc "$root/proc"
program=${1#"$root"}
shift
exec chroot "$root" env -C "$PWD" "$program" "$@\""""


@functools.cache
def build(name: str, *more: str) -> Path:
    """Return the executable of tests/programs/NAME.c, compiled once per run. ``more``: further compiler flags."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    executable = Path(tempfile.mkdtemp(dir=_built.name)) / name
    flags = ["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", *more]
    subprocess.run([compiler, *flags, str(SOURCES / f"{name}.c"), "-o", str(executable)], check=True)
    return executable


@functools.cache
def plain_malloc() -> Path:
    """Return tests/programs/plain_malloc.c as a library to be preloaded. gdbheap cannot walk its blocks; its name is
    like tcmalloc's.
    """
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = Path(_built.name) / "libtcmalloc_plain.so"
    flags = ["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fno-builtin", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, str(SOURCES / "plain_malloc.c"), "-o", str(library)], check=True)
    return library


@dataclass
class Running:
    """A started program; ``directory`` is its own, for its output ("stderr") and its cores."""

    process: subprocess.Popen[bytes]
    directory: Path
    program: str = ""

    @property
    def pid(self) -> int:
        """Return the program's process id."""
        return self.process.pid

    @property
    def stderr(self) -> str:
        """Return the program's standard error."""
        return (self.directory / "stderr").read_text(errors="replace")

    def rest(self) -> None:
        """Return when the program rests; raise if it ended, or did not rest within PATIENCE seconds."""
        deadline = time.monotonic() + PATIENCE
        while not self._rests():
            if self.process.poll() is not None:
                raise AssertionError(f"the target ended with {self.process.returncode}: {self.stderr[-2000:]}")
            if time.monotonic() > deadline:
                raise AssertionError(f"the target did not come to rest: {self.stderr[-2000:]}")
            time.sleep(0.01)

    def rest_wholly(self) -> None:
        """Return when all threads of the program sleep: the others may still work when the first one rests."""
        deadline = time.monotonic() + PATIENCE
        while any("\nState:\tS" not in task.read_text() for task in Path(f"/proc/{self.pid}/task").glob("*/status")):
            assert time.monotonic() < deadline, "a thread does not come to rest"
            time.sleep(0.001)

    def _rests(self) -> bool:
        return Path(f"/proc/{self.pid}/syscall").read_text().startswith(RESTING)

    def go_on(self, line: str = "") -> None:
        """Let a program that reads standard input run to its next rest."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()
        while Path(f"/proc/{self.pid}/syscall").read_text().startswith(RESTING[1]) and self._unread():
            time.sleep(0.01)
        self.rest()
        # If a tracer stopped the thread on its way out of the call, the thread seems to be in it.
        deadline = time.monotonic() + PATIENCE
        while Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "t":
            assert time.monotonic() < deadline, "a tracer holds it"
            time.sleep(0.01)
            self.rest()

    def _unread(self) -> bool:
        """Return whether the byte is still in the pipe."""
        assert self.process.stdin is not None
        waiting = fcntl.ioctl(self.process.stdin.fileno(), termios.FIONREAD, b"\0\0\0\0")
        return int(struct.unpack("i", waiting)[0]) > 0

    def as_form(self, form: str) -> str:
        """Return TARGET for the command line: the pid, or the path of a core. The kernel's core ends the program."""
        if form == PROCESS:
            return str(self.pid)
        return str(self.gcore() if form == GCORE else self.kernel_core())

    def gcore(self) -> Path:
        """Return a core written by gdb; the program runs on."""
        if shutil.which("gdb") is None:
            pytest.skip("no gdb")
        path = self.directory / "written-by-gdb"
        command = ["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-p", str(self.pid)]
        command += ["-ex", f"gcore {path}"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)
        assert path.exists(), done.stdout + done.stderr
        self.rest()
        return path

    def kernel_core(self) -> Path:
        """Return the core that the kernel writes when the program is aborted."""
        return self._core_after(lambda: self.process.send_signal(signal.SIGABRT))

    def aborted_core(self) -> Path:
        """Return the core of a program that reads standard input, and aborts by itself after a line."""
        assert self.process.stdin is not None
        stdin = self.process.stdin
        return self._core_after(lambda: (stdin.write(b"\n"), stdin.flush()))

    def _core_after(self, end: Callable[[], object]) -> Path:
        if reason := why_no_cores():
            pytest.skip(reason)
        before = set(self.directory.iterdir())
        end()
        self.process.wait(PATIENCE)
        cores = set(self.directory.iterdir()) - before
        assert len(cores) == 1, f"core files: {cores}"
        core = cores.pop()
        if _is_inside(self.program):
            _programs[str(core)] = self.program
        return core

    def close(self) -> None:
        """End the program."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)
        if self.process.stdin is not None:
            self.process.stdin.close()


def why_no_cores() -> str | None:
    """Return why the kernel writes no complete core files to the working directory here; None if it does."""
    pattern = Path("/proc/sys/kernel/core_pattern").read_text().strip()
    if "/" in pattern or pattern.startswith("|"):
        return f"core files do not go to the working directory here: core_pattern is {pattern!r}"
    if resource.getrlimit(resource.RLIMIT_CORE)[1] != resource.RLIM_INFINITY:
        return "the hard limit on core files is not unlimited"
    return None


def allow_cores() -> None:
    """Allow a full core, with the kernel's default mappings (0x33: no file contents except ELF headers)."""
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    with contextlib.suppress(OSError):
        Path("/proc/self/coredump_filter").write_text("0x33")


def end_group(process: subprocess.Popen[Any]) -> None:
    """End a process and its session, and wait for it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(PATIENCE)


@contextlib.contextmanager
def running(
    command: list[str], directory: Path, environment: dict[str, str] | None = None, root: Path | None = None
) -> Iterator[Running]:
    """Yield a command that was started and rests; it is ended in any case. ``root``: its root folder."""
    folder = Path(tempfile.mkdtemp(dir=directory))
    if root is not None:
        command = ["chroot", str(root), "env", "-C", f"/{folder.relative_to(root)}", *command]
    program, command = command[0], entered(command)
    with (folder / "stderr").open("wb") as errors:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env={**plain_environment(), **(environment or {})},
            preexec_fn=allow_cores,
        )
    target = Running(process, folder, program)
    try:
        target.rest()
        yield target
    finally:
        target.close()


def program_of(target: str) -> str | None:
    """Return the path for ``--exe`` if a core's program is in ROOT_FOLDER; otherwise None."""
    return _programs.get(target)


def _is_inside(program: str) -> bool:
    return bool(ROOT_FOLDER) and program.startswith(ROOT_FOLDER)


def entered(command: list[str]) -> list[str]:
    """Return the command; if its program is in ROOT_FOLDER, a command that runs it inside, with the same process id."""
    if not _is_inside(command[0]):
        return command
    enter = ["unshare", "--mount", "sh", "-ec", _ENTER, "sh", ROOT_FOLDER, str(SOURCES), tempfile.gettempdir()]
    return [*enter, *command]


@functools.cache
def has_mount_namespaces() -> bool:
    """Return whether root can make a mount namespace here, with a root folder that is a mount point."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0


def plain_environment() -> dict[str, str]:
    """Return this process's environment without variables that change how a program allocates."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "MALLOC", "GLIBC", "LD_"))}


@dataclass(frozen=True)
class Interpreter:
    """A CPython on this machine. ``kind``: "unstripped" if the file with its code (``library``) has a .symtab,
    otherwise "stripped".
    """

    executable: str
    kind: str
    library: str


KINDS = ("unstripped", "stripped")
EXTRA = "GDBHEAP_PYTHONS"
FREE_THREADED = ("3.13t", "3.14t", "3.15t")
# The release for all tests, including those of a single one.
ONLY = os.environ.get("GDBHEAP_RELEASE", "")
RELEASE = ONLY or "3.11"
ALL_RELEASES = ("2.7", "3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15")
RELEASES = (ONLY,) if ONLY else ALL_RELEASES


def since(first: str) -> list[str]:
    """Return the releases in RELEASES from ``first`` on."""
    return [release for release in RELEASES if ALL_RELEASES.index(release) >= ALL_RELEASES.index(first)]


_ASK = """import os, sys, sysconfig
# Debian's has its code in itself, also where its library is installed.
shared = "/libpython" in open("/proc/self/maps").read()
library = os.path.join(sysconfig.get_config_var("LIBDIR") or "", sysconfig.get_config_var("INSTSONAME") or "")
threaded = "t" if "t" in getattr(sys, "abiflags", "") else ""
print("%d.%d%s" % (sys.version_info[:2] + (threaded,)) if "PyPy" not in sys.version else "other")
print(os.readlink("/proc/self/exe"))
print(library if shared and os.path.exists(library) else os.readlink("/proc/self/exe"))"""


@functools.cache
def interpreters(release: str = RELEASE) -> tuple[Interpreter, ...]:
    """Return each CPython of a release once: those in PATH, in /usr/bin, below ~/.pyenv and in GDBHEAP_PYTHONS, or that
    of ROOT_FOLDER.

    A debug build is named "3.11-dbg", as by Debian, a free-threaded one "3.13t".
    """
    python, number = f"python{release}", release.split("-")[0]
    names = [f"{ROOT_FOLDER}/usr/bin/{python}"]
    if not ROOT_FOLDER:
        others = (python, "python3") if number == release else (python,)
        names += [path for path in map(shutil.which, others) if path]
        names += sorted(str(path) for path in Path.home().glob(f".pyenv/versions/*/bin/{python}"))
        names += filter(None, os.environ.get(EXTRA, "").split(os.pathsep))
    examined = (_examine(name, number) for name in names)
    found = {interpreter.executable: interpreter for interpreter in examined if interpreter}
    return tuple(found.values())


def _examine(executable: str, release: str) -> Interpreter | None:
    try:
        command = entered([executable, "-c", _ASK])
        answer = subprocess.run(command, capture_output=True, text=True, env=plain_environment(), timeout=PATIENCE)
    except OSError:
        return None
    lines = answer.stdout.splitlines()
    if answer.returncode or len(lines) != 3 or lines[0] != release:
        return None
    path, library = (ROOT_FOLDER + line for line in lines[1:])
    with open(library, "rb") as file:
        unstripped = ELFFile(file).get_section_by_name(".symtab") is not None
    return Interpreter(path, KINDS[0] if unstripped else KINDS[1], library)


def interpreter_of(kind: str) -> str:
    """Return a CPython RELEASE of that kind; skip the test if there is none."""
    for interpreter in interpreters():
        if interpreter.kind == kind:
            return interpreter.executable
    pytest.skip(f"no {kind} CPython {RELEASE} on the path, in /usr/bin or below ~/.pyenv")


def interpreter_of_release(release: str) -> Interpreter:
    """Return a CPython of that release; skip the test if there is none."""
    for interpreter in interpreters(release):
        return interpreter
    pytest.skip(f"no CPython {release} on the path, in /usr/bin, below ~/.pyenv or in {EXTRA}")


@functools.cache
def stripped_library(interpreter: Interpreter) -> Path:
    """Return a folder with a copy of the interpreter's library without symbols, for LD_LIBRARY_PATH."""
    if interpreter.library == interpreter.executable or not shutil.which("strip"):
        pytest.skip(f"{interpreter.executable} has no library of its own, or there is no strip")
    folder = Path(_built.name) / f"stripped-{Path(interpreter.library).name}"
    folder.mkdir()
    target = folder / Path(interpreter.library).name
    subprocess.run(["strip", "--strip-all", interpreter.library, "-o", str(target)], check=True)
    return folder


def status(pid: int, field: str) -> int:
    """Return a number from /proc/PID/status; 0 when the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{field}:")), 0)


def tracer(pid: int) -> int:
    """Return the process that traces this one; 0 if there is none. The kernel names the tracing thread."""
    task = status(pid, "TracerPid")
    return status(task, "Tgid") if task else 0


def python_program(kind: str, name: str, *arguments: object) -> list[str]:
    """Return the command that runs tests/programs/NAME.py with a CPython RELEASE of that kind."""
    return [interpreter_of(kind), "-I", str(SOURCES / f"{name}.py"), *map(str, arguments)]


def release_program(release: str, name: str, *arguments: object) -> list[str]:
    """Return the command that runs tests/programs/NAME.py with a CPython of that release, which obeys PYTHONMALLOC."""
    return [interpreter_of_release(release).executable, "-s", str(SOURCES / f"{name}.py"), *map(str, arguments)]


def c_program(name: str, *arguments: object) -> list[str]:
    """Return the command that runs tests/programs/NAME.c, which is built first."""
    return [str(build(name)), *map(str, arguments)]


def gdbheap(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the shell command; internal errors print a traceback. ``options``: arguments of subprocess.run."""
    environment = {**os.environ, "GDBHEAP_DEBUG": "1"}
    command = [str(GDBHEAP), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=environment, **options)


def said(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Return the result of the command, run as a fork of a process that has imported it (``forked``), which is
    faster."""
    return forked.run(str(GDBHEAP), list(arguments), {**os.environ, "GDBHEAP_DEBUG": "1"})


def whole_snapshot(folder: Path) -> Path:
    """Return a snapshot of a Python process, with all optional parts."""
    path = folder / "good.heap"
    with running(python_program(KINDS[0], "secret_texts", "text", 50), folder) as target:
        assert gdbheap("snapshot", str(target.pid), str(path), "--blocks", "--owners").returncode == 0
    return path


def ask(noun: str, target: str, *options: str, status: int = 0) -> dict[str, Any]:
    """Return the JSON answer of ``gdbheap [NOUN] TARGET OPTIONS --json``.

    The answer has all rows unless the options set a number. Fails if it does not fit its schema, or if the exit status
    is not ``status``.
    """
    program = program_of(target)
    more = [*(["--exe", program] if program else []), *whole_lists(*options), "--json"]
    done = said(*filter(None, [noun]), target, *options, *more)
    assert done.returncode == status, f"exit status {done.returncode}\n{done.stderr}\n{done.stdout[-2000:]}"
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict)
    if len(done.stdout) < MAX_FITTED:
        assert_fits(answer)
    return answer


def whole_lists(*options: str) -> list[str]:
    """Return the option for complete lists, unless the options already set a length."""
    return [] if any(option.startswith("--top") for option in options) else ["--top=all"]


def steady(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document without values that change over time: everything about the container except its id, and the
    change of RSS.
    """
    found = {key: value for key, value in document.items() if key != "meanwhile"}
    group = document.get("control_group")
    if group is not None:
        found["control_group"] = {key: group[key] for key in ("folder", "version", "max")}
    return found


def has_no_answer(done: subprocess.CompletedProcess[str]) -> bool:
    """Return whether standard output has no answer: it is empty, or has the document of an error with --json."""
    if not done.stdout:
        return True
    error = json.loads(done.stdout).get("error") if done.stdout.startswith("{") else None
    return error is not None and error["status"] == done.returncode and error["what"] in done.stderr
