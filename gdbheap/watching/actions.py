"""What is done when the moment has come: a snapshot and the answer of ``heap`` from one stop, a core, a command.

The look is taken in a child process of ours: what it needs of memory is given back when it ends, and whatever befalls
it, the waiting goes on. Each step that fails is a line, and the next one is tried."""

from __future__ import annotations

import itertools
import os
import re
import resource
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

from gdbheap.environment import find_program
from gdbheap.errors import GdbheapError, UsageError, exhausted, one_line, reason_of
from gdbheap.files import PRIVATE, check_place, is_file, is_shared, open_folder, settle, working_folder, write_text
from gdbheap.first_page.main_holders import MainHolders
from gdbheap.heap import Heap
from gdbheap.host import open_files
from gdbheap.host.aside import do_aside
from gdbheap.host.headroom import room_for_copy
from gdbheap.host.procfs import ProcessFolder, stat_fields
from gdbheap.refusals import refusal
from gdbheap.snapshots.file import write
from gdbheap.snapshots.snapshot import take
from gdbheap.targets.core import check_whole
from gdbheap.targets.process import Preparation, Process, Registers, stopped
from gdbheap.watching.child import LOST, Child, look_seconds, too_long, usually
from gdbheap.watching.core_contents import Contents, find_contents, mark_absent
from gdbheap.watching.triggers import Cause

__all__ = ["Actions", "Done", "check"]

# gdb lets the process go when it is asked to end; it is given this long for that.
PARTING_SECONDS = 5.0
PARTING = (signal.SIGTERM, signal.SIGKILL)
# A gdb that does not stop within this time waits in the kernel.
STOPPING_SECONDS = 2.0
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP)
# Each stops a process that does not handle it.
STOPS = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
NEAR_DEATH = ("limit", "soon", "pressure", "oom")
CORE_NOTES_BYTES = 16 << 20
# gdb needs this much address space for itself.
GDB_SPACE = 512 << 20
# Whatever lies below this folder's name is not there, ".." neither.
NOWHERE = "/dev/null"
# gdb opens what a target names: its executable, which names a file of symbols, and the libraries of its link map, whose
# names may be relative. Without the system's name gdb reads no link map and no vDSO while it attaches.
SETTINGS = (
    "set debuginfod enabled off", "set auto-load off", "set auto-solib-add off", "set osabi none",
    f"set sysroot {NOWHERE}", f"set debug-file-directory {NOWHERE}", "set confirm off", "set pagination off",
    # What no such line names is not read: nothing while gdb attaches.
    "mem 0 1 ro",
)  # fmt: skip
GDB = ("gdb", "-nx", "-q", *(word for setting in SETTINGS for word in ("-iex", setting)))
# gdb reads commands when it has attached, or could not. An error leaves out what is left of a block.
READY = b"gdbheap: gdb is ready"
ATTACHED = f"shell echo '{READY.decode()}' >&2\n"
# The notes of a core are those of the system.
WRITE = "if 1\n{}set osabi GNU/Linux\ngcore {}\nquit 0\nend\nquit 1\n"


@dataclass(frozen=True)
class Actions:
    """``folder``: where files are written; ``snapshot`` (with ``blocks``), ``heap``, ``core``: which; ``run``: a
    command and its arguments; ``run_limit``: seconds until it is ended; ``max_stop``: for how many seconds the process
    is held at most, by the look and again by the core, None without end; ``document``: what --heap keeps of a heap,
    with its holders; ``mode``: of all files."""

    folder: str
    snapshot: bool
    blocks: bool
    heap: bool
    core: bool
    run: Sequence[str]
    run_limit: float
    max_stop: float | None
    document: Callable[[Heap], tuple[str, MainHolders]]
    mode: int = PRIVATE


