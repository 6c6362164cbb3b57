"""Act when a watched condition is met: write a snapshot, the answer of ``heap`` and a core, and run a command.

gdb writes the core. The snapshot and the answer come from the same stop of the process. The heap is read in a child
process of gdbheap. The child's memory is returned when it ends, and a failure of the child does not end the watch. A
step that fails is reported in one line, and the next step is tried.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import resource
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import field
from typing import Any

from gdbheap.dataclass import dataclass
from gdbheap.environment import find_program
from gdbheap.errors import GdbheapError, NoTarget, UsageError, exhausted, one_line, reason_of
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
from gdbheap.stack_frames import StackFrame
from gdbheap.targets.core import check_whole
from gdbheap.targets.process import Preparation, Process, Registers, stopped
from gdbheap.watching.child import LOST, Child, read_seconds, restore_priority, too_long
from gdbheap.watching.core_contents import Contents, find_contents, mark_absent
from gdbheap.watching.old_files import ENDINGS, remove_oldest_actions
from gdbheap.watching.triggers import Cause

__all__ = ["Actions", "Done", "Request", "check", "run", "save"]

# When gdb is asked to end, it first releases the process. It has this many seconds to do so.
PARTING_SECONDS = 5.0
# A command of --run has this many seconds: fewer than the watch gives its child (child.PARTING_SECONDS), which then
# kills the command.
COMMAND_SECONDS = 3.0
# The time between two checks whether a command of --run has ended.
NAP_SECONDS = 0.05
PARTING = (signal.SIGTERM, signal.SIGKILL)
# If gdb does not stop within this time, it is waiting in the kernel.
STOPPING_SECONDS = 2.0
TOLD = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
ENDING = (*TOLD, signal.SIGTSTP)
# Signals that stop a process unless it handles or ignores them.
STOPS = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
NEAR_DEATH = ("limit", "soon", "pressure", "oom")
CORE_NOTES_BYTES = 16 << 20
# The address space that gdb needs for itself.
GDB_SPACE = 512 << 20
ENDED = "it ended before its memory was read"
# A path with nothing below it, not even "..".
NOWHERE = "/dev/null"
# Settings that keep gdb from opening files that the process names. These files are its executable, which names a file
# of symbols, and the libraries of its link map, whose names may be relative. If the operating system (osabi) is "none",
# gdb reads no link map and no vDSO when it attaches.
SETTINGS = (
    "set debuginfod enabled off", "set auto-load off", "set auto-solib-add off", "set osabi none",
    f"set sysroot {NOWHERE}", f"set debug-file-directory {NOWHERE}", "set confirm off", "set pagination off",
    # gdb reads only memory that such a command names. This one names a single byte, so gdb reads no memory while it
    # attaches.
    "mem 0 1 ro",
)  # fmt: skip
GDB = ("gdb", "-nx", "-q", *(word for setting in SETTINGS for word in ("-iex", setting)))
# gdb reads commands once it has attached or failed to attach. An error skips the rest of an "if" block.
READY = b"gdbheap: gdb is ready"
ATTACHED = f"shell echo '{READY.decode()}' >&2\n"
# With this osabi, the core has Linux's notes.
WRITE = "if 1\n{}set osabi GNU/Linux\ngcore {}\nquit 0\nend\nquit 1\n"


@dataclass(frozen=True)
class Actions:
    """The steps to do, and their limits.

    ``folder``: the folder for the files.
    ``snapshot`` (with ``blocks``), ``heap``, ``core``: which files to write.
    ``run``: a command and its arguments, empty for none.
    ``run_limit``: seconds after which the command is ended.
    ``max_stop``: for how many seconds the process may be stopped, once for the heap and once for the core; None for no
    limit.
    ``document``: a function that returns the text for --heap, and the holders of a heap.
    ``mode``: the permissions of the files.
    ``keep``: the number of actions whose files stay in the folder, None for all.
    """

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
    keep: int | None = None


@dataclass
class Done:
    """The result of one action: the files that it wrote, and the end of its command.

    ``files``: the paths that were written, by kind ("snapshot", "heap", "core").
    ``errors``: one line for each failure.
    ``held``: for how many seconds the process was stopped, None if it was not stopped.
    ``partial``: whether data is missing in the files.
    ``run``: the command's exit status, negative for a signal, None if it did not run to its end.
    ``is_gone``: whether the process ended before it was read.
    ``was_traced``: whether another program traced the process, so that it could not be read.
    ``had_no_room``: whether the disk was too full for a file.
    ``was_run``: whether the command was started, or should have been.
    """

    files: dict[str, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    held: float | None = None
    partial: bool = False
    run: int | None = None
    is_gone: bool = False
    was_traced: bool = False
    had_no_room: bool = False
    was_run: bool = False

    @property
    def is_nothing(self) -> bool:
        """Whether no file was written and no command was to run."""
        return not self.files and not self.was_run

    @property
    def is_too_late(self) -> bool:
        """Whether nothing was done, because the process ended before it was read."""
        return self.is_nothing and self.is_gone

    @property
    def is_to_repeat(self) -> bool:
        """Whether nothing was done for a reason that may soon be gone: it does not count as an action."""
        return self.is_nothing and (self.is_gone or self.was_traced or self.had_no_room)

    def add(self, other: Done) -> None:
        """Merge the result of later steps into this one."""
        self.files.update(other.files)
        self.errors += other.errors
        self.held = other.held if self.held is None else self.held
        self.partial, self.run = self.partial or other.partial, other.run
        self.is_gone, self.was_traced = self.is_gone or other.is_gone, self.was_traced or other.was_traced
        self.had_no_room, self.was_run = self.had_no_room or other.had_no_room, self.was_run or other.was_run


def check(actions: Actions) -> None:
    """Check, before the watch begins, that the steps are possible. Raises UsageError if a step is not possible."""
    check_place(actions.folder)
    if actions.core and find_program(GDB[0]) is None:
        raise UsageError("--core needs gdb, which writes the core: install gdb")
    if actions.run and not _is_program(actions.run[0]):
        raise UsageError(f"--run: no program {one_line(actions.run[0])} was found")


def _is_program(name: str) -> bool:
    """Return whether a program exists. ``name``: its path, or a name that is searched along PATH."""
    return (os.sep not in name or is_file(name)) and shutil.which(name) is not None


@dataclass(frozen=True)
class Request:
    """The process to act on, and the reason.

    ``prepared``: facts about the process that were read in advance, None if there are none.
    ``standing``: the registers of threads that are already stopped. If there are any, the process is not stopped again.
    ``seconds``: the time limit for reading the heap.
    ``time``: when the cause occurred, in seconds since 1970.
    ``stack``: a function that returns the frames of the thread that caused the action, outermost first. It is slow, so
    it is called after that thread was released.
    ``user``: the user for whom the action counts, None if it counts for all users.
    """

    folder: ProcessFolder
    name: str
    cause: Cause
    prepared: Preparation | None = None
    standing: Sequence[Registers] = ()
    seconds: float = read_seconds(0, 1)
    time: float = field(default_factory=time.time)
    stack: Callable[[], list[StackFrame]] = list
    user: int | None = None

    @property
    def pid(self) -> int:
        return self.folder.pid


def save(actions: Actions, request: Request) -> Done:
    """Write the snapshot, the answer of ``heap`` and the core, as far as ``actions`` requests them. Return the results.

    The files are written one after another. Then the files of old actions are removed (``keep``)."""
    folder, done = request.folder, Done()
    name = _base(request.name, request.pid, request.time, actions.folder)
    base = os.path.join(os.path.abspath(actions.folder), name)
    if actions.snapshot or actions.heap:
        _write_in_child(lambda: _write_heap(actions, request, base), done, request.seconds)
    if actions.core:
        _core(actions, folder, base, done)
    if actions.keep is not None and done.files:
        remove_oldest_actions(actions.folder, actions.keep, name)
    return done


def _base(name: str, pid: int, now: float, folder: str) -> str:
    """Return the common beginning of the files' names: program, process id and time (UTC). A number is appended if
    files in ``folder`` already have this name."""
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

    # The folder is listed in a separate thread: another user who may read the folder can lock it and so keep us
    # waiting.
    do_aside(find_taken, lambda: 0)
    numbered = (f"{base}-{number}" for number in itertools.count(2))
    return next(found for found in itertools.chain([base], numbered) if found not in taken)


def _settle(source: str, base: str, kind: str, actions: Actions, done: Done) -> None:
    """Move a complete file to its final name, and add it to ``done``. Raises UsageError.

    The name gets a random part in two cases. If other users may create files in the folder, they cannot guess this
    part, not even from the names of the other files. The other case is that another watch has just used the name.
    """
    ending = ENDINGS[kind]
    plain, unique = f"{base}{ending}", f"{base}-{os.urandom(8).hex()}{ending}"
    path = unique if is_shared(os.path.dirname(base)) else plain
    try:
        settle(source, path, actions.mode, is_new=path == plain)
    except FileExistsError:
        path = unique
        settle(source, path, actions.mode)
    done.files[kind] = path


def _write_in_child(work: Callable[[], dict[str, Any]], done: Done, seconds: float) -> None:
    """Read the heap in a child process and add its result to ``done``. The child is ended after ``seconds``."""
    try:
        child = Child(work)
    except OSError as error:
        done.errors.append(f"the heap could not be read: {exhausted(error)}")
        return
    try:
        is_whole = child.wait(seconds)
    finally:
        child.end()
    found = child.result() if is_whole else None
    reason = LOST if is_whole else too_long(seconds)
    done.add(Done(errors=[f"the heap was not read: {reason}; the process runs on"]) if found is None else Done(**found))


def _write_heap(actions: Actions, request: Request, base: str) -> dict[str, Any]:
    done = Done()
    folder, prepared, standing = request.folder, request.prepared, request.standing
    # Do not copy the memory and release the process early: while it is stopped, it asks for no more memory, and so is
    # not killed before everything is written.
    copies = request.cause.kind not in NEAR_DEATH
    try:
        held = stopped(folder, actions.max_stop, copies, prepared)
        with nullcontext(Process(folder, standing, prepared)) if standing else held as process:
            heap = Heap(process)
            # The files must not contain what is in the process's memory.
            heap.disclosure.contents = False
            text, holders = _document(actions, heap, done) if actions.heap else ("", None)
            with working_folder(os.path.dirname(base)) as place:
                try:
                    if actions.snapshot:
                        look = take(heap, None, actions.blocks, holders)
                        _write_file(place, base, "snapshot", lambda path: write(path, look), actions, done)
                finally:
                    if text:
                        _write_file(place, base, "heap", lambda path: write_text(path, f"{text}\n"), actions, done)
        done.held, done.partial = process.stopped_seconds, heap.partial
    except NoTarget as error:
        done.is_gone = not folder.is_running()
        done.errors.append(ENDED if done.is_gone else reason_of(error))
    except (Exception, KeyboardInterrupt) as error:
        done.had_no_room |= _is_no_room(error)
        # A thread that stands at a MemoryError is traced by the watch itself.
        done.was_traced = not standing and refusal.other_tracer(folder) != 0
        done.errors.append(reason_of(error))
    return vars(done)


def _document(actions: Actions, heap: Heap, done: Done) -> tuple[str, MainHolders | None]:
    """Return the text for --heap, and the holders for the snapshot. If they cannot be found, add the reason to ``done``
    and return ("", None). Raises NoTarget."""
    try:
        return actions.document(heap)
    except NoTarget:
        raise
    except Exception as error:
        done.errors.append(reason_of(error))
        return "", None


def _write_file(place: str, base: str, kind: str, write: Callable[[str], object], actions: Actions, done: Done) -> None:
    """Write a file with the function ``write`` in the private folder ``place``, then move it to its final name. Add the
    result, or the reason for a failure, to ``done``. ``base``: the final path without the ending."""
    source, path = os.path.join(place, kind), f"{base}{ENDINGS[kind]}"
    try:
        write(source)
        _settle(source, base, kind, actions, done)
    except (GdbheapError, OSError) as error:
        done.errors.append(reason_of(error).replace(source, one_line(path)))
        done.had_no_room |= _is_no_room(error)


def _is_no_room(error: BaseException) -> bool:
    """Return whether an error says that the disk is full, or the user's part of it."""
    causes = (error, error.__context__)
    return any(isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT) for cause in causes)


