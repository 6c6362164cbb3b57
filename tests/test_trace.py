"""``gdbheap trace``: the log has the calls that a program counts itself, with threads, forks, signals and kills."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import time
from pathlib import Path

import pytest
from harm.recorded import Kills
from reference import call_log
from reference.call_log import FREE, REALLOC
from support.call_tables import Row, Table, by_thread, first_missing, recorded
from support.programs import GDBHEAP, PATIENCE, SOURCES, build, gdbheap
from support.recorded import recorder_environment

from gdbheap.errors import UsageError
from gdbheap.tracing import traced_command
from gdbheap.tracing.log import BY_LOCK, BY_TIME, LogWriter, read_log
from gdbheap.tracing.recorder_files import RecorderFile
from gdbheap.tracing.traced_command import finish


@pytest.mark.parametrize("order", [BY_LOCK, BY_TIME])
@pytest.mark.parametrize(("threads", "forks"), [(1, 0), (4, 3), (8, 8)])
def test_each_call(threads: int, forks: int, order: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that each thread's calls are in the log in order, with only a few additional calls of libc."""
    table = Table(threads, 8000, forks, tmp_path / "table")
    assert recorded(tmp_path / "calls", table.words(rng), order=order).wait() == 0
    logs = by_thread(tmp_path / "calls")
    rows = list(table.rows())
    assert len(rows) == threads + forks and len({row.pid for row in rows}) == 1 + forks
    for row in rows:
        calls = logs[row.pid, row.tid]
        assert first_missing(row, calls) is None
        assert len(calls) <= len(row.calls) + 100
        assert all(call.usable >= call.size for call in calls if call.result and call.kind != FREE)


def test_order(rng: random.Random, tmp_path: Path) -> None:
    """Check for all threads together that no block is allocated before it was freed, and that none is freed twice."""
    table = Table(8, 8000, 0, tmp_path / "table")
    assert recorded(tmp_path / "calls", table.words(rng)).wait() == 0
    (data,) = call_log.files_of(tmp_path / "calls").values()
    live: set[int] = set()
    for call in call_log.calls_of(data):
        gone = call.result if call.kind == FREE else call.old if call.kind == REALLOC else 0
        if gone:
            live.remove(gone)
        if call.kind != FREE and call.result:
            assert call.result not in live
            live.add(call.result)


