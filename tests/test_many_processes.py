"""More processes than the usual limit of open files allows: each omitted one is reported."""

from __future__ import annotations

import json
import random
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.programs import GDBHEAP, PATIENCE, c_program, gdbheap

SOFT = 80
COUNT = 50


@contextmanager
def crowd(folder: Path, rng: random.Random, count: int = COUNT) -> Iterator[tuple[str, list[int]]]:
    """Yield the unique name of a program that runs ``count`` times, and the process ids."""
    program = folder / f"crowd{rng.randrange(1 << 32):x}"
    shutil.copy(c_program("idle")[0], program)
    processes = [
        subprocess.Popen([str(program)], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) for _ in range(count)
    ]
    try:
        for process in processes:
            while Path(f"/proc/{process.pid}/comm").read_text().strip() != program.name[:15]:
                time.sleep(0.01)
        yield f"^{program.name[:15]}", [process.pid for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def limited(soft: int, hard: int | None = None) -> Callable[[], None]:
    """Return a function that gives a child these limits of open files."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1] if hard is None else hard
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, most))


def events(done: subprocess.CompletedProcess[str], kind: str) -> list[dict[str, Any]]:
    """Return the events of one kind."""
    return [event for event in map(json.loads, done.stdout.splitlines()) if event["event"] == kind]


def test_a_soft_limit_leaves_nobody_out(tmp_path: Path, rng: random.Random) -> None:
    """Check that all are watched, and that programs that gdbheap starts have the limit that it was started with."""
    with crowd(tmp_path, rng) as (name, pids):
        told = tmp_path / "told"
        run = f"--run=sh -c 'ulimit -Sn > {told}'"
        words = ("watch", f"--name={name}", "--rss=1K", "--no-snapshot", run, f"--output={tmp_path}", "--json")
        done = gdbheap(*words, preexec_fn=limited(SOFT))
        assert done.returncode == 0, done.stderr
        assert {event["pid"] for event in events(done, "began")} == set(pids)
        assert told.read_text().strip() == str(SOFT)
        answer = json.loads(
            gdbheap("processes", f"--name={name}", "--quick", "--json", preexec_fn=limited(SOFT)).stdout
        )
        assert {row["pid"] for row in answer["rows"] if row["note"] is None} == set(pids)
        words = ("top", f"--name={name}", "--count=1", "--top=all", "--json")
        answer = json.loads(gdbheap(*words, preexec_fn=limited(SOFT)).stdout)
        assert {row["pid"] for row in answer["rows"]} == set(pids) and answer["refused"] == 0


@pytest.mark.parametrize(("limit", "count"), [(SOFT, COUNT), (1000, 400)])
def test_who_is_left_out_is_said(tmp_path: Path, rng: random.Random, limit: int, count: int) -> None:
    """Check that watched and omitted processes together are all, if the hard limit is as low, and that actions still
    work. A process takes two descriptors, and two thirds of all are for processes."""
    with crowd(tmp_path, rng, count) as (name, pids):
        run = f"--run=sh -c 'echo $GDBHEAP_PID > {tmp_path}/told'"
        words = ("watch", f"--name={name}", "--rss=1K", "--no-snapshot", run, f"--output={tmp_path}", "--json")
        done = gdbheap(*words, preexec_fn=limited(limit, limit))
        watched = {event["pid"] for event in events(done, "began")}
        (left_out,) = events(done, "left-out")
        assert done.returncode == 1 and limit / 4 < len(watched) <= limit / 3, done.stderr
        assert sorted([*watched, *left_out["pids"]]) == sorted(pids) and "open files" in left_out["errors"][0]
        assert int((tmp_path / "told").read_text()) in watched
        (end,) = events(done, "end")
        assert (end["acted"], end["failed"]) == (1, 1)
        done = gdbheap("watch", f"--name={name}", "--rss=1T", "--duration=1s", preexec_fn=limited(limit, limit))
        assert done.returncode == 1 and f"{len(left_out['pids'])} processes are not watched" in done.stderr
        done = gdbheap(
            "processes", f"--name={name}", "--quick", "--top=all", "--json", preexec_fn=limited(limit, limit)
        )
        rows = {row["pid"]: row["note"] for row in json.loads(done.stdout)["rows"]}
        assert done.returncode == 1 and set(rows) == set(pids)
        assert {note is None or "open files" in note for note in rows.values()} == {True} and None in rows.values()
        words = ("top", f"--name={name}", "--count=1", "--top=all", "--json")
        done = gdbheap(*words, preexec_fn=limited(limit, limit))
        answer = json.loads(done.stdout)
        assert done.returncode == 1 and answer["refused"] == count - len(answer["rows"]) > 0
        assert "open files" in answer["left_out"][0]


def test_what_is_started_has_the_usual_limit(tmp_path: Path) -> None:
    """Check that a recorded command has the usual limit of open files."""
    words = ("record", "-o", str(tmp_path / "series.csv"), "--", "sh", "-c", f"ulimit -Sn > {tmp_path}/told")
    assert gdbheap(*words, preexec_fn=limited(SOFT)).returncode == 0
    assert (tmp_path / "told").read_text().strip() == str(SOFT)


@contextmanager
def first_thread_ended(grows: int) -> Iterator[subprocess.Popen[str]]:
    """Yield a process whose first thread has ended; it grows for each line on its standard input."""
    command = c_program("first_ends", grows)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert int(process.stdout.readline()) != process.pid
            assert Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
            yield process
        finally:
            process.kill()


def grow(process: subprocess.Popen[str]) -> None:
    """Let the process grow; return once it has grown."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline()


def test_a_process_outlives_its_first_thread(tmp_path: Path, rng: random.Random) -> None:
    """Check that a process whose first thread has ended is listed with its memory, and watched."""
    size = rng.randrange(40 << 20, 60 << 20)
    with first_thread_ended(size) as process:
        words = ("watch", "--name=^first_ends$", f"--rss={size}", "--no-snapshot", "--run=true", f"--output={tmp_path}")
        with subprocess.Popen([str(GDBHEAP), *words, "--json"], stdout=subprocess.PIPE, text=True) as watch:
            assert watch.stdout is not None
            try:
                began = json.loads(watch.stdout.readline())
                assert (began["event"], began["pid"]) == ("began", process.pid)
                grow(process)
                acted = json.loads(watch.stdout.readline())
                assert (acted["event"], acted["pid"]) == ("acted", process.pid) and acted["cause"]["bytes"] >= size
                assert watch.wait(PATIENCE) == 0
            finally:
                watch.kill()
        (row,) = (row for row in json.loads(gdbheap("ps", "--json").stdout)["rows"] if process.pid in row["pids"])
        assert size <= row["private"] < size + (8 << 20) and row["name"] == "first_ends"
        done = gdbheap("processes", str(process.pid), "--json")
        (row,) = json.loads(done.stdout)["rows"]
        assert row["uss"] >= size and "first thread" in row["note"] and done.returncode == 1
        done = gdbheap("top", "--name=^first_ends$", "--count=1", "--json")
        answer = json.loads(done.stdout)
        assert (done.returncode, answer["refused"]) == (1, 1) and "first thread" in answer["left_out"][0]


def test_the_end_of_all_threads_is_an_end(tmp_path: Path) -> None:
    """Check that a zombie without threads is not watched, and that a watch ends with the last thread."""
    with first_thread_ended(0) as process:
        words = ("watch", "--name=^first_ends$", "--rss=1T", "--duration=60s", f"--output={tmp_path}", "--json")
        with subprocess.Popen([str(GDBHEAP), *words], stdout=subprocess.PIPE, text=True) as watch:
            assert watch.stdout is not None
            try:
                assert json.loads(watch.stdout.readline())["event"] == "began"
                # The process is not collected: it stays a zombie.
                process.send_signal(signal.SIGKILL)
                ended = json.loads(watch.stdout.readline())
                assert (ended["event"], ended["pid"]) == ("ended", process.pid)
            finally:
                watch.kill()
        assert not any(process.pid in row["pids"] for row in json.loads(gdbheap("ps", "--json").stdout)["rows"])


@pytest.mark.parametrize("shared", [False, True], ids=["forks", "one address space"])
def test_twins(rng: random.Random, shared: bool) -> None:
    """Check that the memory of processes in one address space counts once, and that of forks with equal sizes once
    for each."""
    count, size = rng.randrange(3, 9), rng.randrange(4 << 20, 12 << 20) & -4096
    command = c_program("twins", count, size, *["shared"] * shared)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            pids = list(map(int, process.stdout.readline().split()))
            assert len(pids) == count
            found = json.loads(gdbheap("ps", "--filter=^twins$", "--json").stdout)["rows"]
            (row,) = (row for row in found if set(pids) <= set(row["pids"]))
            expected = size if shared else size * count
            assert expected <= row["private"] < expected + (1 + count) * (1 << 20), (count, size)
        finally:
            process.kill()