def _core(actions: Actions, process: ProcessFolder, base: str, done: Done) -> None:
    """Have gdb write a core, if the disk has room for it. The core is written in a private folder next to its
    destination, then moved. ``base``: its path without the ending.
    """
    try:
        was_stopped = _is_stopped(process)
        _check_room(find_contents(process), actions.folder)
        with working_folder(os.path.dirname(base)) as folder:
            beside = os.path.join(folder, "core")
            reason = _written_by_gdb(process, beside, actions.max_stop, was_stopped, done)
            if reason is None:
                check_whole(beside)
                _settle(beside, base, "core", actions, done)
    except (GdbheapError, OSError) as error:
        reason = one_line(error)
        done.had_no_room |= isinstance(error, _NoRoom) or _is_no_room(error)
    if reason is not None:
        done.is_gone, done.was_traced = not process.is_running(), refusal.other_tracer(process) != 0
        done.errors.append(f"no core was written: {ENDED if done.is_gone else reason}")


class _NoRoom(UsageError):
    """The disk has too little space for a core."""


def _check_room(contents: Contents, folder: str) -> Contents:
    """Check that the disk has space for a core with these contents, and return ``contents``. Raises UsageError if the
    disk has too little space, and OSError if the folder cannot be examined."""
    needed = CORE_NOTES_BYTES + contents.bytes
    number = open_folder(folder)
    try:
        status = os.statvfs(number)
    finally:
        os.close(number)
    room = status.f_bavail * status.f_frsize
    if needed > room:
        raise _NoRoom(f"the core may need {needed:,} bytes, but {one_line(folder)} has room for only {room:,} bytes")
    return contents