@pytest.mark.parametrize("order", [BY_LOCK, BY_TIME])
def test_signal_handlers(order: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that a handler's calls in the middle of other calls are in the log, with an allocator that permits this."""
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler")
    library = tmp_path / "handing_out.so"
    source = str(SOURCES / "handing_out.c")
    command = ["gcc", "-O2", "-fno-builtin", "-shared", "-fPIC", "-o", str(library), source]
    subprocess.run(command, check=True)
    table = Table(1, 60_000, 0, tmp_path / "table")
    assert recorded(tmp_path / "calls", [*table.words(rng), "alarm"], str(library), order).wait() == 0
    logs = by_thread(tmp_path / "calls")
    main, handler = table.rows()
    assert first_missing(main, logs[main.pid, main.tid]) is None
    assert len(handler.calls) > 10 and first_missing(handler, logs[handler.pid, handler.tid]) is None


def test_killed(rng: random.Random, tmp_path: Path) -> None:
    """Check that the log has each call that was made, and that the program is unharmed, whenever the program or
    gdbheap is killed."""
    kills = Kills(tmp_path)
    for _ in range(20):
        told, harm = kills.one(rng)
        assert not harm, f"{told}: {harm}"


@pytest.mark.parametrize("order", [BY_LOCK, BY_TIME])
def test_command(order: str, rng: random.Random, tmp_path: Path) -> None:
    """Check the number of calls, the identity and the bytes in use of each process in the log against the tables;
    the command's output and status are its own."""
    table = Table(3, 5000, 2, tmp_path / "table")
    done = gdbheap("trace", "-o", str(tmp_path / "calls.log"), "--json", f"--order={order}", "--", *table.words(rng))
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    rows = list(table.rows())
    for pid in {row.pid for row in rows}:
        (process,) = [process for process in answer["rows"] if process["pid"] == pid]
        mine = [row for row in rows if row.pid == pid]
        count = sum(len(row.calls) for row in mine)
        assert count <= process["calls"] <= count + 300 and process["lost"] == 0
        assert process["exe"] == str(build("call_table"))
    assert answer["calls"] == sum(process["calls"] for process in answer["rows"])
    assert not (tmp_path / "calls.log.parts").exists()
    failing = gdbheap("trace", "-o", str(tmp_path / "sh.log"), "--", "sh", "-c", "echo out; exit 7")
    assert (failing.returncode, failing.stdout) == (7, "out\n")
    assert failing.stderr.startswith("gdbheap: ") and "calls of 1 process" in failing.stderr


def test_same_result(tmp_path: Path) -> None:
    """Check that a program that runs others computes the same with and without the recorder."""
    words = [
        "sh",
        "-c",
        "seq 20000 | sort -r | sed 's/7/x/' | md5sum; bash -c 'for i in 1 2 3; do (echo $i) & done; wait'",
    ]
    plain = subprocess.run(words, capture_output=True, check=True).stdout
    done = gdbheap("trace", "-o", str(tmp_path / "calls.log"), "--", *words)
    assert sorted(done.stdout.splitlines()) == sorted(plain.decode().splitlines()) and done.returncode == 0


def test_killed_recording(rng: random.Random, tmp_path: Path) -> None:
    """Check that the command runs on if gdbheap is killed, and that --finish puts all of its calls into the log."""
    table = Table(2, 120_000, 0, tmp_path / "table")
    log = tmp_path / "calls.log"
    tracing = subprocess.Popen([str(GDBHEAP), "trace", "-o", str(log), "--", *table.words(rng)])
    parts = Path(f"{log}.parts")
    deadline = time.monotonic() + 60
    while not list(parts.glob("*.calls")) and time.monotonic() < deadline:
        time.sleep(0.01)
    tracing.send_signal(signal.SIGKILL)
    tracing.wait()
    while True:
        done = gdbheap("trace", "-o", str(log), "--finish", "--json")
        if done.returncode != 2 or time.monotonic() > deadline:
            break
        assert "still being recorded" in done.stderr
        time.sleep(0.1)
    answer = json.loads(done.stdout)
    rows = list(table.rows())
    count = sum(len(row.calls) for row in rows)
    assert count <= answer["calls"] <= count + 200 and not parts.exists()


def test_full_disk(rng: random.Random, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that an older log stays until the new one is complete, and that recorded calls are kept until there is
    room."""
    table, log = Table(1, 5000, 0, tmp_path / "table"), tmp_path / "calls.log"
    parts = Path(f"{log}.parts")
    parts.mkdir(0o700)
    environment = {**os.environ, **recorder_environment(parts)}
    subprocess.run(table.words(rng), env=environment, check=True)
    older = rng.randbytes(100)
    log.write_bytes(older)
    for name in ("process", "stage", "process_end", "end"):
        with monkeypatch.context() as patch:
            patch.setattr(LogWriter, name, _no_room)
            answer = finish(str(log))
        assert log.read_bytes() == older and "No space left on device" in "".join(answer.failures)
    (row,) = table.rows()
    answer = finish(str(log))
    assert len(row.calls) <= answer.calls <= len(row.calls) + 200 and answer.file == str(log)
    assert log.stat().st_size == answer.size and not parts.exists()
    # The state after a kill between the last two steps.
    parts.mkdir(0o700)
    assert finish(str(log)) == answer and log.stat().st_size == answer.size and not parts.exists()


def test_calls_that_are_missing(rng: random.Random, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that an older log is not replaced by one with missing calls, unless that is requested, nor by one with
    none."""
    table, log = Table(1, 2000, 0, tmp_path / "table"), tmp_path / "calls.log"
    parts, older = Path(f"{log}.parts"), rng.randbytes(100)
    log.write_bytes(older)
    monkeypatch.setattr(traced_command, "_adopt", lambda: None)
    with monkeypatch.context() as patch:
        patch.setattr(RecorderFile, "take", lambda *_: iter(()))
        answer = traced_command.trace(str(log), table.words(rng))
    assert (log.read_bytes(), answer.calls, answer.ok) == (older, 0, False) and not parts.exists()
    assert f"{log} is unchanged" in answer.failures
    with monkeypatch.context() as patch:
        patch.setattr(RecorderFile, "lost", lambda _: 5)
        answer = traced_command.trace(str(log), table.words(rng))
        assert (log.read_bytes(), answer.lost, answer.ok) == (older, 5, False) and Path(answer.file).parent == parts
        assert "5 calls could not be recorded" in "".join(answer.failures)
        again = finish(str(log))
    assert (again.file, again.calls, again.lost) == (str(log), answer.calls, 5) and not parts.exists()


def _no_room(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "say where to write"),
        (["-o", "x.log"], "which command?"),
        (["-o", "/nonexistent/x.log", "--", "true"], "nonexistent"),
        (["-o", "x.log", "--", "no such program"], "cannot be started"),
        (["-o", "x.log", "--finish"], "no longer exist"),
        (["-o", "x.log", "--finish", "--pymalloc"], "leave out the command and --pymalloc"),
        (["-o", "x.log", "--attach=1"], "process 1 was not changed"),
        (["--attach", "1"], "gdbheap growth 1"),
    ],
)
def test_refused(words: list[str], reason: str, tmp_path: Path) -> None:
    """Check one line, status 2, and nothing left behind."""
    done = gdbheap("trace", *words, cwd=tmp_path)
    assert done.returncode == 2 and reason in done.stderr and done.stderr.count("\n") == 1
    assert list(tmp_path.glob("*.parts")) == []


