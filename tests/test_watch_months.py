"""``gdbheap watch`` for months: it finds each new process, also while it does other work, and reports how processes
ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from support.busy import wait_for
from support.control_groups import LimitedGroup, limited_group
from support.programs import PATIENCE, SOURCES, c_program, gdbheap, interpreters
from support.users import run_as, unprivileged
from support.watches import MIB, Watching, go, swelling, watching

from gdbheap.commands import watch
from gdbheap.host.exit_status import exit_status
from gdbheap.host.procfs import ProcessFolder
from gdbheap.report.text.style import style_for
from gdbheap.report.words.watch import counts_text, event_text
from gdbheap.snapshots.file import read
from gdbheap.targets import running_processes
from gdbheap.targets.chosen_processes import Programs
from gdbheap.targets.running_processes import LONGEST, TICKS, ProcessStat, RunningProcesses, running
from gdbheap.watching import actions, heap_figures, standard_output
from gdbheap.watching.action_queue import UNFINISHED
from gdbheap.watching.actions import Actions, Done, Request
from gdbheap.watching.child import Child
from gdbheap.watching.memory_readings import group_at
from gdbheap.watching.messages import WatchMessage
from gdbheap.watching.old_files import remove_oldest_actions
from gdbheap.watching.standard_output import LineOutput
from gdbheap.watching.triggers import Cause
from gdbheap.watching.wake_descriptors import group_wakers
from gdbheap.watching.watcher import LONGEST as SECOND
from gdbheap.watching.watcher import Watcher, WatchRequest


class Host:
    """Simulated processes and a clock; ``reads`` counts the reads of each process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Replace the functions that read /proc."""
        self.now, self.names, self.starts = 1e6, dict[int, str](), dict[int, float]()
        self.reads = dict[int, int]()
        monkeypatch.setattr(running_processes, "running", self.running)
        monkeypatch.setattr(running_processes.time, "clock_gettime", lambda _clock: self.now)

    def start(self, pid: int, name: str) -> None:
        """Let a process run from now on."""
        self.names[pid], self.starts[pid] = name, self.now

    def running(self, pid: int) -> ProcessStat | None:
        """Return the contents of the process's ``stat``."""
        self.reads[pid] = self.reads.get(pid, 0) + 1
        ticks = int(self.starts.get(pid, 0) * TICKS)
        return ProcessStat(pid, 1, ticks, self.names[pid], False, 1) if pid in self.names else None