def _written_by_gdb(
    folder: ProcessFolder, path: str, seconds: float | None, was_stopped: bool, done: Done
) -> str | None:
    """Have gdb write the core. Return None if gdb wrote it, otherwise the reason why it did not. Add the time for which
    gdb stopped the process to ``done``.

    After ``seconds`` gdb is ended, and the process that it stopped runs on, unless the process ``was_stopped`` before.
    Raises GdbheapError, OSError.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    gdb, contents, said = _started_gdb(folder, os.path.dirname(path)), None, ""
    attached = time.monotonic()
    try:
        said = _is_attached(gdb, deadline)
        attached = time.monotonic()
        if refusal.other_tracer(folder) == gdb.pid:
            # The process is stopped now, so its mappings no longer change.
            contents = _check_room(find_contents(folder), os.path.dirname(path))
        commands = WRITE.format(contents.commands, os.path.basename(path)) if contents else ""
        said += _tell(gdb, commands, deadline)
    except subprocess.TimeoutExpired:
        return f"gdb took longer than --max-stop={seconds:g} allows: give a larger --max-stop"
    finally:
        # gdb and its process are stopped until the end of the block.
        with _uninterrupted():
            _end_gdb(gdb, folder, was_stopped)
        done.held = (done.held or 0.0) + time.monotonic() - attached
        _close_pipes(gdb)
    if contents and os.path.exists(path) and gdb.returncode == 0:
        mark_absent(path, contents, said)
        return None
    if not contents and not folder.is_there():
        return str(refusal.another(folder))
    named = (line for line in said.splitlines() if re.search(rf"\b{folder}\b", line))
    return one_line(next(named, "gdb failed"), 200)


def _started_gdb(folder: ProcessFolder, place: str) -> subprocess.Popen[bytes]:
    """Start gdb in the folder ``place``. gdb attaches to the process and then reads commands. Raises OSError."""
    space = max(GDB_SPACE, room_for_copy())
    return subprocess.Popen(
        [find_program(GDB[0]) or GDB[0], *GDB[1:], "-p", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=place,
        # gdb's "shell" command uses SHELL, which may be a program that refuses to run (nologin). gdb's messages are
        # parsed, so they must be in English (the locale C).
        env={**os.environ, "SHELL": "/bin/sh", "LC_ALL": "C"},
        start_new_session=True,
        preexec_fn=lambda: _be_modest(space),
    )


def _close_pipes(gdb: subprocess.Popen[bytes]) -> None:
    """Close gdb's pipes without waiting for gdb, because a gdb that waits in the kernel for a file cannot be ended."""
    for stream in (gdb.stdin, gdb.stderr):
        with suppress(OSError):
            if stream is not None:
                stream.close()