def test_nothing_recorded(tmp_path: Path) -> None:
    """Check that a program that the recorder cannot see is reported as such, with its own status."""
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler")
    source = tmp_path / "alone.c"
    source.write_text("int main(void) { return 0; }\n")
    built = subprocess.run(["gcc", "-static", "-o", str(tmp_path / "alone"), str(source)], check=False)
    if built.returncode:
        pytest.skip("no static libc")
    done = gdbheap("trace", "-o", str(tmp_path / "calls.log"), "--", str(tmp_path / "alone"))
    assert "no calls were recorded" in done.stderr


def test_no_room(rng: random.Random, tmp_path: Path) -> None:
    """Check that a program whose log has no room runs to its end, and that missing calls are counted."""
    table = Table(1, 60_000, 0, tmp_path / "table")
    words = table.words(rng)
    folder = tmp_path / "small"
    folder.mkdir(0o700)
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=640K", "tmpfs", str(folder)], capture_output=True
    ).returncode:
        pytest.skip("no permission to mount")
    try:
        assert recorded(folder / "calls", words).wait() == 0
        (row,) = table.rows()
        (data,) = call_log.files_of(folder / "calls").values()
        calls, lost = list(call_log.calls_of(data)), struct.unpack_from("<12Q", data)[6]
    finally:
        subprocess.run(["umount", str(folder)], check=True)
    assert lost > 0 and len(row.calls) <= len(calls) + lost <= len(row.calls) + 100
    assert first_missing(Row(row.pid, row.tid, row.calls[: len(calls) - 100]), calls) is None


