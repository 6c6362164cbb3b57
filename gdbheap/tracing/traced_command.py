"""Run a command with the recorder preloaded, and collect its calls in the log."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import resource
import time
from contextlib import closing, suppress
from dataclasses import field, replace

from gdbheap import _native
from gdbheap.dataclass import dataclass
from gdbheap.errors import EXHAUSTED, UsageError, one_line
from gdbheap.files import PRIVATE, PrivateFolder, check_writable, find_file, is_stream, not_written, refused, settle
from gdbheap.host.headroom import room_for_copy
from gdbheap.targets.running_processes import running
from gdbheap.targets.started_command import StartedProcess
from gdbheap.tracing.log import BY_LOCK, BY_TIME, LogWriter, ProcessCalls, RecordedProcess, is_call_log, read_log
from gdbheap.tracing.preload import PRELOAD
from gdbheap.tracing.recorder_files import (
    ENVIRONMENT,
    OF_PYTHON,
    ORDER,
    PARTS,
    RecorderFile,
    is_recorders_name,
    recorder_library,
)
from gdbheap.tracing.stack_settings import STACKS_ENVIRONMENT, stack_settings

__all__ = ["TracedCommand", "TracedProcess", "finish", "trace"]

WAIT_SECONDS = 0.02
LAST_TICK = 1 << 62
# A recorder gives up if the disk has less room than this: two slots and a stage (native/recorder/src/file.rs).
NEEDED_BYTES = 3 * _native.place_of_stage(0, True)[1]
# The log's name in the folder of parts. The complete log is then moved to its own path.
LOG = "log"
# Files that gdbheap made in that folder and that never got their final name.
UNFINISHED = re.compile(r"\.gdbheap-[0-9a-f]+\.part")
PR_SET_CHILD_SUBREAPER = 36
# A message shows at most this many names.
SHOWN = 3


@dataclass(frozen=True)
class TracedProcess:
    """A process of the log: its calls (malloc, calloc, realloc, memalign, free), its threads, and its bytes in use."""

    pid: int
    exe: str
    calls: int
    threads: int
    peak_bytes: int
    live_bytes: int
    lost: int
    of_python: TracedPython | None = None


@dataclass(frozen=True)
class TracedPython:
    """The calls of Python's own allocator. ``unknown``: releases of blocks whose allocation was not recorded. A child
    process has such releases if it frees blocks of its parent.
    """

    calls: int
    live_blocks: int
    peak_bytes: int
    live_bytes: int
    unknown: int


@dataclass(frozen=True)
class TracedCommand:
    """The answer of ``gdbheap trace``: the log that was written, and the sums of each process."""

    file: str
    size: int
    calls: int
    lost: int
    seconds: float
    rows: list[TracedProcess]
    exit_status: int | None = None
    failures: list[str] = field(default_factory=list)
    ok: bool = True
    disk_full: bool = False


def trace(
    path: str,
    command: list[str],
    order: str = BY_LOCK,
    of_python: bool = False,
    stacks: int = 0,
    mode: int = PRIVATE,
) -> TracedCommand:
    """Record the calls of a command and of all processes that it starts. Return the sums.

    ``order``: BY_LOCK or BY_TIME.
    ``of_python``: also record the calls of Python's own allocator.
    ``stacks``: the mean number of bytes between two recorded stacks; 1: a stack with each call, 0: none.

    Raises UsageError, Unsupported before the command starts. After its start the command runs to its end, even if the
    log cannot be written.
    """
    library, parts = recorder_library(), path + PARTS
    if is_stream(path):
        raise refused(path, "calls can be recorded only in a regular file")
    check_writable(path)
    _check_largest_file()
    folder = _make_parts(parts)
    began, preload = time.monotonic(), ":".join(filter(None, (library, os.environ.get(PRELOAD))))
    _adopt()
    try:
        ours = {PRELOAD: preload, ENVIRONMENT: os.path.abspath(parts), ORDER: order}
        if of_python:
            ours[OF_PYTHON] = "1"
        if stacks:
            ours[STACKS_ENVIRONMENT] = stack_settings(stacks)
        collecting = _StageCollector(path, folder, mode, _is_there(path))
        started = StartedProcess(command, {**os.environ, **ours})
        collecting.command = started.pid
    except UsageError:
        folder.remove()
        raise
    status = None
    try:
        status = _until_ended(collecting, started)
    except KeyboardInterrupt:
        # A terminal's Ctrl-C also reaches the command, and may have ended it.
        status = started.wait(1.0)
        if status is None:
            started.let_go()
            collecting.failures.append(f"process {started.pid} runs on: its further calls are not recorded")
    answer = _answered(collecting, time.monotonic() - began, status)
    if of_python and not any(process.of_python for process in answer.rows):
        answer.failures.append(
            "no calls of Python's allocator were seen: no interpreter with such an allocator ran, or the interpreter"
            " chose another allocator (PYTHONMALLOC, -X dev), has no GIL, or was loaded while the program already ran"
        )
    return answer


def finish(path: str, mode: int = PRIVATE) -> TracedCommand:
    """Complete the log of a recording that was killed, from the files that it left. Raises UsageError."""
    parts = path + PARTS
    folder = _find_parts(path, parts)
    if _is_there(path) and not _has_recording(folder):
        # The recording was killed after the log had been moved to its path.
        with closing(folder):
            found = _traced(path, 0.0, None, [])
            folder.remove()
        return found
    collecting = _StageCollector(path, folder, mode, _has_older(path, folder))
    collecting.take()
    left = collecting.running()
    if left:
        raise UsageError(f"process {left[0].pid} is still being recorded: wait until it has ended")
    return _answered(collecting, 0.0, None, True)


def _is_there(path: str) -> bool:
    return find_file(path, False) is not None


def _has_older(path: str, folder: PrivateFolder) -> bool:
    """Return whether ``path`` has a file that the killed recording did not write, such as an older log.

    If ``folder`` has no log, an incomplete log at ``path`` is the log of that recording, and the result is False.
    """
    if not _is_there(path) or _is_there(os.path.join(folder.inside, LOG)):
        return _is_there(path)
    try:
        return read_log(path).whole
    except UsageError:
        return True


def _find_parts(path: str, parts: str) -> PrivateFolder:
    try:
        folder = PrivateFolder(parts, False)
        strangers = _strangers(folder)
        # A traced program may have put files of its own into the folder.
        if strangers and not _has_recording(folder):
            folder.close()
            reason = (
                f"it is not the folder of a recording, because it contains {one_line(strangers[0])}: nothing was "
                "changed"
            )
            raise UsageError(f"{one_line(parts)}: {reason}")
        return folder
    except (FileNotFoundError, NotADirectoryError):
        reason = f"the files of its recording no longer exist: {one_line(parts)} is not a folder"
        raise UsageError(f"{one_line(path)}: {reason}") from None
    except (OSError, ValueError) as error:
        raise not_written(parts, error) from None


def _strangers(folder: PrivateFolder) -> list[str]:
    """Return the names of files in a recording's folder that neither a recorder nor gdbheap made."""
    names = (name for name in os.listdir(folder.inside) if name != LOG and not UNFINISHED.fullmatch(name))
    return sorted(name for name in names if not is_recorders_name(name))


