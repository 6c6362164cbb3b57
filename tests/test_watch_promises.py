"""The first line of a watch, the names of its files, and whose processes it acts on."""

from __future__ import annotations

import contextlib
import os
import random
import re
from pathlib import Path
from typing import Any

import pytest
from support.control_groups import limited_group
from support.watches import swelling

from gdbheap.host.procfs import ProcessFolder
from gdbheap.report.text.style import Style
from gdbheap.report.words.watch import WatchConditions, started_text
from gdbheap.targets.chosen_processes import Programs
from gdbheap.watching import watcher
from gdbheap.watching.actions import Actions, Done, _settle
from gdbheap.watching.group_kills import GroupKills
from gdbheap.watching.old_files import remove_oldest_actions
from gdbheap.watching.triggers import Grows
from gdbheap.watching.wake_descriptors import Waker
from gdbheap.watching.watcher import ONE_USER, Watcher, WatchRequest

MIB = 1 << 20
NONE = WatchConditions(None, None, False, False, False, None, False)


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
    conditions = WatchConditions(**{**vars(NONE), **changed})
    assert started_text(0.0, conditions, Style())[20:] == f"the watch acts when {expected}"


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
