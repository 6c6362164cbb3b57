"""A program that takes a snapshot of itself: without tracing, without rights, and without side effects."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.control_groups import limited_group
from support.programs import PATIENCE, SOURCES, gdbheap, interpreters, running
from support.users import NOBODY, copy_packages

import gdbheap as library
from gdbheap._native import OwnCopy

RELEASES = ("3.9", "3.13")
PACKAGES = str(Path(library.__file__).parent.parent)
WORDS = [b"/bin/true"]


@pytest.fixture(scope="module")
def packages() -> Iterator[str]:
    """Yield a folder with gdbheap and its dependencies, which everybody may read."""
    with tempfile.TemporaryDirectory() as folder:
        copy_packages(Path(folder))
        yield folder


def told(stderr: str) -> dict[str, Any]:
    """Return the program's report about its own snapshot."""
    found: dict[str, Any] = json.loads(stderr.strip().rpartition("\n")[2])
    return found


def command(python: str, packages: str, path: Path, *how: str) -> list[str]:
    """Return the command that starts the program."""
    return [python, "-I", "-S", str(SOURCES / "looks_inside.py"), packages, str(path), *how]


@pytest.mark.parametrize("release", RELEASES)
def test_snapshot_from_inside(release: str, packages: str, tmp_path: Path) -> None:
    """Check a snapshot from a handler while a lock is held: the file is of this program and equals one from outside."""
    python = next((one.executable for one in interpreters(release)), None)
    if python is None:
        pytest.skip(f"no CPython {release}")
    path = tmp_path / "now.heap"
    with running(command(python, packages, path, "signal"), tmp_path) as target:
        found = told(target.stderr)
        assert found["size"] == path.stat().st_size and found["pid"] == target.pid, found
        assert found["children"] == 0 and found["left"] is None and found["paused"] < found["seconds"]
        with library.open(path) as inside, library.open(target.pid) as outside:
            assert inside.pid == target.pid and inside.target["start_time"] == outside.target["start_time"]
            (held,) = [row for row in inside.holders() if row.path == "cache"]
            (same,) = [row for row in outside.holders() if row.path == "cache"]
            assert (held.what, held.count, held.bytes) == (same.what, same.count, same.bytes)
            assert inside.rss and outside.rss and abs(inside.rss - outside.rss) < 4 << 20
            assert any("read itself from inside" in warning for warning in inside.warnings)
            changed = library.diff(inside, outside)
            assert changed.same_process
        assert gdbheap("diff", str(path), str(target.pid)).returncode in (0, 1)


@pytest.mark.parametrize("how", [(), ("undumpable",), ("filtered",), ("undumpable", "filtered", "report")])
def test_without_rights(how: tuple[str, ...], packages: str, tmp_path: Path) -> None:
    """Check that an unprivileged program that is not dumpable and may not trace can take a snapshot of itself."""
    if os.getuid() != 0:
        pytest.skip("needs root to become another user")
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, NOBODY, NOBODY)
        path = Path(folder) / ("now.html" if "report" in how else "now.heap")
        words = command("/usr/bin/python3", packages, path, *how)
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE, cwd="/",
            preexec_fn=become_nobody,
        )  # fmt: skip
        found = told(done.stderr)
        assert found.get("size") == path.stat().st_size and found["children"] == 0 and found["left"] is None, found
        if "report" in how:
            assert b"<html" in path.read_bytes()
            return
        with library.open(path) as heap:
            assert "cache" in [row.path for row in heap.holders()]
            unknown = any("which pages of files" in warning for warning in heap.warnings)
            assert unknown == ("undumpable" in how)