def _has_recording(folder: PrivateFolder) -> bool:
    """Return whether a folder contains a log or recorders' files."""
    return is_call_log(os.path.join(folder.inside, LOG)) or any(map(is_recorders_name, os.listdir(folder.inside)))


def _make_parts(parts: str) -> PrivateFolder:
    try:
        return PrivateFolder(parts, True)
    except FileExistsError:
        raise UsageError(
            f"{one_line(parts)} is left over from a killed recording: add it to its log (--finish), or remove it"
        ) from None
    except (OSError, ValueError) as error:
        raise not_written(parts, error) from None


def _adopt() -> None:
    """Become the parent of processes that outlive the command that started them, in order to notice their end."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _until_ended(collecting: _StageCollector, started: StartedProcess) -> int | None:
    """Wait until the command and all processes that it started have ended. Return the command's exit status."""
    while started.status() is None:
        collecting.take()
        started.wait(WAIT_SECONDS)
    collecting.take()
    while collecting.running():
        time.sleep(WAIT_SECONDS)
        collecting.take()
    return started.status()


class _StageCollector:
    """Moves stages from the recorders' files into the log while calls are recorded.

    An older log at the same path stays until the new one is complete. ``command``: the pid of the command, whose exit
    status is collected elsewhere."""

    def __init__(self, path: str, folder: PrivateFolder, mode: int, has_older: bool) -> None:
        """Open the log for writing. Raises UsageError.

        ``folder``: the private folder with the recorders' files.
        ``mode``: the log's permissions.
        ``has_older``: whether an older log is at the path. If so, the new log is written in ``folder``; otherwise at
        the path, where others can read it meanwhile.
        """
        self.command = 0
        self._path, self._folder, self._mode = path, folder, mode
        self._inside = os.path.join(folder.inside, LOG) if has_older else path
        log = read_log(self._inside) if _is_there(self._inside) else None
        self._writer = LogWriter(self._inside, None if log is None else log.size, mode)
        self._files: dict[str, RecorderFile] = {}
        self._numbers: dict[str, int] = {}
        self._lost: dict[int, int] = {}
        self._left_out: set[str] = set()
        self.disk_full = False
        self._known = log.processes if log is not None else []
        # A process is identified by its pid and the time when it began.
        self._processes = {(known.who.pid, known.who.began): number for number, known in enumerate(self._known)}
        self.failures: list[str] = []
        self._failed = self._is_settled = False
        self._has_calls = any(known.frames for known in self._known)

    def take(self) -> None:
        """Move all finished stages into the log; for a process that has ended, also the unfinished one."""
        if self._failed:
            self._reap()
            return
        try:
            self._look()
            # A process that calls exec gets a new file and number. The older file is then complete.
            newest = {file.pid: self._numbers[path] for path, file in sorted(self._files.items())}
            for path, file in list(self._files.items()):
                is_over = newest[file.pid] != self._numbers[path] or not self._is_alive(file)
                self._take(path, file, is_over)
        except OSError as error:
            # The command runs on; the calls stay in the recorders' files.
            self._fail_writing(error)
        self._reap()

    def _reap(self) -> None:
        """Reap adopted processes that have ended and were not recorded. ``_is_alive`` reaps recorded ones."""
        with suppress(OSError):
            while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                is_recorded = any(name.startswith(f"{ended.si_pid:016x}-") for name in self._names())
                if ended.si_pid == self.command or is_recorded:
                    return
                os.waitpid(ended.si_pid, 0)

    def _fail_writing(self, error: OSError) -> None:
        self.disk_full |= error.errno in (errno.ENOSPC, errno.EDQUOT)
        self._fail(f"{one_line(self._path)}: {one_line(error.strerror or error)}")

    def _fail(self, reason: str) -> None:
        self._failed = True
        where = one_line(self._path + PARTS)
        self.failures.append(f"{reason}; the recorded calls are in {where}: --finish puts them into the log")

    @property
    def path(self) -> str:
        """The path of the log: its final path, or the path in the folder of the parts if the log could not be
        completed."""
        if not self._failed or self._inside == self._path:
            return self._path
        return os.path.join(self._path + PARTS, LOG)

    def running(self) -> list[RecorderFile]:
        """Return the files of the processes that are still running; empty if the log cannot be written."""
        return [] if self._failed else list(self._files.values())

    def _look(self) -> None:
        self._left_out.update(_strangers(self._folder))
        for name in sorted(self._names() - self._left_out):
            path = os.path.join(self._folder.inside, name)
            if is_recorders_name(name) and path not in self._files:
                self._look_at(path, name)

    def _names(self) -> set[str]:
        """Return the names of all files in the folder to which the recorders write."""
        return set(os.listdir(self._folder.inside))

    def _look_at(self, path: str, name: str) -> None:
        """Open a new file. Leave out a file that no recorder can have made, such as a folder or a link."""
        try:
            file = RecorderFile(path)
        except OSError as error:
            if error.errno in EXHAUSTED:
                raise
            if error.errno != errno.ENOENT:
                self._left_out.add(name)
            return
        who = file.who()
        if who is not None:
            self._files[path] = file
            self._number(path, file, who)
            return
        file.close()
        if not self._is_alive(file):
            self._look_for_room()
            os.unlink(path)

    def _look_for_room(self) -> None:
        """Note that the disk is full if a stage no longer fits on it, because a recorder may then have lost calls."""
        room = os.statvfs(self._folder.inside)
        self.disk_full |= room.f_bavail * room.f_frsize < NEEDED_BYTES

    def _tell_left_out(self) -> None:
        """Report the files in the folder that do not belong to the recording."""
        names = ", ".join(map(one_line, sorted(self._left_out)[:SHOWN]))
        more = ", …" if len(self._left_out) > SHOWN else ""
        if names:
            where = one_line(self._path + PARTS)
            self.failures.append(
                f"{where} has files that the recorder did not make ({names}{more}): gdbheap ignores and keeps them"
            )

    def _number(self, path: str, file: RecorderFile, who: RecordedProcess) -> None:
        known = (who.pid, who.began)
        if known not in self._processes:
            self._processes[known] = len(self._processes)
            self._writer.process(self._processes[known], who)
        number = self._numbers[path] = self._processes[known]
        file.is_lane = who.order == BY_TIME
        if number < len(self._known):
            process = self._known[number]
            file.taken = process.lanes.get(file.began, 0) if file.is_lane else len(process.frames)

    def _take(self, path: str, file: RecorderFile, is_over: bool) -> None:
        number = self._numbers[path]
        for packed, tick in file.take(is_over):
            self._has_calls = True
            if file.is_lane:
                # Calls of signal handlers that the process had not written out have no time, and come last.
                self._writer.timed_stage(number, packed, tick or LAST_TICK, file.began)
            else:
                self._writer.stage(number, packed)
        if is_over:
            lost = file.lost()
            if lost:
                self._look_for_room()
            self._lost[number] = self._lost.get(number, 0) + lost
            del self._files[path]
            with closing(file):
                if number not in map(self._numbers.__getitem__, self._files):
                    self._writer.process_end(number, self._lost[number])
                file.remove()

    def _is_alive(self, file: RecorderFile) -> bool:
        """Return whether the file's process still runs. Reap it if it has ended and is a child of gdbheap."""
        found = running(file.pid)
        if found is not None:
            file.started = file.started or found.start
            return file.started == found.start
        if file.pid != self.command:
            with suppress(OSError):
                os.waitpid(file.pid, os.WNOHANG)
        return False

    def end(self, status: int | None, is_asked: bool = False) -> str:
        """Take all stages, including the stages of processes that run on. Return the path of the log, which is valid
        until ``close``.

        ``is_asked``: the user asked for a log even with missing calls; otherwise such a log does not replace an older
        one."""
        self.take()
        try:
            if not self._failed:
                self._settle(status, is_asked)
        except OSError as error:
            self._fail_writing(error)
        except UsageError as error:
            self._fail(str(error))
        self._tell_left_out()
        return self._path if self._is_settled else self._inside

    def _settle(self, status: int | None, is_asked: bool) -> None:
        """End the log and move it to its path. Raises OSError, UsageError."""
        for path, file in list(self._files.items()):
            self._take(path, file, True)
        self._writer.end(status)
        self._writer.close()
        if self._inside == self._path:
            self._is_settled = True
            return
        lost = sum(self._lost.values())
        if not is_asked and (lost or not self._has_calls) and _is_there(self._path):
            if self._has_calls:
                calls = "1 call" if lost == 1 else f"{lost:,} calls"
                self._fail(f"{one_line(self._path)} is unchanged: {calls} could not be recorded")
            else:
                self.failures.append(f"{one_line(self._path)} is unchanged")
            return
        settle(self._inside, self._path, self._mode)
        self._is_settled = True

    def close(self) -> None:
        """Close the folder of parts, and remove it unless it still has calls that are not in the log."""
        self._writer.close()
        if not self._failed:
            self._folder.remove(self._left_out)
        self._folder.close()