def test_old_processes_are_read_seldom(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Check that a search every second for an hour reads each old process less than once a minute, and that the next
    search finds a new one."""
    host, pids = Host(monkeypatch), rng.sample(range(1 << 20, 1 << 21), 200)
    host.names.update(dict.fromkeys(pids, "idle"))
    listed, table = dict.fromkeys(pids, 1), RunningProcesses(re.compile("^app$"), users=False)
    assert table.renew(listed).keys() == set(pids) and table.named() == set()
    for _ in range(3600):
        host.now += 1
        table.renew(listed)
    assert max(host.reads.values()) <= 1 + 3600 / (LONGEST / 2) and min(host.reads.values()) >= 3600 / LONGEST
    new = rng.randrange(2, 1 << 20)
    host.start(new, "app")
    assert new in table.renew({**listed, new: 2}) and table.named() == {new}


def test_a_new_program_in_an_old_process(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Check that a new program in a process of ``age`` seconds is found before the age has doubled, and another
    process with the same id at once."""
    host, pid = Host(monkeypatch), rng.randrange(2, 1 << 20)
    table, age = RunningProcesses(re.compile("^app$"), users=False), rng.randrange(1, 60)
    host.start(pid, "sh")
    for _ in range(age):
        table.renew({pid: 7})
        host.now += 1
    host.names[pid] = "app"
    waited = 0
    while not table.renew({pid: 7}) or table.named() != {pid}:
        host.now, waited = host.now + 1, waited + 1
    assert waited <= age + 1
    host.now += 1e5
    table.renew({pid: 7})
    host.start(pid, "other")
    table.renew({pid: 8})
    assert table.named() == set()


def test_without_memory_it_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that an ending process, which is in state R for a while after it gave up its memory, is not watched
    again."""
    stat = Path(f"/proc/{os.getpid()}/stat").read_text()
    name, fields = stat.rpartition(") ")[0], stat.rpartition(") ")[2].split()
    assert running(os.getpid()) is not None
    fields[0], fields[20], fields[21] = "R", "0", "0"
    ending = f"{name}) {' '.join(fields)}".encode()
    monkeypatch.setattr(running_processes, "read_patiently", lambda _path, _size: ending)
    assert running(os.getpid()) is None


def test_a_group_is_searched_without_the_host(rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that for a group only its own list is read, however many processes the host has, and at least once a
    second."""
    with limited_group(1 << 30, rng) as group, subprocess.Popen(["sleep", "1000"]) as process:
        group.take_in(process.pid)
        monkeypatch.setattr("gdbheap.targets.chosen_processes.all_listed", lambda: pytest.fail("the host is searched"))
        programs = Programs(cgroup=str(group.folder))
        assert programs.now() == [process.pid]
        process.kill()


HANG = "sh -c 'if [ $GDBHEAP_PID = {} ]; then cat {}; fi'"


def test_a_hook_that_hangs_keeps_nobody(tmp_path: Path) -> None:
    """Check that while one process's command hangs, an action on another is done and reported; then the first is
    finished."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with swelling(1 << 30, 1) as first, swelling(1 << 30, 1) as second:
        hook = f"--run={HANG.format(first.pid, fifo)}"
        line = [str(first.pid), str(second.pid), "--rss=1M", "--count=2", hook, f"--output={tmp_path}"]
        with watching(*line) as watch:
            acted = watch.event("acted")
            assert (acted["pid"], acted["run"], acted["errors"]) == (second.pid, 0, [])
            second.kill()
            ended = watch.event("ended")
            assert (ended["pid"], ended["exit_status"], ended["oom"]) == (second.pid, -signal.SIGKILL, False)
            fifo.write_text("go on\n")
            acted = watch.event("acted")
            assert (acted["pid"], acted["run"], acted["errors"]) == (first.pid, 0, []) and acted["files"]["snapshot"]
            assert watch.event("end")["acted"] == 2 and watch.process.wait(PATIENCE) == 0


def test_asked_to_end_while_a_hook_hangs(tmp_path: Path) -> None:
    """Check that the watch ends, and ends the command with all that it started."""
    mark = tmp_path / "mark"
    with swelling(1 << 30, 1) as process:
        hook = f"--run=sh -c 'echo $$ > {mark}.new; mv {mark}.new {mark}; sleep 1000 & wait'"
        words = (str(process.pid), "--rss=1M", "--no-snapshot", "--run-limit=0", hook, f"--output={tmp_path}")
        with watching(*words) as watch:
            wait_for(mark.exists, "the command does not start")
            watch.process.send_signal(signal.SIGTERM)
            assert watch.event("acted")["errors"] == [UNFINISHED["run"]]
            assert watch.event("end")["why_ended"] == "asked" and watch.process.wait(PATIENCE) == 1
            with pytest.raises(ProcessLookupError):
                wait_for(lambda: os.killpg(int(mark.read_text()), 0), "it goes on")


STUBBORN = """
(trap '' TERM INT HUP; echo $$ > {0}.new; mv {0}.new {0}; exec sleep 1000) & wait
"""


def wait_until_gone(group: int) -> None:
    """Return once no process of the group is left."""
    with pytest.raises(ProcessLookupError):
        wait_for(lambda: os.killpg(group, 0), "it goes on")


def test_a_hook_that_hears_no_signal(tmp_path: Path) -> None:
    """Check that a process that a command has started and that ignores signals ends with the watch, also at Ctrl-C,
    which a terminal sends to the watch's children too, and after --run-limit."""
    mark = tmp_path / "mark"
    (tmp_path / "hook").write_text(STUBBORN.format(mark))
    with swelling(1 << 30, 1) as process:
        words = [str(process.pid), "--rss=1M", "--no-snapshot", f"--run=sh {tmp_path}/hook", f"--output={tmp_path}"]
        with watching(*words, "--run-limit=1s") as watch:
            assert "--run-limit" in watch.event("acted")["errors"][0]
            wait_until_gone(int(mark.read_text()))
        mark.unlink()
        with watching(*words, "--run-limit=0", start_new_session=True) as watch:
            wait_for(mark.exists, "the command does not start")
            os.killpg(watch.process.pid, signal.SIGINT)
            assert watch.process.wait(PATIENCE) == 1
            wait_until_gone(int(mark.read_text()))


def test_a_signal_while_a_hook_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a command ends if gdbheap is asked to end at the moment when the command starts, and that the command
    itself has no signal blocked."""
    mark, folder = tmp_path / "mark", ProcessFolder(os.getpid())
    hook = ("sh", "-c", f"grep SigBlk /proc/self/status > {mark}.new; mv {mark}.new {mark}; sleep 1000")
    request = Request(folder, "app", Cause("rss", 1, 1))
    wanted = Actions(str(tmp_path), False, False, False, False, hook, 0.0, None, lambda heap: ("", []))
    started, usual = os.pipe(), actions._be_anybody

    def prepare() -> None:
        usual()
        os.write(started[1], str(os.getpid()).encode())
        os.kill(os.getppid(), signal.SIGINT)

    monkeypatch.setattr(actions, "_be_anybody", prepare)

    def interrupted() -> dict[str, Any]:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return {"errors": actions.run(wanted, request, Done()).errors}
        except KeyboardInterrupt:
            return {}

    # In a process with one thread, as in the watch: another thread would take the signal.
    child = Child(interrupted)
    assert child.wait(PATIENCE) and child.result() == {}
    child.end()
    wait_until_gone(int(os.read(started[0], 20)))
    monkeypatch.setattr(actions, "_be_anybody", usual)
    limited = Actions(str(tmp_path), False, False, False, False, hook, 1.0, None, lambda heap: ("", []))
    assert "--run-limit" in actions.run(limited, request, Done()).errors[0]
    assert int(mark.read_text().split()[1], 16) == 0


def test_a_hook_without_a_limit_outlives_its_process(tmp_path: Path) -> None:
    """Check that the watch waits for a command without a time limit after the last process has ended."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with swelling(1 << 30, 1) as process:
        hook = f"--run=sh -c 'cat {fifo}'"
        words = (str(process.pid), "--rss=1M", "--no-snapshot", "--run-limit=0", hook, f"--output={tmp_path}")
        with watching(*words) as watch, open(fifo, "w") as stream:
            process.kill()
            assert watch.event("ended")["pid"] == process.pid
            stream.write("go on\n")
            stream.close()
            assert watch.event("acted")["run"] == 0
            assert watch.event("end")["acted"] == 1 and watch.process.wait(PATIENCE) == 0


def filled(group: LimitedGroup, rate: float) -> tuple[int, int]:
    """Start a process that fills its group; return its id and its status once it was killed."""
    with swelling(rate, 2 * group.limit) as process:
        group.take_in(process.pid)
        go(process)
        return process.pid, process.wait(PATIENCE)


def until_ended(watch: Watching, pid: int) -> list[dict[str, Any]]:
    """Return the events until the end of a process."""
    events: list[dict[str, Any]] = []
    assert watch.process.stdout is not None
    while not events or (events[-1]["event"], events[-1]["pid"]) != ("ended", pid):
        events.append(json.loads(watch.process.stdout.readline()))
    return events


def test_a_group_that_a_new_process_fills(tmp_path: Path, rng: random.Random) -> None:
    """Check a process that starts in a watched group and is killed two seconds later: it was saved before.

    The group is then removed and made again, as for a restarted service, with the same result.
    """
    with limited_group(rng.randrange(96, 200) * MIB, rng) as group:
        line = [f"--cgroup={group.folder}", "--at-oom", "--count=all", "--again=0", f"--output={tmp_path}"]
        with watching(*line) as watch:
            watch.event("nobody")
            for _ in range(2):
                pid, status = filled(group, group.limit / 2)
                assert status == -signal.SIGKILL and group.kills > 0
                events = until_ended(watch, pid)
                assert events[-1]["exit_status"] == -signal.SIGKILL and events[-1]["oom"]
                acted = [event for event in events if event["event"] == "acted" and event["pid"] == pid]
                assert acted and (acted[0]["files"] or acted[0]["errors"]), events
                wait_for(lambda: not group.members(), "it has members")  # noqa: B023
                group.folder.rmdir()
                group.folder.mkdir()
                group = LimitedGroup(group.folder, group.limit)


def test_a_kill_in_another_group(rng: random.Random) -> None:
    """Check that a SIGKILL is not taken for one of the OOM killer, which killed a process of another group just now."""
    with limited_group(rng.randrange(96, 200) * MIB, rng) as group, swelling(1 << 30, 1) as other:
        with watching(str(other.pid), "--rss=1T") as watch:
            assert watch.event("began")["pid"] == other.pid
            _, status = filled(group, group.limit)
            assert status == -signal.SIGKILL and group.kills > 0
            other.kill()
            ended = watch.event("ended")
            assert (ended["pid"], ended["exit_status"], ended["oom"]) == (other.pid, -signal.SIGKILL, False)


def test_a_group_that_is_removed_at_any_moment(rng: random.Random) -> None:
    """Check that a group that was removed since the last reading has no limit and no waker, and ends no watch; a new
    group of its name has them again."""
    with limited_group(1 << 30, rng) as group:
        memory = group_at([group.folder], True)
        assert memory is not None and memory.is_exact
        watcher = Watcher(Programs(cgroup=str(group.folder)), WatchRequest(at_oom=True), memory)
        assert list(watcher._scan()) == [] and watcher.limits(watcher._of_group)[memory.name] == 1 << 30
        group.folder.rmdir()
        assert memory.name not in watcher.limits(watcher._of_group) and group_wakers(memory, 0.9) == []
        assert group_at([group.folder], True) is None
        for _ in range(2):
            assert list(watcher._read_polled()) == [] == list(watcher._scan())
        group.folder.mkdir()
        LimitedGroup(group.folder, 1 << 29)
        assert list(watcher._scan()) == [] and watcher.limits(watcher._of_group)[memory.name] == 1 << 29
        watcher.end()


def test_what_ended_it() -> None:
    """Check the status of another process's child: while it is a zombie, and after it was waited for, if the kernel
    keeps it."""
    for command, status in ((["sh", "-c", "exit 7"], 7), (["sh", "-c", "kill -TERM $$"], -signal.SIGTERM)):
        with subprocess.Popen(["sh", "-c", 'read line; exec "$@"', "sh", *command], stdin=subprocess.PIPE) as process:
            folder = ProcessFolder(process.pid)
            pidfd = folder.pidfd()
            assert exit_status(folder, pidfd) is None and process.stdin is not None
            process.stdin.close()
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            assert exit_status(folder, None) == status
            process.wait()
            assert exit_status(folder, None) is None and exit_status(folder, pidfd) in (status, None)
            os.close(pidfd)


@pytest.mark.parametrize(
    ("status", "oom", "said"),
    [
        (None, False, "has ended"),
        (0, False, "has ended with status 0"),
        (-11, False, "has ended: SIGSEGV"),
        (-9, True, "has ended: SIGKILL, while the kernel's OOM killer was at work"),
    ],
)
def test_the_line_says_what_ended_it(status: int | None, oom: bool, said: str) -> None:
    """Check that a signal is named in the line."""
    text = event_text(WatchMessage("ended", 0.0, 7, "app", exit_status=status, oom=oom), style_for(None, False, None))
    assert text.endswith(f"process 7 (app) {said}")


def test_lines_are_few(rng: random.Random) -> None:
    """Check the number of lines if fifty processes start and end each second for an hour: apart from the first lines,
    at most one line a minute. The other events are counted, and none is lost. A process that the OOM killer ended
    has its own line.
    """
    lines, printed, counted, now = watch._Lines(), 0, 0, rng.uniform(1, 1e6)
    for moment in range(3600 * 100):
        if lines.allow(WatchMessage(rng.choice(["began", "ended"]), 0.0, 7), now + moment / 100):
            # As the watch does it.
            printed += 2 if lines.began or lines.ended else 1
            counted += 1 + lines.began + lines.ended
            lines.began = lines.ended = 0
    assert printed <= watch.LINES + 3600 / watch.LINE_SECONDS + 1
    assert counted + lines.began + lines.ended == 3600 * 100
    assert lines.allow(WatchMessage("ended", 0.0, 7, oom=True), now + 3600)
    assert f"{lines.began:,} more processes began; 1 more process ended" in counts_text(0.0, lines.began, 1)


def test_a_read_that_fails_because_the_process_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a process that ended before it was read is not a failure."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        reader = heap_figures.HeapReader(0.1, None)
        reader.begin(ProcessFolder(process.pid), "x", 1)
        process.kill()
    assert list(reader._failed(process.pid, "it has ended")) == [] and reader.seen[process.pid].errors == 0
    reader.begin(ProcessFolder(os.getpid()), "x", 1)
    assert list(reader._failed(os.getpid(), "no")) == [(os.getpid(), "no")]


def test_a_read_that_failed_is_soon_repeated(rng: random.Random) -> None:
    """Check that a failed read of a process is repeated before the next usual read, but not all the time for a process
    that can never be read.
    """
    every, pid = rng.uniform(3600, 7200), os.getpid()
    reader = heap_figures.HeapReader(every, None)
    reader.begin(ProcessFolder(pid), "x", 1)
    pauses = []
    for _ in range(40):
        now = time.monotonic()
        list(reader._failed(pid, "no"))
        pauses.append(reader.due - now)
    assert 1 <= pauses[0] < 1.5 and pauses[-1] == pytest.approx(every, abs=0.5)
    assert all(two == pytest.approx(min(every, 2 * one), abs=0.5) for one, two in zip(pauses, pauses[1:]))


def test_nobody_and_who_cannot_be_read(rng: random.Random, tmp_path: Path) -> None:
    """Check that a watch by name reports at once that no process matches, or which matching processes cannot be
    read, and continues."""
    name = f"sleeper{rng.randrange(1 << 20)}"
    (tmp_path / name).symlink_to("/bin/sleep")
    words = ("watch", f"--name=^{name}$", "--rss=1T", "--duration=1ms")
    done = gdbheap(*words, f"--output={tmp_path}")
    assert done.returncode == 0 and "no running process matches" in done.stderr
    with unprivileged() as command, subprocess.Popen([str(tmp_path / name), "1000"]) as process:
        done = run_as(command, *words, "--no-snapshot", "--run=true", "--output=/tmp")
        process.kill()
    assert done.returncode == 1 and f"process {process.pid} ({name}) is watched" in done.stderr
    assert f"1 process cannot be read: process {process.pid} ({name}) belongs to uid 0" in done.stderr, done.stderr


@pytest.mark.parametrize("processes", [0, 3])
def test_a_search_is_due_within_a_second_in_a_group(rng: random.Random, processes: int) -> None:
    """Check that the next search is due within a second, however long the last one took."""
    with limited_group(1 << 30, rng) as group:
        members = [subprocess.Popen(["sleep", "1000"]) for _ in range(processes)]
        for process in members:
            group.take_in(process.pid)
        watcher = Watcher(Programs(cgroup=str(group.folder)), WatchRequest(rss=1 << 60), group_at([group.folder], True))
        began = time.monotonic()
        assert len([one for one in watcher._scan() if one.kind == "began"]) == processes
        assert began <= watcher.scanned <= watcher._next_scan <= watcher.scanned + SECOND
        for process in members:
            process.kill()
            process.wait()


def test_the_newest_actions_are_kept(tmp_path: Path, rng: random.Random) -> None:
    """Check that of the files of a watch those of the newest actions and of the present one stay, also with a random
    part in their names, and that other files stay."""
    count, keep = rng.randrange(5, 20), rng.randrange(1, 5)
    actions = [f"app-{rng.randrange(1, 9999)}-20300101T0000{second:02}Z" for second in range(count)]
    numbered = [f"{action}{rng.choice(['', '-2'])}" for action in actions]
    endings = [ending for ending in (".heap", ".json", ".core") if rng.random() < 0.7] or [".heap"]
    part = rng.choice(["", "-0123456789abcdef"])
    files = {action: [f"{action}{part}{ending}" for ending in endings] for action in numbered}
    others = ["app-1-20290101T000000Z.txt", "app-20290101T000000Z.heap", "mine.heap", "app-1-2029.heap"]
    for name in [*others, *(name for names in files.values() for name in names)]:
        (tmp_path / name).touch()
    (tmp_path / "app-1-20290101T000000Z.heap").symlink_to("mine.heap")
    (tmp_path / "app-2-20290101T000000Z.heap").mkdir()
    if os.geteuid() == 0:
        (tmp_path / "app-3-20290101T000000Z.heap").touch()
        os.chown(tmp_path / "app-3-20290101T000000Z.heap", 65534, 65534)
    stay = {entry.name for entry in tmp_path.iterdir()} - {name for names in files.values() for name in names}
    present = rng.choice(numbered)
    remove_oldest_actions(str(tmp_path), keep, present)
    stay |= {name for action in {*numbered[-keep:], present} for name in files[action]}
    assert {entry.name for entry in tmp_path.iterdir()} == stay


def test_a_watch_keeps_few_files(tmp_path: Path, rng: random.Random) -> None:
    """Check that the files of the last actions stay, and that each action that was reported had its files then."""
    count, keep = rng.randrange(3, 6), rng.randrange(1, 3)
    line = ["--rss=1M", "--heap", f"--count={count}", "--again=0", f"--keep={keep}", f"--output={tmp_path}"]
    with swelling(1 << 30, 1) as process, watching(str(process.pid), *line) as watch:
        files = [watch.event("acted")["files"] for _ in range(count)]
        assert watch.event("end")["acted"] == count and watch.process.wait(PATIENCE) == 0
    assert len({path for action in files for path in action.values()}) == 2 * count
    assert {str(path) for path in tmp_path.iterdir()} == {path for action in files[-keep:] for path in action.values()}
    done = gdbheap("watch", "1", "--rss=1M", "--keep=0")
    assert done.returncode == 2 and "--keep" in done.stderr


def test_restart_of_everything(tmp_path: Path, rng: random.Random) -> None:
    """Check a host whose processes all end and start again at the same moment, while a command of --run hangs: each
    end and each new process is reported once, with the signal, and the watch then acts on a new process."""
    fifo, program = tmp_path / "fifo", tmp_path / f"app{rng.randrange(1 << 20):x}"
    os.mkfifo(fifo)
    shutil.copy(c_program("idle")[0], program)
    count = rng.randrange(10, 30)

    def start() -> list[subprocess.Popen[bytes]]:
        return [subprocess.Popen([str(program)], stdin=subprocess.PIPE) for _ in range(count)]

    before = start()
    hook = f"--run={HANG.format(min(process.pid for process in before), fifo)}"
    words = (f"--name=^{program.name}$", "--rss=1K", "--no-snapshot", "--count=all", "--run-limit=0", hook)
    with watching(*words, f"--output={tmp_path}") as watch:
        events = [watch.next() for _ in range(count)]
        assert {event["pid"] for event in events if event["event"] == "began"} == {process.pid for process in before}
        # This waits until the command hangs.
        with fifo.open("w"):
            for process in before:
                process.kill()
            after = start()
            missing = {("ended", process.pid) for process in before} | {("acted", process.pid) for process in after}
            while missing:
                events.append(watch.next())
                missing.discard((events[-1]["event"], events[-1]["pid"]))
            # Until now, the kernel keeps the status of each process that was killed.
            for process in before + after:
                process.kill()
                process.communicate()
    ended = [event for event in events if event["event"] == "ended"]
    began = [event["pid"] for event in events if event["event"] == "began"]
    assert sorted(began) == sorted(process.pid for process in before + after)
    assert len(ended) == count and {event["exit_status"] for event in ended} == {-signal.SIGKILL}
    assert {event["event"] for event in events} == {"began", "ended", "acted"}


def test_limits_of_a_process(tmp_path: Path, rng: random.Random) -> None:
    """Check that a process has only the limits of its own groups and of the machine, and that the text names each
    limit once."""
    with limited_group(1 << 30, rng) as group, swelling(1 << 30, 1) as inside, swelling(1 << 30, 1) as outside:
        group.take_in(inside.pid)
        words = (str(inside.pid), str(outside.pid), "--at-oom", f"--output={tmp_path}")
        with watching(*words) as watch:
            limits = {event["pid"]: event["limits"] for event in (watch.event("began"), watch.event("began"))}
        named = {pid: {limit["cgroup"] for limit in found} for pid, found in limits.items()}
        assert named[inside.pid] - named[outside.pid] == {group.name} and "" in named[outside.pid]
        said = gdbheap("watch", *words, "--duration=1ms").stderr
        assert said.count(f"the control group {group.name} needs") == said.count("the machine needs") == 1, said


# Linux's <linux/fcntl.h>; Python has it since 3.10.
F_SETPIPE_SZ = 1031
BECOMES = 'read line; exec "$0" "$@"'


def test_a_process_that_becomes_another_program(tmp_path: Path, rng: random.Random) -> None:
    """Check a service that a shell starts: as soon as the shell has become the program, events and files have the
    program's name, and the snapshot is about the program, although the watch prepared for the shell."""
    with limited_group(rng.randrange(96, 200) * MIB, rng) as group:
        program = [interpreters()[0].executable, "-I", str(SOURCES / "swelling.py")]
        line = ["sh", "-c", BECOMES, *program, str(group.limit / 8), str(group.limit)]
        with watching(f"--cgroup={group.folder}", "--at-oom", f"--output={tmp_path}", "--count=all") as watch:
            watch.event("nobody")
            with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
                group.take_in(process.pid)
                assert watch.event("began")["name"] == "sh" and process.stdin is not None
                # The first line ends the shell; the second lets the program grow.
                process.stdin.write("\n\n")
                process.stdin.flush()
                acted = watch.event("acted")
                assert (acted["pid"], acted["name"]) == (process.pid, "swelling.py")
                process.kill()
                assert watch.event("ended")["name"] == "swelling.py"
        assert os.path.basename(acted["files"]["snapshot"]).startswith(f"swelling_py-{process.pid}-")
        target = read(acted["files"]["snapshot"]).snapshot.target
        assert target["python"] is not None and os.path.samefile(target["exe"], program[0]), target


def test_lines_that_nobody_reads(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Check that lines wait for a full pipe and are then printed in order, that too many lines are dropped and counted
    where they are missing, and that a reader that is gone is no error."""
    most = rng.randrange(10, 50)
    monkeypatch.setattr(standard_output, "MOST_LINES", most)
    reading, writing = os.pipe()
    size = fcntl.fcntl(writing, F_SETPIPE_SZ, 4096)
    lines = [b"%d:%s\n" % (number, b"x" * rng.randrange(2, 3 * size)) for number in range(3 * most)]
    out = LineOutput(writing, lambda count: b"%d lost\n" % count)
    for line in lines:
        out.add(line)
    got = b""
    while out._lines:
        got += os.read(reading, size)
        out.flush()
    out.add(b"end\n")
    while not got.endswith(b"end\n"):
        got += os.read(reading, size)
        out.flush()
    *printed, lost, end = got.splitlines(keepends=True)
    assert printed == lines[: len(printed)] and most <= len(printed) < 3 * most
    assert (lost, end) == (b"%d lost\n" % (3 * most - len(printed)), b"end\n")
    os.close(reading)
    out.add(b"nobody\n")
    assert not out._lines
    os.close(writing)


def test_a_watch_whose_output_nobody_reads(tmp_path: Path, rng: random.Random) -> None:
    """Check that a watch whose standard output is a full pipe still finds processes and acts on them, and that no line
    is lost once the pipe is read."""
    program = tmp_path / f"app{rng.randrange(1 << 20):x}"
    shutil.copy(c_program("idle")[0], program)
    large = tmp_path / f"{program.name}.py"
    large.write_text("import signal; signal.pause()")
    (tmp_path / "out").mkdir()
    words = (f"--name=^({program.name}|{large.name})$", "--rss=5M", "--count=all", f"--output={tmp_path / 'out'}")
    with watching(*words) as watch:
        assert watch.process.stdout is not None
        fcntl.fcntl(watch.process.stdout.fileno(), F_SETPIPE_SZ, 4096)
        begun: set[int] = set()
        for _ in range(5):
            some = [subprocess.Popen([str(program)], stdin=subprocess.PIPE) for _ in range(20)]
            begun |= {process.pid for process in some}
            wait_for(lambda: observed_by(watch.process.pid) == 20, "they are not watched")
            for process in some:
                process.kill()
                process.communicate()
            wait_for(lambda: observed_by(watch.process.pid) == 0, "their ends are not seen")
        with subprocess.Popen([interpreters()[0].executable, "-I", str(large)]) as process:
            try:
                wait_for(lambda: list((tmp_path / "out").glob(f"*-{process.pid}-*.heap")), "it does not act")
                kinds = dict[tuple[str, int], int]()
                while ("acted", process.pid) not in kinds:
                    event = watch.next()
                    kinds[event["event"], event["pid"]] = 1
            finally:
                process.kill()
        assert {pid for kind, pid in kinds if kind == "began"} >= begun
        assert {pid for kind, pid in kinds if kind == "ended"} >= begun
        assert not [kind for kind, _ in kinds if kind == "lost"]


def observed_by(pid: int) -> int:
    """Return how many processes a watch observes by a descriptor (pidfd)."""
    found = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found += "pidfd" in os.readlink(entry)
    return found