def become_nobody() -> None:
    """Drop all rights."""
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def own_copies() -> list[int]:
    """Return the child processes, including zombies and copies that no other process collects."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # a thread may end meanwhile
            found += [int(word) for word in (task / "children").read_text().split()]
    return found


def test_hundreds_of_copies_under_load() -> None:
    """Check threads that allocate, hold locks and start children: no deadlock, no lost signal, no zombie."""
    before, over = own_copies(), threading.Event()
    heard, wanted, started = [0], [0], [0]
    signal.signal(signal.SIGUSR2, lambda number, frame: heard.__setitem__(0, heard[0] + 1))
    lock = threading.Lock()

    def allocates() -> None:
        while not over.is_set():
            with lock:
                bytearray(200_000)

    def starts() -> None:
        while not over.is_set():
            assert subprocess.run(["/bin/true"]).returncode == 0
            started[0] += 1

    threads = [threading.Thread(target=one) for one in (allocates, allocates, starts)]
    descriptors = len(os.listdir("/proc/self/fd"))
    try:
        for thread in threads:
            thread.start()
        for _ in range(300):
            copy = OwnCopy(WORDS, [])
            os.kill(os.getpid(), signal.SIGUSR2)
            wanted[0] += 1
            ended = copy.wait(PATIENCE)
            assert ended == (0, b"")
            while heard[0] < wanted[0]:
                time.sleep(0.001)
    finally:
        over.set()
        for thread in threads:
            thread.join()
        signal.signal(signal.SIGUSR2, signal.SIG_DFL)
    assert own_copies() == before and started[0]
    assert len(os.listdir("/proc/self/fd")) <= descriptors


def test_what_the_program_gets() -> None:
    """Check that the reader gets its arguments and environment, three descriptors and the copy's memory, and that no
    signal is ignored or blocked."""
    code = (
        "import os, sys, signal; memory = os.pread(3, 5, int(sys.argv[1]));"
        "default = signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL;"
        "first = open(f'/proc/{os.getppid()}/oom_score_adj').read().strip();"
        "print(memory, sorted(os.listdir('/proc/self/fd')), os.environ.get('A'), os.getsid(0) == os.getpid(),"
        " signal.pthread_sigmask(signal.SIG_BLOCK, []), default, first)"
    )
    secret = bytes(reversed(b"olleh"))
    address = id(secret) + bytes.__basicsize__ - 1
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        words = [sys.executable, "-I", "-S", "-c", code, str(address)]
        ended = OwnCopy([word.encode() for word in words], [b"A=b"]).wait(PATIENCE)
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    assert ended is not None and ended[0] == 0, ended
    # The last descriptor belongs to the listing of the folder.
    wanted = f"{secret!r} ['0', '1', '2', '3', '4'] b True set() True 1000"
    assert ended[1].decode().split("\n")[0] == wanted


@pytest.mark.parametrize(
    "words", [[b"/nonexistent"], [b"/bin/sh", b"-c", b"kill -9 $$"], [b"/bin/sh", b"-c", b"exit 7"]]
)
def test_ends_that_are_told(words: list[bytes]) -> None:
    """Check readers that cannot be started, are killed, or fail."""
    ended = OwnCopy(words, []).wait(PATIENCE)
    assert ended is not None and ended[0] in (122, 128 + 9, 7)
    assert own_copies() == [pid for pid in own_copies() if Path(f"/proc/{pid}").exists()]


def test_time_is_up(tmp_path: Path) -> None:
    """Check that a copy that is not read in time is ended with its reader and collected, and that a second wait
    reports nothing."""
    before, copy = own_copies(), OwnCopy([b"/bin/sleep", b"1000"], [])
    assert copy.wait(0.05) is None and copy.wait(0.05) is None
    assert own_copies() == before
    copy = OwnCopy([b"/bin/sleep", b"1000"], [])
    del copy
    assert own_copies() == before
    with pytest.raises(library.GdbheapError, match="was ended: allow more time"):
        library.snapshot(tmp_path / "late.heap", max_time=0)
    assert own_copies() == before and not list(tmp_path.iterdir())


def test_ends_with_its_program(rng: random.Random, tmp_path: Path) -> None:
    """Check that a program that is killed at any moment leaves neither a copy nor a reader, and that its file is not
    written later."""
    code = (
        "import sys; sys.path.append(sys.argv[1]); import gdbheap; kept = [[n] for n in range(1_000_000)];"
        "print('begun', flush=True); gdbheap.snapshot(sys.argv[2], owners=True); print('written', flush=True)"
    )
    killed = 0
    while killed < 3:
        file = tmp_path / f"{rng.randrange(1 << 32)}.heap"
        with subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", code, PACKAGES, str(file)], stdout=subprocess.PIPE, text=True
        ) as program:
            assert program.stdout is not None and program.stdout.readline() == "begun\n"
            time.sleep(rng.choice([0.0, 0.01, 0.03, 0.1, 0.3]))
            program.kill()
            killed += not (told := program.stdout.read())
        deadline = time.monotonic() + PATIENCE
        while left := _with_word(file.name):
            assert time.monotonic() < deadline, left
            time.sleep(0.01)
        assert not file.exists() or "written" in told


def test_a_reader_ends_with_its_copy(rng: random.Random) -> None:
    """Check that a killed program leaves no reader: the reader ends together with the program.

    A reader of root gains capabilities when it starts, and would otherwise continue.
    """
    reader = (
        "import os, sys, time; sys.path.append(sys.argv[1]); from gdbheap._native import end_with_parent;"
        "end_with_parent(int(sys.argv[-1]), 9) and time.sleep(int(sys.argv[2]))"
    )
    code = (
        "import sys; sys.path.append(sys.argv[1]); from gdbheap._native import OwnCopy;"
        "words = [sys.executable, '-I', '-S', '-c', sys.argv[3], *sys.argv[1:3]];"
        "copy = OwnCopy([word.encode() for word in words], []);"
        "print(flush=True); copy.wait()"
    )
    for _ in range(10):
        seconds = str(rng.randrange(10**8, 10**9))
        command = [sys.executable, "-I", "-S", "-c", code, PACKAGES, seconds, reader]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None
            program.stdout.readline()
            time.sleep(rng.choice([0.0, 0.001, 0.01, 0.03, 0.1]))
            program.kill()
        deadline = time.monotonic() + PATIENCE
        while left := _with_word(seconds):
            assert time.monotonic() < deadline, left
            time.sleep(0.01)


def _with_word(word: str) -> list[int]:
    """Return the processes with this word in their command line: copies have the program's."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if word.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