@dataclass
class Done:
    """``files``: what was written, by its kind ("snapshot", "heap", "core"); ``errors``: one line each; ``held``: for
    how many seconds the process stood still for the look, None where it was not stopped; ``partial``: something is
    missing in it; ``run``: the exit status of the command, negative for a signal, None where none ran to its end."""

    files: dict[str, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    held: float | None = None
    partial: bool = False
    run: int | None = None


def check(actions: Actions) -> None:
    """Before waiting. Raises UsageError for what could not be done when the moment comes."""
    check_place(actions.folder)
    if actions.core and find_program(GDB[0]) is None:
        raise UsageError("--core needs gdb, which writes it: install gdb")
    if actions.run and not _is_program(actions.run[0]):
        raise UsageError(f"--run: there is no program {one_line(actions.run[0])}")


def _is_program(name: str) -> bool:
    """Return whether a program is there that is named by its path, or is found along PATH."""
    return (os.sep not in name or is_file(name)) and shutil.which(name) is not None


def act(
    actions: Actions,
    folder: ProcessFolder,
    name: str,
    cause: Cause,
    prepared: Preparation | None = None,
    standing: Sequence[Registers] = (),
    seconds: float = look_seconds(0, 1),
) -> Done:
    """Do all of it, one after the other. ``standing``: threads that stand by somebody else's doing, who keep the others
    from what they do: the process is not stopped then. ``seconds``: how long the look may take."""
    now, pid = time.time(), folder.pid
    base = os.path.join(os.path.abspath(actions.folder), _base(name, pid, now, actions.folder))
    done = Done()
    if actions.snapshot or actions.heap:
        _look_in_child(lambda: _look(actions, folder, base, cause, prepared, standing), done, seconds)
    if actions.core:
        _core(actions, folder, _path(base, ".core"), done)
    if actions.run:
        _run(actions, _variables(pid, name, cause, now, done), done)
    return done


def _base(name: str, pid: int, now: float, folder: str) -> str:
    """The name of the files without their endings: program, process id and time (UTC), none of it there yet."""
    plain = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "_-") else "_" for letter in name)
    base = f"{plain.lstrip('-') or 'process'}-{pid}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now))}"
    taken: set[str] = set()

    def find_taken() -> None:
        with suppress(OSError):
            number = open_folder(folder)
            try:
                taken.update([entry.partition(".")[0] for entry in os.listdir(number)])
            finally:
                os.close(number)

    # Another user may keep the lock of a folder that he may read.
    do_aside(find_taken, lambda: 0)
    numbered = (f"{base}-{number}" for number in itertools.count(2))
    return next(found for found in itertools.chain([base], numbered) if found not in taken)


def _path(base: str, ending: str) -> str:
    """Return the path of one file. Where others may plant names it has a part that nobody guesses, also from the names
    of the other files."""
    part = f"-{os.urandom(8).hex()}" if is_shared(os.path.dirname(base)) else ""
    return f"{base}{part}{ending}"


def _look_in_child(look: Callable[[], dict[str, Any]], done: Done, seconds: float) -> None:
    """A child takes the look and says what came of it, or is ended when the time is over."""
    try:
        child = Child(look)
    except OSError as error:
        done.errors.append(f"the look could not be taken: {exhausted(error)}")
        return
    try:
        is_whole = child.wait(seconds)
    finally:
        child.end()
    _take_in(child.result() if is_whole else None, LOST if is_whole else too_long(seconds), done)


def _look(
    actions: Actions,
    folder: ProcessFolder,
    base: str,
    cause: Cause,
    prepared: Preparation | None,
    standing: Sequence[Registers],
) -> dict[str, Any]:
    done = Done()
    # One that stands still asks for no more memory, and is not killed for it before all is written.
    copies = cause.kind not in NEAR_DEATH
    try:
        held = stopped(folder, actions.max_stop, copies, prepared)
        with nullcontext(Process(folder, standing, prepared)) if standing else held as process:
            heap = Heap(process)
            # Files hold no contents.
            heap.disclosure.contents = False
            holders = None
            if actions.heap:
                text, holders = actions.document(heap)
                path = _path(base, ".json")
                write_text(path, f"{text}\n", actions.mode)
                done.files["heap"] = path
            if actions.snapshot:
                path = _path(base, ".heap")
                write(path, take(heap, None, actions.blocks, holders), actions.mode)
                done.files["snapshot"] = path
        done.held, done.partial = process.stopped_seconds, heap.partial
    except (Exception, KeyboardInterrupt) as error:
        done.errors.append(reason_of(error))
    return vars(done)


def _take_in(found: dict[str, Any] | None, reason: str, done: Done) -> None:
    if found is None:
        done.errors.append(f"the look was not taken: {reason}; the process runs on")
        return
    done.files.update(found["files"])
    done.errors += found["errors"]
    done.held, done.partial = found["held"], found["partial"]


def _core(actions: Actions, process: ProcessFolder, path: str, done: Done) -> None:
    """Have gdb write a core into a folder of ours beside its place, if there is room on the disk."""
    try:
        was_stopped = _is_stopped(process)
        _check_room(find_contents(process), actions.folder)
        with working_folder(os.path.dirname(path)) as folder:
            beside = os.path.join(folder, os.path.basename(path))
            reason = _written_by_gdb(process, beside, actions.max_stop, was_stopped)
            if reason is None:
                check_whole(beside)
                settle(beside, path, actions.mode)
                done.files["core"] = path
    except (GdbheapError, OSError) as error:
        reason = one_line(error)
    if reason is not None:
        done.errors.append(f"no core was written: {reason}")


def _check_room(contents: Contents, folder: str) -> Contents:
    """Return what a core may hold. Raises UsageError where the disk has no room for it, OSError."""
    needed = CORE_NOTES_BYTES + contents.bytes
    number = open_folder(folder)
    try:
        status = os.statvfs(number)
    finally:
        os.close(number)
    room = status.f_bavail * status.f_frsize
    if needed > room:
        raise UsageError(f"it may take {needed:,} bytes, and {one_line(folder)} has room for {room:,}")
    return contents