def _be_anybody() -> None:
    """Restore, for another program, the priority and the limit of open files that gdbheap had at its start."""
    restore_priority()
    open_files.be_usual()


def _be_command(signals: Iterable[int]) -> None:
    """Block only these signals, and restore the priority and the limit of open files for the command."""
    _be_anybody()
    signal.pthread_sigmask(signal.SIG_SETMASK, signals)


def _be_modest(space: int) -> None:
    """Limit this process's address space to ``space`` bytes, reset its priority, and make its files private."""
    _be_anybody()
    os.umask(0o077)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    least = min([space, *(limit for limit in limits if limit != resource.RLIM_INFINITY)])
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (least, least))


def _is_attached(gdb: subprocess.Popen[bytes], deadline: float | None) -> str:
    """Wait until gdb has attached or failed to attach. Return what gdb wrote to standard error.

    By now, the process id may belong to another process. gdb therefore gets the commands that write the core and
    release the process only later. Raises TimeoutExpired, OSError.
    """
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
    """Send gdb its last commands. Return what it then writes to standard error until it ends. Raises TimeoutExpired."""
    left = None if deadline is None else max(0.0, deadline - time.monotonic())
    return gdb.communicate(commands.encode(), left)[1].decode("utf-8", "replace")


def _end_gdb(gdb: subprocess.Popen[bytes], folder: ProcessFolder, was_stopped: bool) -> None:
    """End gdb, and let the process that it held run on.

    If gdb ended by itself, it left no stop signal behind. A process that is still stopped was then stopped by another
    program.
    """
    if gdb.poll() is not None and gdb.returncode >= 0:
        return
    held, is_to_stop = _killed_gdb(gdb, folder.pid)
    is_right = held is not None and folder.is_there()
    if held is not None and not is_right:
        _let_run(held, is_to_stop, True)
    _let_run(folder, was_stopped or (is_right and is_to_stop), is_right)


