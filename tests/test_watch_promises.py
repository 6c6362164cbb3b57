"""The first line of a watch, the names of its files, and whose processes it acts on."""

from __future__ import annotations

import contextlib
import os
import random
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.control_groups import limited_group
from support.programs import GDBHEAP, PATIENCE
from support.watches import go, swelling, traced, watching

from gdbheap.errors import NotPermitted
from gdbheap.heap import Heap
from gdbheap.host.procfs import ProcessFolder
from gdbheap.refusals import refusal
from gdbheap.report.text.style import Style
from gdbheap.report.words.watch import started_text
from gdbheap.targets.chosen_processes import Programs
from gdbheap.watching import watcher
from gdbheap.watching.actions import NEAR_DEATH, Actions, Done, Request, _settle, save
from gdbheap.watching.group_kills import GroupKills
from gdbheap.watching.old_files import remove_oldest_actions
from gdbheap.watching.triggers import Cause, Grows
from gdbheap.watching.wake_descriptors import Waker
from gdbheap.watching.watcher import ONE_USER, Watcher, WatchRequest

MIB = 1 << 20


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"rss": 2 << 30}, "RSS is more than 2.0 GiB"),
        ({"rss": 2 << 30, "is_group": True}, "the group needs more than 2.0 GiB"),
        (
            {"grows": (100 * MIB, 600.0), "count": 1},
            "RSS grows by 100.0 MiB in 10 min, and ends after 1 action (--count)",
        ),
        ({"grows": (MIB, 1.0), "is_group": True}, "the group grows by 1.0 MiB in 1 s"),
        (
            {"at_oom": True, "memory_errors": True, "count": 3, "is_by_user": True},
            "memory is nearly full (--at-oom) or Python gets no memory (MemoryError), "
            "and ends after 3 actions for each user (--count)",
        ),
    ],
)
def test_the_first_line(changed: dict[str, Any], expected: str) -> None:
    """Check what a watch says that it waits for, and when it ends."""
    others: dict[str, Any] = {"is_group": False, "count": None, "is_by_user": False}
    wanted = WatchRequest(**{name: value for name, value in changed.items() if name not in others})
    others.update((name, value) for name, value in changed.items() if name in others)
    assert started_text(0.0, wanted, style=Style(), **others)[20:] == f"the watch acts when {expected}"


def test_two_watches_use_one_name(rng: random.Random, tmp_path: Path) -> None:
    """Check that a watch replaces no file that another one has written for the same process and second, and that --keep
    knows both files."""
    actions: Any = Actions(str(tmp_path), True, False, True, False, (), 1.0, None, lambda _heap: ("", None))  # type: ignore[arg-type, return-value]
    name, written = f"app-{rng.randrange(1, 1 << 22)}-20260102T030405Z", list[Path]()
    for number in range(3):
        source, done = tmp_path / "source", Done()
        source.write_text(str(number))
        _settle(str(source), str(tmp_path / name), "heap", actions, done)
        written.append(Path(done.files["heap"]))
    assert written[0].name == f"{name}.json" and [path.read_text() for path in written] == ["0", "1", "2"]
    remove_oldest_actions(str(tmp_path), 0, "")
    assert list(tmp_path.iterdir()) == []


def test_growth_of_a_process_that_starts_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that growth of a process counts at once if it runs when the watch begins, and otherwise after its start."""
    now: list[int] = []
    programs: Any = Programs(name=re.compile("x"))
    monkeypatch.setattr(Programs, "now", lambda _programs: [*now])
    watched = Watcher(programs, WatchRequest(grows=(MIB, 600.0)))
    with swelling(1, 1) as first, swelling(1, 1) as second:
        events = watched.events()
        for process in first, second:
            now.append(process.pid)
            watched._next_scan = 0.0
            assert next(event for event in events if event.kind == "began").pid == process.pid
        starts = [one.start for polled in watched._polled for one in polled.triggers if isinstance(one, Grows)]
        began = watched.watched[second.pid].began
        assert starts[0] == 0 and starts[1] == pytest.approx(began + watcher.START_UP_SECONDS, abs=1)
        watched.end()


def test_kills_before_a_process_is_seen(rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a kill in the watched group counts for a process that the watch sees only afterwards, but not one from
    before the watch, and that the count survives while the group has no process."""
    count = rng.randrange(1, 100)
    monkeypatch.setattr("gdbheap.watching.group_kills.count_kills", lambda _path: count)
    with limited_group(64 * MIB, rng) as group, swelling(1, 1) as process:
        group.take_in(process.pid)
        folder, kills = str(process.pid), GroupKills()
        kills.begin(group.folder)
        for _ in range(3):
            kills.enter(b"group", folder)
            assert not kills.take(b"group")
            kills.leave(b"group")
            count += 1
            kills.enter(b"group", folder)
            assert kills.take(b"group") and not kills.take(b"group")
            kills.leave(b"group")
        process.kill()
        process.wait()