def _written_by_gdb(folder: ProcessFolder, path: str, seconds: float | None, was_stopped: bool) -> str | None:
    """Return None once it is written, else why it is not. gdb is ended when the time is up, and whoever it stopped runs
    on, unless it ``was_stopped`` before. Raises GdbheapError, OSError."""
    deadline = None if seconds is None else time.monotonic() + seconds
    gdb, contents, said = _started_gdb(folder, os.path.dirname(path)), None, ""
    try:
        said = _is_attached(gdb, deadline)
        if refusal.other_tracer(folder) == gdb.pid:
            # It stands now, and maps nothing more.
            contents = _check_room(find_contents(folder), os.path.dirname(path))
        commands = WRITE.format(contents.commands, os.path.basename(path)) if contents else ""
        said += _tell(gdb, commands, deadline)
    except subprocess.TimeoutExpired:
        return f"gdb took longer than --max-stop={seconds:g} allows: give it more"
    finally:
        with _uninterrupted():
            _end_gdb(gdb, folder, was_stopped)
        _close_pipes(gdb)
    if contents and os.path.exists(path) and gdb.returncode == 0:
        mark_absent(path, contents, said)
        return None
    if not contents and not folder.is_there():
        return str(refusal.another(folder))
    named = (line for line in said.splitlines() if re.search(rf"\b{folder}\b", line))
    return one_line(next(named, "gdb failed"), 200)


def _started_gdb(folder: ProcessFolder, place: str) -> subprocess.Popen[bytes]:
    """Start gdb, which attaches to a process and then reads commands; it writes to ``place``. Raises OSError."""
    space = max(GDB_SPACE, room_for_copy())
    return subprocess.Popen(
        [find_program(GDB[0]) or GDB[0], *GDB[1:], "-p", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=place,
        # gdb's own "shell" takes that of the environment, which may be one that lets nobody in. Its messages are read.
        env={**os.environ, "SHELL": "/bin/sh", "LC_ALL": "C"},
        start_new_session=True,
        preexec_fn=lambda: _be_modest(space),
    )


def _close_pipes(gdb: subprocess.Popen[bytes]) -> None:
    """Close them without waiting for gdb: one that waits in the kernel for a file cannot be ended."""
    for stream in (gdb.stdin, gdb.stderr):
        with suppress(OSError):
            if stream is not None:
                stream.close()


def _be_anybody() -> None:
    """Give this process the usual priority, and the usual limit of open files."""
    usually()
    open_files.be_usual()


def _be_modest(space: int) -> None:
    """Limit the address space of this process to ``space`` bytes, give it the usual priority, and keep its files
    private."""
    _be_anybody()
    os.umask(0o077)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    least = min([space, *(limit for limit in limits if limit != resource.RLIM_INFINITY)])
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (least, least))


def _is_attached(gdb: subprocess.Popen[bytes], deadline: float | None) -> str:
    """Wait until gdb has attached, or could not; what it has said on standard error. gdb takes a number, and whoever
    has it: it writes nothing and lets nobody go before it is told to. Raises TimeoutExpired, OSError."""
    assert gdb.stdin is not None and gdb.stderr is not None
    said, number = b"", gdb.stderr.fileno()
    with suppress(BrokenPipeError):
        gdb.stdin.write(ATTACHED.encode())
        gdb.stdin.flush()
    poll = select.poll()
    poll.register(number, select.POLLIN)
    while READY not in said:
        if not poll.poll(None if deadline is None else max(0.0, 1000 * (deadline - time.monotonic()))):
            raise subprocess.TimeoutExpired(GDB, 0)
        part = os.read(number, 1 << 16)
        if not part:
            break
        said += part
    return said.decode("utf-8", "replace")


def _tell(gdb: subprocess.Popen[bytes], commands: str, deadline: float | None) -> str:
    """The last commands; what it says on standard error until it ends. Raises TimeoutExpired."""
    left = None if deadline is None else max(0.0, deadline - time.monotonic())
    return gdb.communicate(commands.encode(), left)[1].decode("utf-8", "replace")


def _end_gdb(gdb: subprocess.Popen[bytes], folder: ProcessFolder, was_stopped: bool) -> None:
    """End gdb, and let run whom it held. One that ends by itself leaves no signal of its own behind: whoever stands
    then was stopped by somebody else."""
    if gdb.poll() is not None and gdb.returncode >= 0:
        return
    held, is_to_stop = _killed_gdb(gdb, folder.pid)
    is_right = held is not None and folder.is_there()
    if held is not None and not is_right:
        _let_run(held, is_to_stop, True)
    _let_run(folder, was_stopped or (is_right and is_to_stop), is_right)


