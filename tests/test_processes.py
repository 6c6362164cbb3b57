"""Several processes in one answer: the kernel's sums, and pages that a fork left shared or that were written."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support import kernel
from support.attackers import STRANGER
from support.installed import python_with
from support.private_memory import private_in_smaps
from support.programs import SOURCES, gdbheap, interpreter_of, plain_environment, release_program, running

from gdbheap.processes import family as families
from gdbheap.processes.family import family as family_of
from gdbheap.targets.process import Process

COUNT = 20_000
PAGE = os.sysconf("SC_PAGE_SIZE")
PATIENCE = 120
WORKERS = 4
ROWS = 20_000
PROMISED = 0.9


@contextmanager
def standing(pids: list[int]) -> Iterator[None]:
    """Keep the processes in a job-control stop, in which gdbheap leaves them."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """Yield the processes of tests/programs/family.py by their actions; "master" is their parent."""
    command = [interpreter_of("stripped"), "-I", str(SOURCES / "family.py"), str(COUNT)]
    with running(command, tmp_path_factory.mktemp("family")) as master:
        workers = {name: int(pid) for name, pid in re.findall(r"^(\w+) (\d+)$", master.stderr, re.MULTILINE)}
        yield {"master": master.pid, **workers}


@pytest.fixture(scope="module")
def answer(family: dict[str, int]) -> dict[str, Any]:
    """Return gdbheap's answer about the family."""
    done = gdbheap(str(family["master"]), "--children", "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def row_of(answer: dict[str, Any], pid: int) -> dict[str, Any]:
    """Return the row of a process."""
    (row,) = (row for row in answer["rows"] if row["pid"] == pid)
    return dict(row)


def test_who_is_in_it(family: dict[str, int], answer: dict[str, Any]) -> None:
    """Check the master and its children, each beside its parent, the largest first."""
    assert answer["command"] == "gdbheap processes"
    assert sorted(row["pid"] for row in answer["rows"]) == sorted(family.values())
    sizes = [row["rss"] for row in answer["rows"]]
    assert sizes == sorted(sizes, reverse=True)
    for name, pid in family.items():
        assert row_of(answer, pid)["beside"] == (None if name == "master" else family["master"])


def test_sums_are_the_kernels(family: dict[str, int]) -> None:
    """Check each process's RSS, PSS and USS against smaps_rollup to the KiB, and the sums."""
    pids = sorted(family.values())
    with standing(pids):
        # A program that starts or ends, such as gdbheap itself, changes the proportional shares of its libraries; one
        # that starts and ends between two readings leaves no other trace. Wrong sums would fail each time.
        for _ in range(200):
            before = [figures(pid) for pid in pids]
            found = family_of(pids, None, quick=True)
            rows = {row.pid: row for row in found.rows}
            own = [(rows[pid].rss, rows[pid].pss, rows[pid].uss) for pid in pids]
            if before == own == [figures(pid) for pid in pids]:
                break
    assert own == before
    total = found.total
    assert (total.rss, total.pss, total.uss) == tuple(map(sum, zip(*before)))
    assert total.shared == total.pss - total.uss and total.processes == len(pids)


def figures(pid: int) -> tuple[int, int, int]:
    """Return (RSS, PSS, USS) by the kernel's sums."""
    alone = sum(kernel.in_rollup(pid, key) for key in ("Private_Clean", "Private_Dirty"))
    return kernel.in_rollup(pid, "Rss"), kernel.in_rollup(pid, "Pss"), alone


def test_anonymous_share_is_the_pages(family: dict[str, int]) -> None:
    """Check that the proportional shares of the family's anonymous memory add up to its page frames, each counted
    once."""
    pids = sorted(family.values())
    with standing(pids):
        frames = {frame for pid in pids for frame in anonymous_frames(pid)}
        if frames == {0}:
            pytest.skip("the kernel shows page frames only to root")
        shares = sum(kernel.in_rollup(pid, "Pss_Anon") for pid in pids)
    # The kernel cuts each process's share to whole KiB.
    assert 0 <= PAGE * len(frames) - shares <= 1024 * len(pids)


def anonymous_frames(pid: int) -> Iterator[int]:
    """Yield the page frames of the pages without a file; 0 if they are hidden."""
    with open(f"/proc/{pid}/pagemap", "rb") as stream:
        for mapping in kernel.maps(pid):
            for start in range(mapping.start, mapping.end, PAGE) if mapping.end < 1 << 47 else ():
                stream.seek(start // PAGE * 8)
                entry = int.from_bytes(stream.read(8), "little")
                # Bit 61: a page of a file, or of shared memory.
                if entry >> 63 and not entry >> 61 & 1 and not is_zero(entry):
                    yield entry & (1 << 55) - 1


def is_zero(entry: int) -> bool:
    """Return whether a page is the kernel's page of zeros, which belongs to no process."""
    frame = entry & (1 << 55) - 1
    return bool(frame) and bool(kernel.frame_flags(frame) >> 24 & 1)


def test_pages_add_up(family: dict[str, int], answer: dict[str, Any]) -> None:
    """Check that each writable private resident page is either shared, written, or new.

    The pages that only one process has add up to the kernel's figure, also in mappings that its parent does not have.
    """
    for name, pid in family.items():
        if name == "master":
            continue
        written = row_of(answer, pid)["written"]
        own, shared, elsewhere = private_pages(pid, family["master"])
        kinds = ("restored", "recounted", "collector", "counts_only", "both", "data", "not_there")
        assert sum(written[kind] for kind in kinds) == PAGE * own == private_in_smaps(pid), name
        assert written["shared"] == PAGE * shared, name
        assert written["not_there"] >= PAGE * elsewhere, name
    # Dicts and texts that the master does not have.
    made = row_of(answer, family["make"])["written"]["not_there"]
    assert made > 300 * COUNT > 2 * row_of(answer, family["nothing"])["written"]["not_there"]


def private_pages(pid: int, other: int) -> tuple[int, int, int]:
    """Return the numbers of writable private pages of a process: pages that it alone has and pages that it shares, both
    where the other process has such memory, and pages where the other has none.
    """
    theirs = {page for mapping in writable(other) for page in range(mapping.start, mapping.end, PAGE)}
    own = shared = elsewhere = 0
    with open(f"/proc/{pid}/pagemap", "rb") as stream:
        for mapping in writable(pid):
            for start in range(mapping.start, mapping.end, PAGE):
                stream.seek(start // PAGE * 8)
                entry = int.from_bytes(stream.read(8), "little")
                is_alone = entry >> 63 and entry >> 56 & 1
                own += is_alone
                shared += entry >> 63 and not is_alone and start in theirs
                elsewhere += is_alone and start not in theirs
    return own, shared, elsewhere


def writable(pid: int) -> list[kernel.Mapped]:
    """Return the private mappings that may be written."""
    return [mapping for mapping in kernel.maps(pid) if mapping.perms.startswith("rw") and mapping.perms[3] == "p"]


def test_by_what_they_were_written(family: dict[str, int], answer: dict[str, Any]) -> None:
    """Check that the pages of a worker tell what it did, in bytes."""
    written = {name: row_of(answer, pid)["written"] for name, pid in family.items() if name != "master"}
    # Objects without a collector's header of 32 bytes each, and lists of 56 and 16.
    touched, tracked = COUNT * 32, COUNT * 72
    quiet = written["nothing"]
    assert quiet["collector"] < tracked / 20 and quiet["counts_only"] < touched / 20
    assert written["refer"]["counts_only"] - quiet["counts_only"] > 0.9 * touched
    assert written["refer"]["collector"] < tracked / 20
    assert written["collect"]["collector"] > 0.9 * tracked > 10 * written["collect"]["counts_only"]
    assert written["write"]["data"] >= 8 << 20
    (row,) = (row for row in answer["types"] if row["type"] == "__main__.Touched")
    assert row["objects"] == COUNT


def test_what_freezing_saves(family: dict[str, int], answer: dict[str, Any]) -> None:
    """Check that the advice promises the bytes that the one worker's collector wrote, and that a family that follows
    the advice no longer has it."""
    (advice,) = (row for row in answer["savings"] if row["id"] == "freeze")
    collected = row_of(answer, family["collect"])["written"]
    assert 0.5 * collected["collector"] < advice["saves"] <= advice["most_saved"]


def test_frozen(tmp_path: Path) -> None:
    """Check that after gc.freeze() the collector leaves earlier objects alone: almost nothing is left to be saved."""
    command = [interpreter_of("stripped"), "-I", str(SOURCES / "family.py"), str(COUNT), "freeze"]
    with running(command, tmp_path) as master:
        found = json.loads(gdbheap(str(master.pid), "--children", "--json").stdout)
    assert sum(row["saves"] for row in found["savings"] if row["id"] == "freeze") < COUNT * 72 / 20


@pytest.mark.parametrize("release", ["3.8", "3.12", "3.13"])
def test_other_releases(release: str, tmp_path: Path) -> None:
    """Check releases with other places of the collector's words and state; 3.12 freezes a few objects itself when it
    starts."""
    with running(release_program(release, "family", COUNT), tmp_path) as master:
        workers = {name: int(pid) for name, pid in re.findall(r"^(\w+) (\d+)$", master.stderr, re.MULTILINE)}
        found = json.loads(gdbheap(str(master.pid), "--children", "--json").stdout)
    written = {name: row_of(found, pid)["written"] for name, pid in workers.items()}
    assert written["collect"]["collector"] > 0.9 * COUNT * 72
    assert all(row["collector"] < COUNT * 72 / 20 for name, row in written.items() if name != "collect")
    (row,) = (row for row in found["types"] if row["type"] == "__main__.Touched")
    assert row["objects"] == COUNT


@pytest.fixture()
def stops(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Return, for each stop, the processes that are stopped. While answers are computed, it is only one."""
    found: list[tuple[int, ...]] = []
    standing: list[int] = []
    stop, use = families.stopped, families.heap_use

    @contextmanager
    def recorded(folder: Any, *arguments: Any, **named: Any) -> Iterator[Process]:
        with stop(folder, *arguments, **named) as process:
            standing.append(process.folder.pid)
            found.append(tuple(standing))
            try:
                yield process
            finally:
                standing.pop()

    def alone(heap: Any) -> Any:
        assert standing == [heap.target.folder.pid]
        return use(heap)

    monkeypatch.setattr(families, "stopped", recorded)
    monkeypatch.setattr(families, "heap_use", alone)
    return found


def test_strangers_do_not_stand_for_each_other(stops: list[tuple[int, ...]]) -> None:
    """Check children of one parent from several execs, and of other users if possible: each is stopped only for its
    own answers."""
    users = [STRANGER, STRANGER + 1, None] if os.geteuid() == 0 else [None] * 3
    with ExitStack() as running_ones:
        pids = []
        for user in users:
            child = subprocess.Popen(["sleep", "1000"], user=user)
            running_ones.callback(child.wait)
            running_ones.callback(child.kill)
            pids.append(child.pid)
        found = family_of(pids, 10.0)
    assert sorted(stops) == sorted((pid,) for pid in pids)
    assert all(row.beside is None and row.note is None for row in found.rows)


def test_a_sibling_stands_while_pages_are_compared(family: dict[str, int], stops: list[tuple[int, ...]]) -> None:
    """Check three workers beside a fourth: it is stopped once for each of them, but not while answers are computed."""
    pids = [family[name] for name in ("nothing", "refer", "collect", "write")]
    found = family_of(pids, None)
    beside = {row.pid: row.beside for row in found.rows}
    assert all(row.written is not None for row in found.rows)
    (first,) = (pid for pid in pids if list(beside.values()).count(pid) == 3)
    assert sorted(stops) == sorted([*((pid,) for pid in pids), *beside.items()])
    assert [pair[-1] for pair in stops if len(pair) == 2].count(first) == 3


def test_a_sibling_stands_for_so_long(
    family: dict[str, int], stops: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that no more processes are compared with a sibling that was stopped for the maximum time, and that the
    answers mention this."""
    ticks = count(0, 100)
    monkeypatch.setattr(families, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    pids = [family[name] for name in ("nothing", "refer", "collect", "write")]
    found = family_of(pids, 60.0)
    noted = [row for row in found.rows if row.note is not None]
    assert len(noted) == 2 and all("--max-stop" in str(row.note) and row.written is None for row in noted)
    assert all(row.heap is not None for row in found.rows)
    assert sum(len(pair) == 2 for pair in stops) == 2


def test_gone_and_without_memory(family: dict[str, int], tmp_path: Path) -> None:
    """Check an ended process, a zombie and a kernel thread: each is a row with a note, and the others are answered."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    zombie = subprocess.Popen(["true"])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    try:
        done = gdbheap(str(family["nothing"]), str(ended.pid), str(zombie.pid), "2", "--json")
    finally:
        zombie.wait()
    assert done.returncode == 1, done.stderr
    rows = {row["pid"]: row for row in json.loads(done.stdout)["rows"]}
    assert "ended" in rows[ended.pid]["note"] and rows[zombie.pid]["note"]
    assert rows[family["nothing"]]["note"] is None and rows[family["nothing"]]["heap"]["in_use"] > 0
    assert rows[2]["note"] and rows[2]["rss"] is None
    text = gdbheap(str(family["nothing"]), str(ended.pid)).stdout
    assert f"Process {ended.pid}: it has ended" in text


def test_none_is_there() -> None:
    """Check that a missing process gives one line and status 4."""
    limit = int(Path("/proc/sys/kernel/pid_max").read_text())
    done = gdbheap(str(limit - 1), str(limit - 2))
    assert done.returncode == 4 and len(done.stderr.splitlines()) == 1 and not done.stdout


@contextmanager
def served(python: str, folder: Path, name: str, preload: bool = True, **settings: str) -> Iterator[list[int]]:
    """Yield the processes of a gunicorn with four workers, the master first, once each has answered."""
    path = folder / name
    environment = {**plain_environment(), "SOCKET": str(path), "LOG": f"{path}.log", "COUNT": str(ROWS), **settings}
    command = [python, "-m", "gunicorn", "-c", str(SOURCES / "gunicorn_settings.py"), *(["--preload"] * preload)]
    process = subprocess.Popen([*command, "--chdir", str(SOURCES), "preloaded:application"], env=environment)
    try:
        deadline = time.monotonic() + PATIENCE
        while len(workers := children(process.pid)) < WORKERS or not path.exists() or not all_rest(workers):
            assert process.poll() is None and time.monotonic() < deadline, Path(f"{path}.log").read_text()
            time.sleep(0.1)
        assert answered(path) == str(ROWS)
        yield [process.pid, *workers]
    finally:
        process.terminate()
        process.wait(PATIENCE)


def children(pid: int) -> list[int]:
    """Return the ids of a process's children."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def all_rest(pids: list[int]) -> bool:
    """Return whether all these processes wait for a connection: select(2) or pselect6(2)."""
    calls = [Path(f"/proc/{pid}/syscall").read_text().split()[0] for pid in pids]
    return all(call in ("23", "270") for call in calls)


def answered(path: Path) -> str:
    """Return the body of an answer to a request on a unix socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        parts = iter(lambda: connection.recv(1 << 16), b"")
        return b"".join(parts).partition(b"\r\n\r\n")[2].decode()


def test_gunicorn_saves_what_is_promised(tmp_path: Path) -> None:
    """Check four workers: gc.freeze() before the fork saves at least 90 % of the promised PSS, and so does
    preloading for workers that were not preloaded."""
    python = python_with("gunicorn")
    with served(python, tmp_path, "as-it-is", COLLECT="1") as pids:
        found = json.loads(gdbheap(str(pids[0]), "--children", "--json").stdout)
        before = sum(kernel.in_rollup(pid, "Pss") for pid in pids)
    (advice,) = (row for row in found["savings"] if row["id"] == "freeze")
    with served(python, tmp_path, "frozen", COLLECT="1", FREEZE="1") as pids:
        after = sum(kernel.in_rollup(pid, "Pss") for pid in pids)
    assert advice["workers"] == WORKERS and advice["saves"] > 4 << 20
    assert before - after >= PROMISED * advice["saves"], (before, after, advice)
    with served(python, tmp_path, "each-for-itself", preload=False) as pids:
        found = json.loads(gdbheap(str(pids[0]), "--children", "--json").stdout)
        before = sum(kernel.in_rollup(pid, "Pss") for pid in pids)
    (advice,) = (row for row in found["savings"] if row["id"] == "preload")
    assert advice["workers"] == WORKERS and advice["least_saved"] == advice["saves"] < advice["most_saved"]
    assert before - after >= PROMISED * advice["saves"], (before, after, advice)


def test_by_name_and_group(family: dict[str, int], rng: random.Random) -> None:
    """Check that --name finds the same as --children, by the kernel's name and by the script's, which all pages use."""
    name = Path(f"/proc/{family['master']}/comm").read_text().strip()
    for each in (name, "family.py"):
        found = json.loads(gdbheap(f"--name=^{re.escape(each)}$", "--quick", "--json").stdout)
        assert set(family.values()) <= {row["pid"] for row in found["rows"]}
    one = rng.choice(sorted(family.values()))
    alone = json.loads(gdbheap("processes", str(one), "--quick", "--json").stdout)
    assert [row["pid"] for row in alone["rows"]] == [one]