def test_memory_errors_of_one_user(rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a watch catches the MemoryErrors of root, of its own user and of one other user, and says so of each
    process of a third user; this user's processes are next once the first user has none."""
    first, second = rng.sample(range(1000, 60_000), 2)
    users, now, started = dict[int, int](), list[int](), list[int]()

    class Caught:
        """Catches no MemoryErrors."""

        def __init__(self, folder: ProcessFolder, *_options: object) -> None:
            started.append(folder.pid)

        def start(self) -> None:
            """Begin."""

        def waker(self) -> Waker:
            """Return a waker that never fires."""
            return Waker("none", os.eventfd(0), 0)

        def end(self) -> list[str]:
            """End without a warning."""
            return []

    monkeypatch.setattr(watcher, "MemoryErrors", Caught)
    monkeypatch.setattr(ProcessFolder, "real_user", lambda folder: users[folder.pid])
    monkeypatch.setattr(Programs, "now", lambda _programs: [*now])
    watched = Watcher(Programs(name=re.compile("x")), WatchRequest(memory_errors=True))
    with contextlib.ExitStack() as running:
        for user in (first, 0, second, os.geteuid(), first, second):
            process = running.enter_context(swelling(1, 1))
            users[process.pid] = user
            now.append(process.pid)
        unseen = [event.pid for event in watched._scan() if event.kind == "unseen" and event.reason == ONE_USER]
        assert unseen == [pid for pid in now if users[pid] == second]
        assert started == [pid for pid in now if users[pid] != second]
        now[:] = [pid for pid in now if users[pid] != first]
        later = running.enter_context(swelling(1, 1))
        users[later.pid] = second
        now.append(later.pid)
        assert "unseen" not in {event.kind for event in watched._scan()} and started[-1] == later.pid
        watched.end()


def test_one_kill_of_a_group(tmp_path: Path, rng: random.Random) -> None:
    """Check that a kill is told once if the group's size and its limit are both watched, that the killed process has
    it as the cause, and that a SIGKILL a moment later has not."""
    with limited_group(rng.randrange(64, 120) * MIB, rng) as group, swelling(1, 1) as bystander:
        group.take_in(bystander.pid)
        line = [f"--cgroup={group.folder}", "--rss=1T", "--at-oom", "--no-snapshot", "--run=true", "--count=all"]
        with watching(*line, f"--output={tmp_path}") as watch, swelling(300 * MIB, 2 * group.limit) as process:
            watch.event("began")
            group.take_in(process.pid)
            go(process)
            assert process.wait(PATIENCE) == -signal.SIGKILL and group.kills == 1
            events = [watch.next()]
            while (events[-1]["event"], events[-1]["pid"]) != ("ended", process.pid):
                events.append(watch.next())
            bystander.kill()
            while (events[-1]["event"], events[-1]["pid"]) != ("ended", bystander.pid):
                events.append(watch.next())
    assert [event["cgroup"] for event in events if event["event"] == "killed"] == [group.name]
    ends = {event["pid"]: event["oom"] for event in events if event["event"] == "ended"}
    assert ends == {process.pid: True, bystander.pid: False}


def test_a_kill_of_a_process_that_is_not_watched(rng: random.Random) -> None:
    """Check that a SIGKILL has not the OOM killer as its cause if the process lived on after the kill of another one in
    its group."""
    with limited_group(rng.randrange(64, 120) * MIB, rng) as group, swelling(1, 1) as bystander:
        group.take_in(bystander.pid)
        with watching(str(bystander.pid), "--rss=1T") as watch, swelling(300 * MIB, 2 * group.limit) as process:
            watch.event("began")
            group.take_in(process.pid)
            go(process)
            assert process.wait(PATIENCE) == -signal.SIGKILL and group.kills == 1
            # The watch searches once a second, and looks at the search after the kill who lives on.
            time.sleep(4)
            bystander.kill()
            ended = watch.event("ended")
    assert (ended["pid"], ended["exit_status"], ended["oom"]) == (bystander.pid, -signal.SIGKILL, False)


def test_a_size_does_not_delay_what_is_urgent(tmp_path: Path, rng: random.Random) -> None:
    """Check that a watch acts before the memory of a group runs out, although it has just acted because of a size."""
    with limited_group(rng.randrange(96, 160) * MIB, rng) as group, swelling(30 * MIB, 2 * group.limit) as process:
        group.take_in(process.pid)
        line = [f"--cgroup={group.folder}", "--rss=20M", "--at-oom", "--count=2", f"--output={tmp_path}"]
        with watching(*line) as watch:
            watch.event("began")
            go(process)
            causes = [watch.event("acted")["cause"]["kind"] for _ in range(2)]
        process.kill()
    assert causes[0] == "rss" and causes[1] in NEAR_DEATH


@contextlib.contextmanager
def small_disk(path: Path, room: int) -> Iterator[Path]:
    """Yield a folder on a file system of its own, with so many bytes free."""
    path.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M", "tmpfs", path], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"no file system can be mounted here: {made.stderr}")
    try:
        free = os.statvfs(path)
        (path / "filling").write_bytes(bytes(max(0, free.f_bavail * free.f_frsize - room)))
        yield path
    finally:
        subprocess.run(["umount", path], check=True)


def test_a_full_disk_does_not_end_a_watch(tmp_path: Path) -> None:
    """Check that an action for which the disk had no room is not counted, names the file that is missing, and is done
    once there is room."""
    with small_disk(tmp_path / "disk", 0) as disk, swelling(1 << 30, 1) as process:
        with watching(str(process.pid), "--rss=1M", f"--output={disk}", "--again=1s") as watch:
            first = watch.event("acted")
            (reason,) = first["errors"]
            assert first["files"] == {} and reason.endswith("cannot be written: No space left on device")
            assert reason.startswith(f"{disk}/") and "/proc" not in reason
            (disk / "filling").unlink()
            while not (acted := watch.event("acted"))["files"]:
                pass
            assert acted["errors"] == [] and watch.event("end")["acted"] == 1


def test_the_snapshot_comes_first(tmp_path: Path) -> None:
    """Check that a snapshot is saved if the disk has no room for the answer of --heap."""
    text = ""

    def document(_heap: Heap) -> tuple[str, Any]:
        return text, None

    with swelling(1, 1) as process, small_disk(tmp_path / "disk", 64 << 10) as disk:
        request = Request(ProcessFolder(process.pid), "app", Cause("rss", 2, 1))
        wanted = Actions(str(disk), True, False, True, False, (), 1.0, None, document)
        for length, kinds in ((1 << 20, ["snapshot"]), (2, ["heap", "snapshot"])):
            text = "x" * length
            done = save(wanted, request)
            assert sorted(done.files) == kinds and bool(done.errors) == (len(kinds) == 1), done
            assert done.had_no_room == bool(done.errors) and not done.is_to_repeat


def test_a_reader_that_is_stuck_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a watch ends although nothing reads its last document."""
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(theirs, bytes(select.PIPE_BUF))
    os.set_blocking(theirs, True)
    with swelling(1 << 30, 1) as process:
        command = [str(GDBHEAP), "watch", str(process.pid), "--rss=1M", f"--output={tmp_path}", "--json"]
        with subprocess.Popen(command, stdout=theirs) as watch:
            os.close(theirs)
            assert watch.wait(PATIENCE) in (0, 1) and len(list(tmp_path.iterdir())) == 1
    os.close(ours)


def test_a_traced_process_by_its_id(tmp_path: Path) -> None:
    """Check that a watch of a process that another program traces begins, and acts once the other one is gone."""
    with swelling(1 << 30, 1) as process, traced(process.pid) as holder:
        with watching(str(process.pid), "--rss=1M", f"--output={tmp_path}", "--again=1s") as watch:
            assert watch.event("acted")["files"] == {}
            holder.kill()
            while not (acted := watch.event("acted"))["files"]:
                pass
            assert acted["errors"] == [] and watch.event("end")["acted"] == 1
            assert f"another program traces process {process.pid}: " in watch.rest()


def test_memory_errors_after_a_tracer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that MemoryErrors are caught once the program that traced the process at first is gone."""
    tracers, tries = [7], list[int]()

    class Caught:
        """Fails while another program traces the process."""

        def __init__(self, folder: ProcessFolder, *_options: object) -> None:
            tries.append(folder.pid)
            if tracers[0]:
                raise NotPermitted("traced")

        def start(self) -> None:
            """Begin."""

        def waker(self) -> Waker:
            """Return a waker that never fires."""
            return Waker("none", os.eventfd(0), 0)

        def end(self) -> list[str]:
            """End without a warning."""
            return []

    monkeypatch.setattr(watcher, "MemoryErrors", Caught)
    monkeypatch.setattr(refusal, "other_tracer", lambda _folder: tracers[0])
    with swelling(1, 1) as process:
        monkeypatch.setattr(Programs, "now", lambda _programs: [process.pid])
        watched = Watcher(Programs(name=re.compile("x")), WatchRequest(memory_errors=True))
        found = [[event.kind for event in watched._scan()] for _ in range(2)]
        tracers[0] = 0
        found += [[event.kind for event in watched._scan()] for _ in range(2)]
        assert found == [["began", "unseen"], [], [], []]
        assert len(tries) == 2
        watched.end()