def _killed_gdb(gdb: subprocess.Popen[bytes], number: int) -> tuple[ProcessFolder | None, bool]:
    """End gdb; return whom it held at that moment, and whether that one is to stop by somebody's signal: the number may
    belong to another process since. gdb stands still while that is looked up, and is killed where it holds nobody, or
    waits in the kernel, where it hears nothing else."""
    held, is_to_stop, is_deaf = None, False, False
    with suppress(OSError):
        gdb.send_signal(signal.SIGSTOP)
        own, until = ProcessFolder(gdb.pid), time.monotonic() + STOPPING_SECONDS
        while gdb.poll() is None and not _is_stopped(own) and not is_deaf:
            time.sleep(0.001)
            is_deaf = time.monotonic() > until
        one = ProcessFolder(number)
        held = one if refusal.other_tracer(one) == gdb.pid else None
        is_to_stop = held is not None and _is_told_to_stop(one)
    if gdb.poll() is None:
        with suppress(OSError):
            os.killpg(gdb.pid, signal.SIGKILL if held is None or is_deaf else signal.SIGTERM)
            os.killpg(gdb.pid, signal.SIGCONT)
    _end(gdb, (signal.SIGKILL,) if is_deaf else PARTING)
    return held, is_to_stop


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Hold back signals that would end us: gdb stands still meanwhile, and so does whoever it holds."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end(process: subprocess.Popen[bytes], numbers: Sequence[int] = PARTING) -> None:
    """End it with all that it has started; gdb lets go of what it holds when it is asked to end."""
    for number in numbers:
        if process.poll() is not None:
            return
        with suppress(OSError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(PARTING_SECONDS)


def _is_stopped(folder: ProcessFolder) -> bool:
    """Return whether somebody has stopped it by a signal. Raises OSError."""
    return stat_fields(folder.read("stat"))[:1] == ["T"]


def _is_about_to_stop(folder: ProcessFolder) -> bool:
    """Return whether a SIGSTOP waits for one of its threads. Raises OSError."""
    waiting = ("SigPnd", "ShdPnd")
    stop = 1 << signal.SIGSTOP - 1
    statuses = [folder.status(), *map(folder.status, folder.tasks())]
    return any(int(status.get(name, "0"), 16) & stop for status in statuses for name in waiting)


def _is_told_to_stop(folder: ProcessFolder) -> bool:
    """Return whether a signal waits that somebody has sent to the whole process and that stops it: gdb sends its own to
    threads. Raises OSError."""
    status = folder.status()
    waiting, handled, ignored = (int(status.get(name, "0"), 16) for name in ("ShdPnd", "SigCgt", "SigIgn"))
    return any((waiting & ~(handled | ignored)) >> number - 1 & 1 for number in STOPS)


def _let_run(folder: ProcessFolder, was_stopped: bool, was_held: bool = False) -> None:
    """Take back the SIGSTOP by which gdb attaches, which stays behind where gdb ended at that moment. ``was_held``: gdb
    was ended while it held the process, which may be on its way to stand still."""
    with suppress(OSError):
        if not was_stopped and (was_held or _is_stopped(folder) or _is_about_to_stop(folder)):
            folder.signal(signal.SIGCONT)


def _variables(pid: int, name: str, cause: Cause, now: float, done: Done) -> dict[str, str]:
    """What the command is told, in its environment."""
    facts: dict[str, object] = {"PID": pid, "NAME": name, "TIME": f"{now:.3f}"}
    facts.update({"CAUSE": cause.kind, "SIZE": cause.bytes, "BOUND": cause.bound, "LIMIT": cause.limit})
    facts.update({"SECONDS": cause.seconds, "GROUP": cause.cgroup, "ERROR": done.errors[0] if done.errors else None})
    facts.update({kind.upper(): path for kind, path in done.files.items()})
    return {f"GDBHEAP_{key}": str(value) for key, value in facts.items() if value is not None}


def _run(actions: Actions, variables: Mapping[str, str], done: Done) -> None:
    """No shell: the words are the program and its arguments. What it prints goes where our own lines go."""
    try:
        process = subprocess.Popen(
            list(actions.run), stdin=subprocess.DEVNULL, stdout=2, env={**os.environ, **variables},
            start_new_session=True, preexec_fn=_be_anybody,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        done.errors.append(f"{one_line(actions.run[0])} cannot be started: {one_line(error)}")
        return
    try:
        done.run = process.wait(actions.run_limit or None)
    except subprocess.TimeoutExpired:
        done.errors.append(f"{one_line(actions.run[0])} was ended after {actions.run_limit:g} s (--run-limit)")
    finally:
        _end(process)
    if done.run:
        done.errors.append(f"{one_line(actions.run[0])} ended with status {done.run}")