def _check_largest_file() -> None:
    """Raise UsageError if this session limits files to fewer bytes than the recorder needs."""
    largest = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if largest != resource.RLIM_INFINITY and largest < NEEDED_BYTES:
        raise UsageError(
            f"nothing can be recorded: a file may have at most {largest:,} bytes here ('ulimit -f'), and the recorder "
            f"needs {NEEDED_BYTES:,}"
        )


def _answered(collecting: _StageCollector, seconds: float, status: int | None, is_asked: bool = False) -> TracedCommand:
    """Finish the log, and return the sums of the recorded calls."""
    try:
        log = collecting.end(status, is_asked)
        found = _traced(log, seconds, status, collecting.failures, collecting.disk_full)
        return replace(found, file=collecting.path)
    finally:
        collecting.close()


def _traced(
    path: str, seconds: float, status: int | None, failures: list[str], disk_full: bool = False
) -> TracedCommand:
    log = read_log(path)
    plans = [_native.plan_calls(process.opened, process.frames, room_for_copy()) for process in log.processes]
    processes = [_summed(process, plan) for process, plan in zip(log.processes, plans)]
    calls = sum(process.calls for process in processes)
    lost, size = sum(process.lost for process in processes), os.fstat(log.held.number).st_size
    if disk_full:
        failures.append(
            "calls are missing in the log, because the disk is full: free some space, or write the log elsewhere (-o)"
        )
    elif not calls and not lost:
        failures.append(
            "no calls were recorded: the recorder sees no calls of a program that is linked statically, is set-uid, or"
            " brings its own malloc"
        )
    damaged = [process for process, plan in zip(processes, plans) if not plan.whole]
    failures += [
        f"the recorded calls of process {process.pid} are damaged: only those before the damage are counted"
        for process in damaged
    ]
    is_whole = bool(calls) and not damaged and not lost and not disk_full
    return TracedCommand(path, size, calls, lost, round(seconds, 3), processes, status, failures, is_whole, disk_full)


def _summed(process: ProcessCalls, plan: _native.ReplayPlan) -> TracedProcess:
    who, found, python = process.who, plan.python, None
    if found.calls:
        python = TracedPython(found.calls, found.live_blocks, found.peak_bytes, found.live_bytes, found.unknown)
    return TracedProcess(
        who.pid, who.exe, plan.calls, plan.threads, plan.peak_bytes, plan.live_bytes, process.lost, python
    )