def _killed_gdb(gdb: subprocess.Popen[bytes], number: int) -> tuple[ProcessFolder | None, bool]:
    """End gdb. Return the process that it held at that moment (None: no process), and whether a stop signal from
    another program is pending for that process.

    The process id may belong to another process by now, so gdb is stopped while its process is looked up. gdb is killed
    if it holds no process. It is also killed if it waits in the kernel, because it reacts to no other signal there.
    """
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
def _uninterrupted() -> Iterator[set[int]]:
    """Block the signals that would end gdbheap, until the end of the block. Yield the signals that were blocked
    before.
    """
    before: set[int] = set(signal.pthread_sigmask(signal.SIG_BLOCK, ENDING))
    try:
        yield before
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end(process: subprocess.Popen[bytes], numbers: Sequence[int] = PARTING) -> None:
    """End a process and its process group. SIGTERM comes first by default, so that gdb can release its process."""
    for number in numbers:
        if process.poll() is not None:
            return
        with suppress(OSError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(PARTING_SECONDS)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process and its process group, including members that ignore SIGTERM and outlive the process.

    The group keeps its id as long as it has a member, so the signals reach no other group.
    """
    for number in PARTING:
        deadline = time.monotonic() + COMMAND_SECONDS
        with suppress(OSError):
            os.killpg(process.pid, number)
            while time.monotonic() < deadline:
                process.poll()
                os.killpg(process.pid, 0)
                time.sleep(0.01)


def _is_stopped(folder: ProcessFolder) -> bool:
    """Return whether a signal has stopped the process. Raises OSError."""
    return stat_fields(folder.read("stat"))[:1] == ["T"]


def _is_about_to_stop(folder: ProcessFolder) -> bool:
    """Return whether a SIGSTOP is pending for one of the process's threads. Raises OSError."""
    waiting = ("SigPnd", "ShdPnd")
    stop = 1 << signal.SIGSTOP - 1
    statuses = [folder.status(), *map(folder.status, folder.tasks())]
    return any(int(status.get(name, "0"), 16) & stop for status in statuses for name in waiting)


def _is_told_to_stop(folder: ProcessFolder) -> bool:
    """Return whether a stop signal is pending that gdb did not send.

    gdb sends its stop signals to single threads, so only signals that wait for the whole process are considered. Raises
    OSError.
    """
    status = folder.status()
    waiting, handled, ignored = (int(status.get(name, "0"), 16) for name in ("ShdPnd", "SigCgt", "SigIgn"))
    return any((waiting & ~(handled | ignored)) >> number - 1 & 1 for number in STOPS)


def _let_run(folder: ProcessFolder, was_stopped: bool, was_held: bool = False) -> None:
    """Undo the SIGSTOP that gdb sends when it attaches. The signal remains if gdb was ended at that moment.

    ``was_stopped``: leave the process stopped, because another program stopped it. ``was_held``: gdb was ended while it
    held the process, which may therefore still be about to stop.
    """
    with suppress(OSError):
        if not was_stopped and (was_held or _is_stopped(folder) or _is_about_to_stop(folder)):
            folder.signal(signal.SIGCONT)


def _variables(request: Request, done: Done) -> dict[str, str]:
    """Return the environment variables that describe the event to the command (``--run``)."""
    cause = request.cause
    facts: dict[str, object] = {"PID": request.pid, "NAME": request.name, "TIME": f"{request.time:.3f}"}
    facts.update({"CAUSE": cause.kind, "SIZE": cause.bytes, "BOUND": cause.bound, "LIMIT": cause.limit})
    facts.update({"SECONDS": cause.seconds, "GROUP": cause.cgroup, "ERROR": done.errors[0] if done.errors else None})
    facts.update({kind.upper(): path for kind, path in done.files.items()})
    return {f"GDBHEAP_{key}": str(value) for key, value in facts.items() if value is not None}


def run(actions: Actions, request: Request, saved: Done) -> Done:
    """Run the command without a shell, and send its output to gdbheap's standard error. ``saved``: the result of the
    earlier steps."""
    done, variables = Done(was_run=True), _variables(request, saved)
    try:
        # A signal that ends gdbheap waits here, because it must not leave the command. Ctrl-C also reaches the watch,
        # which then asks this process to end once more.
        with _uninterrupted() as before:
            process = subprocess.Popen(
                list(actions.run), stdin=subprocess.DEVNULL, stdout=2, env={**os.environ, **variables},
                start_new_session=True, preexec_fn=lambda: _be_command(before),
            )  # fmt: skip
            deadline = time.monotonic() + (actions.run_limit or float("inf"))
            while process.poll() is None and time.monotonic() < deadline and not signal.sigpending() & TOLD:
                time.sleep(NAP_SECONDS)
            done.run = process.returncode
            if done.run is None:
                if time.monotonic() >= deadline:
                    done.errors.append(
                        f"{one_line(actions.run[0])} was ended after {actions.run_limit:g} s (--run-limit)"
                    )
                _end_group(process)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        done.errors.append(f"{one_line(actions.run[0])} cannot be started: {one_line(error)}")
    if done.run:
        done.errors.append(f"{one_line(actions.run[0])} ended with status {done.run}")
    return done
