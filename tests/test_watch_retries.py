"""``gdbheap watch`` and ``gdbheap record`` where a process cannot be read for a while, or ends too soon: nothing counts
that was not done, and no evidence is lost."""

from __future__ import annotations

import csv
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.busy import wait_for
from support.programs import GDBHEAP, PATIENCE, build, interpreters, running, tracer
from support.watches import go, grown, swelling, traced, watching

from gdbheap.commands.watch import _Lines
from gdbheap.host.procfs import ProcessFolder
from gdbheap.report.text.style import Style
from gdbheap.report.words.watch import counts_text, event_text
from gdbheap.targets.chosen_processes import _is_ours
from gdbheap.targets.running_processes import ProcessStat
from gdbheap.watching import action_queue
from gdbheap.watching.action_queue import ActionQueue
from gdbheap.watching.actions import ENDED, Actions, Request, save
from gdbheap.watching.child import EndingChildren
from gdbheap.watching.messages import WatchMessage
from gdbheap.watching.triggers import RETRY_SECONDS, Bounds, Cause

MIB = 1 << 20


@contextmanager
def sleeping(folder: Path, rng: random.Random) -> Iterator[tuple[int, str]]:
    """Yield the id of a program that holds some memory, and a pattern that only its name matches."""
    program = folder / f"sleeping{rng.randrange(1 << 40)}"
    shutil.copy(build("linked"), program)
    with running([str(program), "1000", "0", "8000"], folder) as target:
        yield target.pid, f"--name=^{program.name}$"


def steps(folder: Path, *run: str, snapshot: bool = True) -> Actions:
    """Return the steps of an action."""
    return Actions(str(folder), snapshot, False, False, False, run, 60.0, None, lambda heap: ("", None))  # type: ignore[arg-type, return-value]


def request_of(pid: int) -> Request:
    """Return a request for an action on a process."""
    return Request(ProcessFolder(pid), "app", Cause("rss", 2, 1))


def test_a_process_that_is_traced_is_tried_again(rng: random.Random, tmp_path: Path) -> None:
    """Check that a snapshot that a tracer prevented does not use up --count, and is taken once the tracer is gone."""
    with sleeping(tmp_path, rng) as (pid, name), traced(pid) as holder:
        with watching(name, "--rss=1M", "--count=1", f"--output={tmp_path}") as watch:
            failed = watch.event("acted")
            assert "already traced" in failed["errors"][0] and not failed["files"] and not failed["too_late"]
            holder.communicate("\n")
            acted = watch.event("acted")
            assert not acted["errors"] and Path(acted["files"]["snapshot"]).exists()
            end = watch.event("end")
            assert (end["acted"], end["failed"], end["why_ended"]) == (1, 1, "count")


def test_bounds_of_what_was_not_done() -> None:
    """Check that an action that is given back counts for nothing, and the pauses before the next ones."""
    bounds = Bounds(1, 600.0)
    moment, pause = 0.0, RETRY_SECONDS
    for _ in range(20):
        assert bounds.allow(1, moment) and bounds.is_used_up() and not bounds.allow(2, moment)
        bounds.give_back(1, moment + 1)
        assert not bounds.is_used_up() and not bounds.allow(1, moment + 1 + pause - 0.01)
        moment += 1 + pause
        pause = min(2 * pause, 600.0)
    bounds.forget(1)
    assert bounds.allow(1, moment) and bounds.is_used_up()


def test_a_process_that_ended_first(tmp_path: Path) -> None:
    """Check what is said of a process that ended before it was read, and that no file is left."""
    child = subprocess.Popen(["sleep", "1000"])
    request = request_of(child.pid)
    child.kill()
    child.wait()
    done = save(steps(tmp_path), request)
    assert (done.errors, done.is_gone, done.is_nothing) == ([ENDED], True, True) and not list(tmp_path.iterdir())
    assert not save(steps(tmp_path), request_of(os.getppid())).is_gone


def test_a_process_that_ends_before_it_is_read(rng: random.Random, tmp_path: Path) -> None:
    """Check that such a process is no failure, and does not use up --count: the next one is saved."""
    with sleeping(tmp_path, rng) as (pid, name):
        # A watch waits longer for a tracer of this name than for others.
        with traced(pid, "gdbheap"), watching(name, "--rss=1M", "--count=1", f"--output={tmp_path}") as watch:
            watch.event("began")
            wait_for(lambda: children(watch.process.pid), "it saves nothing")
            os.kill(pid, signal.SIGKILL)
            acted = watch.event("acted")
            assert acted["too_late"] and acted["errors"] == [ENDED] and not acted["files"], acted
            with running([str(tmp_path / name[8:-1]), "1000", "0", "8000"], tmp_path) as other:
                acted = watch.event("acted")
                assert acted["pid"] == other.pid and acted["files"]["snapshot"] and not acted["errors"], acted
                end = watch.event("end")
            assert (end["acted"], end["failed"]) == (1, 0) and watch.process.wait(PATIENCE) == 0


def test_a_watch_that_ends_names_what_it_leaves(rng: random.Random, tmp_path: Path) -> None:
    """Check the line, the count of failures and the exit status if a signal ends a watch while it saves."""
    # A watch waits longer for a tracer of this name than for others.
    with sleeping(tmp_path, rng) as (pid, name), traced(pid, "gdbheap"):
        with watching(name, "--rss=1M", f"--output={tmp_path}") as watch:
            watch.event("began")
            wait_for(lambda: children(watch.process.pid), "it saves nothing")
            watch.process.send_signal(signal.SIGTERM)
            acted, end = watch.event("acted"), watch.event("end")
            assert "asked to end" in acted["errors"][0] and not acted["files"]
            assert (end["failed"], end["why_ended"]) == (1, "asked") and watch.process.wait(PATIENCE) == 1