def test_header_that_lies(tmp_path: Path) -> None:
    """Check that a program that writes into its recorder's header makes the log no longer than the recorded calls."""
    log = tmp_path / "calls"
    words = [str(GDBHEAP), "trace", "-o", str(log), "--", str(build("claims")), str(1 << 40)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done
    assert 0 < log.stat().st_size < 1 << 20


@pytest.mark.parametrize("order", [BY_LOCK, BY_TIME])
@pytest.mark.parametrize("threads", [0, 2])
def test_a_forked_child_has_no_file_of_its_parent(order: str, threads: int, tmp_path: Path) -> None:
    """Check that a child, which may drop its rights, cannot write to the file of its parent, although other threads of
    the parent open files meanwhile; and that the parent is still recorded."""
    log, program = str(tmp_path / "calls.log"), [str(build("forks_beside")), str(threads), "100"]
    done = gdbheap("trace", f"--order={order}", "-o", log, "--", *program)
    assert done.returncode == 0 and done.stdout == "", done
    assert json.loads(gdbheap("calls", log, "--json").stdout)["calls"]["all"] > 1000 * threads


# Starts processes without a recorder that lose their parent, and waits until nobody is left who has ended.
ORPHANS = """
import os, sys, time
for _ in range(int(sys.argv[1])):
    os.spawnve(os.P_WAIT, "/bin/sh", ["sh", "-c", "(/bin/true &)"], {})
above = os.getppid()
def ended():
    found = 0
    for pid in open(f"/proc/{above}/task/{above}/children").read().split():
        try:
            found += open(f"/proc/{pid}/stat").read().rpartition(") ")[2][0] == "Z"
        except OSError:
            pass
    return found
while ended():
    time.sleep(0.01)
"""


def test_orphans_that_are_not_recorded(tmp_path: Path, rng: random.Random) -> None:
    """Check that processes that end without a file do not stay behind, where they would count against a limit."""
    words = ("trace", "-o", str(tmp_path / "calls.log"), "--", "/usr/bin/python3", "-c", ORPHANS)
    done = gdbheap(*words, str(rng.randrange(5, 50)))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("word", [3, 4, 7, 8, 9, 10, 11, 12, 20])
def test_a_header_that_the_program_overwrites(tmp_path: Path, rng: random.Random, word: int) -> None:
    """Check that numbers that no recorder writes leave the log whole: the process, its parent, calls that wait, its
    lane, its stacks."""
    log, number = tmp_path / "calls.log", rng.randrange(1 << 63, 1 << 64)
    done = gdbheap("trace", "-o", str(log), "--", str(build("claims")), str(number), str(word))
    assert done.returncode == 0, done.stderr
    read, answer = read_log(str(log)), json.loads(gdbheap("calls", str(log), "--json").stdout)
    assert len(read.processes) == 1 and answer["calls"]["all"] >= 4000


def test_a_folder_that_is_no_recording_s(rng: random.Random, tmp_path: Path) -> None:
    """Check that nothing in it is removed, and that no log is written."""
    parts = tmp_path / "film.parts"
    parts.mkdir(0o700)
    names = {"log", "log.txt", f"{rng.getrandbits(60):x}-part1.mkv", "00000zz-1.calls"}
    for name in names:
        (parts / name).write_bytes(b"mine")
    with pytest.raises(UsageError, match="nothing was changed"):
        finish(str(tmp_path / "film"))
    assert set(os.listdir(parts)) == names and not (tmp_path / "film").exists()


STRANGE = (
    "zz.calls",
    "f" * 20 + "-1.calls",
    "-.calls",
    f"{0:016x}-{1:016x}.calls",
    f"{1 << 63:016x}-{1:016x}.calls",
    "x",
)


@pytest.mark.parametrize("has_older", [False, True])
def test_files_that_no_recorder_made(has_older: bool, rng: random.Random, tmp_path: Path) -> None:
    """Check a program that puts its own files next to its recording: no call and no file is lost, and each file is
    named.
    """
    log, table = tmp_path / "calls.log", Table(1, 2000, 0, tmp_path / "table")
    if has_older:
        log.write_bytes(b"older")
    names = [*rng.sample(STRANGE, 2), f"{rng.getrandbits(20) + 1:016x}-{rng.getrandbits(60):016x}.calls"]
    planted = f'cd "$GDBHEAP_CALLS"; echo mine > {names[0]}; echo mine > {names[1]}; mkdir {names[2]}; exec "$@"'
    done = gdbheap("trace", "-o", str(log), "--", "sh", "-c", planted, "sh", *table.words(rng))
    assert done.returncode == 0 and "the recorder did not make" in done.stderr and names[0] in done.stderr, done.stderr
    (row,) = table.rows()
    assert len(row.calls) <= max(process.calls for process in traced_command._traced(str(log), 0, None, []).rows)
    assert set(os.listdir(f"{log}.parts")) == set(names)


def test_finish_beside_files_that_no_recorder_made(rng: random.Random, tmp_path: Path) -> None:
    """Check that the calls are put into the log, and that the other files stay."""
    log, table = tmp_path / "calls.log", Table(1, 2000, 0, tmp_path / "table")
    parts = Path(f"{log}.parts")
    parts.mkdir(0o700)
    subprocess.run(table.words(rng), env={**os.environ, **recorder_environment(parts)}, check=True)
    for name in STRANGE:
        (parts / name).write_bytes(b"mine")
    answer = finish(str(log))
    (row,) = table.rows()
    assert len(row.calls) <= answer.calls and "the recorder did not make" in "".join(answer.failures)
    assert set(os.listdir(parts)) == set(STRANGE)


@pytest.mark.parametrize("kib", [4, 32])
def test_trace_on_a_full_disk(kib: int, tmp_path: Path) -> None:
    """Check that a full disk is reported with status 1, and that the command's own status wins."""
    folder = tmp_path / "small"
    folder.mkdir(0o700)
    words = ["mount", "-t", "tmpfs", "-o", f"size={kib}K", "tmpfs", str(folder)]
    if subprocess.run(words, capture_output=True).returncode:
        pytest.skip("no permission to mount")
    try:
        for status in (0, 3):
            done = gdbheap("trace", "-o", str(folder / f"{status}.log"), "--", "sh", "-c", f"date; exit {status}")
            assert done.returncode == (status or 1), done.stderr
            assert "the disk is full" in done.stderr and "linked statically" not in done.stderr
            (folder / f"{status}.log").unlink()
    finally:
        subprocess.run(["umount", str(folder)], check=True)