def test_closed_streams(tmp_path: Path) -> None:
    """Check that a program without standard streams can take a snapshot too."""
    file = tmp_path / "x.heap"
    code = (
        "import os, sys; sys.path.append(sys.argv[1]); import gdbheap\n"
        "[os.close(number) for number in range(3)]; gdbheap.snapshot(sys.argv[2])"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code, PACKAGES, str(file)], timeout=PATIENCE)
    assert done.returncode == 0 and file.stat().st_size > 1000


def test_what_cannot_be_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check one line with the next step for a wrong file, no interpreter, no room, and a copy that is already read."""
    file = tmp_path / "x.heap"
    with pytest.raises(library.UsageError):
        library.snapshot(tmp_path / "no" / "x.heap")
    with pytest.raises(library.Unsupported, match="no interpreter for reading the copy was found"):
        library.snapshot(file, python="/nonexistent")
    with pytest.raises(library.GdbheapError, match="could not be read"):
        library.snapshot(file, python="/bin/true")
    from gdbheap.api import inside
    from gdbheap.host import headroom

    monkeypatch.setattr(headroom, "memory_left", lambda process: 1 << 20)
    with pytest.raises(library.Unsupported, match="only 1 MiB are left"):
        library.snapshot(file)
    monkeypatch.undo()
    monkeypatch.setitem(inside._busy, os.getpid(), object())
    with pytest.raises(library.GdbheapError, match="read now"):
        library.snapshot(file)
    assert not file.exists()


def test_little_address_space(tmp_path: Path) -> None:
    """Check that the file is written, or one line says why not, if the reader has only the program's limit of
    memory."""
    code = (
        "import sys, resource; sys.path.append(sys.argv[1]); import gdbheap; from gdbheap import snapshot\n"
        "resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[3]) << 20,) * 2)\n"
        "try: print('size', snapshot(sys.argv[2]).size)\n"
        "except gdbheap.GdbheapError as error: print('error', error)\n"
    )
    for mebibytes in (40, 4000):
        words = [sys.executable, "-I", "-S", "-c", code, PACKAGES, str(tmp_path / "x.heap"), str(mebibytes)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0 and done.stdout.startswith(("error ", "size ")), done.stderr
        assert len(done.stdout.splitlines()) == 1


# argv: the packages, a file, bytes. Waits for a line, then takes a snapshot while it writes to all its memory.
WRITES = """
import sys, threading, time
sys.path.append(sys.argv[1])
import gdbheap
from gdbheap import snapshot
kept = bytearray(int(sys.argv[3]))
kept[::4096] = b"x" * len(kept[::4096])
over = False
def write():
    while not over:
        kept[::4096] = b"y" * len(kept[::4096])
        time.sleep(0.01)
thread = threading.Thread(target=write)
print("ready", flush=True)
sys.stdin.readline()
thread.start()
try:
    print("size", snapshot(sys.argv[2]).size, flush=True)
except gdbheap.GdbheapError as error:
    print("error", error, flush=True)
over = True
thread.join()
print(kept[-4096], flush=True)
"""


def test_where_memory_runs_out(rng: random.Random, tmp_path: Path) -> None:
    """Check a control group without room for the pages that the program writes meanwhile: the copy or its reader is
    killed first, and the program runs on with the file or one line."""
    with limited_group(1 << 30, rng) as group:
        words = [sys.executable, "-I", "-S", "-c", WRITES, PACKAGES, str(tmp_path / "x.heap"), str(200 << 20)]
        with subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: group.take_in(os.getpid()),
        ) as target:
            assert target.stdout is not None and target.stdout.readline() == "ready\n"
            group.leave(80 << 20)
            said, _ = target.communicate("\n", timeout=PATIENCE)
        first, last = said.splitlines()
        assert target.returncode == 0 and last == str(ord("y")) and first.startswith(("size ", "error ")), said
        assert group.kills or first.startswith("size "), said