def children(pid: int) -> str:
    """Return the ids of the children of a process."""
    return Path(f"/proc/{pid}/task/{pid}/children").read_text()


def test_slow_actions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that an action is reported once while its command still runs, with the files that it has written, and that
    the queue says when."""
    queue = ActionQueue(steps(tmp_path, "sleep", "1000", snapshot=False), EndingChildren())
    queue.add(request_of(os.getpid()))
    assert not list(queue.slow()) and queue.due < time.monotonic() + action_queue.SLOW_SECONDS
    assert not list(queue.turn([]))
    monkeypatch.setattr(queue._actions[0], "slow_at", 0.0)
    ((request, done, step),) = queue.slow()
    assert (request.pid, done.files, step) == (os.getpid(), {}, "run") and not list(queue.slow())
    ((_request, done),) = queue.end()
    assert "asked to end" in done.errors[0] and not queue.is_busy and not done.is_nothing
    event = WatchMessage("acting", 0.0, 7, "app", Cause("rss", 2 * MIB, MIB), files={"snapshot": "/a"}, step="run")
    assert event_text(event, Style()).endswith(
        "process 7 (app): its RSS is 2.0 MiB, more than 1.0 MiB; the snapshot is in /a;"
        " the command of --run has not ended yet"
    )


def test_counted_lines() -> None:
    """Check that events without a line are counted in a line a little later, even if no other event comes."""
    lines, gone = _Lines(), WatchMessage("acted", 0.0, 7, too_late=True)
    assert all(lines.allow(gone, 0.0) for _ in range(40)) and not lines.is_count_due(0.0)
    assert not lines.allow(gone, 0.0) and not lines.allow(WatchMessage("began", 0.0, 8), 0.0)
    assert not lines.is_count_due(30.0) and lines.is_count_due(61.0)
    assert counts_text(0, lines.began, lines.ended, lines.too_late).endswith(
        "1 more process began; 1 more process ended before the watch could act"
    )
    assert counts_text(0, 0, 1, 2)[20:] == "1 more process ended; 2 more processes ended before the watch could act"
    assert not lines.is_count_due(61.0)


@pytest.mark.parametrize("is_named", [True, False])
def test_record_reads_a_process_once_its_tracer_is_gone(is_named: bool, rng: random.Random, tmp_path: Path) -> None:
    """Check that a process that is traced when it is found, by its name or its id, has samples of the kernel's figures
    at once, and those of malloc later."""
    path = tmp_path / "a.csv"
    with (
        sleeping(tmp_path, rng) as (pid, name),
        traced(pid) as holder,
        subprocess.Popen(
            [str(GDBHEAP), "record", name if is_named else str(pid), "--every=50ms", "-o", str(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as recorder,
    ):
        try:
            wait_for(lambda: samples(path, pid), "no sample")
            holder.communicate("\n")
            wait_for(lambda: samples(path, pid)[-1]["system"], "malloc is never read")
        finally:
            recorder.send_signal(signal.SIGINT)
            recorder.communicate(timeout=PATIENCE)
    first, *_, last = samples(path, pid)
    assert int(first["rss"]) > 0 and not first["system"] and int(last["system"]) > 0


def samples(path: Path, pid: int) -> list[dict[str, str]]:
    """Return the rows of a recording with the samples of a process."""
    if not path.exists():
        return []
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return [row for row in csv.DictReader(lines) if row["pid"] == str(pid) and row.get("rss")]


def test_gdbheaps_own_processes_are_no_targets() -> None:
    """Check that guards and readers of this process are left out, and other programs that it started are not."""

    def one(pid: int, parent: int, name: str) -> tuple[int, ProcessStat]:
        return pid, ProcessStat(pid, parent, 0, name, False, 1)

    ours = os.getpid()
    there = dict([one(10, ours, "gdbheap guard"), one(11, 10, "gdbheap"), one(12, ours, "sh"), one(13, 12, "gdbheap"),
                  one(14, 1, "gdbheap")])  # fmt: skip
    assert [pid for pid in [ours, *there] if _is_ours(there, pid)] == [ours, 10, 11]


def test_a_size_and_memory_errors_together(tmp_path: Path) -> None:
    """Check that a watch acts on the size of a process whose MemoryErrors it catches, and catches them afterwards."""
    found = interpreters()
    if not found:
        pytest.skip("no CPython to run the program")
    with swelling(1 << 30, 40 * MIB) as process:
        size = Path(f"/proc/{process.pid}/statm").read_text().split()[1]
        limit = int(size) * os.sysconf("SC_PAGE_SIZE") + 20 * MIB
        words = (str(process.pid), "--on-memory-error", f"--rss={limit}", "--count=all", f"--output={tmp_path}")
        with watching(*words) as watch:
            watch.event("began")
            go(process)
            acted = watch.event("acted")
            assert acted["cause"]["kind"] == "rss" and acted["files"]["snapshot"] and not acted["errors"], acted
            wait_for(lambda: tracer(process.pid) == watch.process.pid, "MemoryErrors are not caught again")
            grown(process)
            assert watch.end()["acted"] == 1
        assert tracer(process.pid) == 0
