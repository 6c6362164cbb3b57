"""A process that ended and whose id another process got: that other process is neither read nor changed.

Each test gives the id to another process at the worst moment, and then asks that process what it noticed.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from support import busy
from support.busy import wait_for
from support.following import code, patched
from support.programs import GDBHEAP, PATIENCE, gdbheap
from support.reuse import Swapped, swapped
from support.watches import watching

from gdbheap import _native
from gdbheap.commands.shell.subjects import answer
from gdbheap.commands.surface.registry import COMMANDS
from gdbheap.errors import NoTarget
from gdbheap.host.procfs import ProcessFolder
from gdbheap.machines.machine import X86_64, own_machine
from gdbheap.processes.family import family
from gdbheap.targets import stopping
from gdbheap.targets.chosen_processes import Programs
from gdbheap.targets.cloning import cloned
from gdbheap.targets.following import LocalProcess
from gdbheap.targets.process import FROM_PROCESS, MappingRow, Preparation, Process, stopped
from gdbheap.watching import actions
from gdbheap.watching.triggers import Bounds

ANOTHER = "has ended; another process now has its id"
NO_TARGET = 4
UNNAMED = 64123
TGKILL = 234


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Swapped]:
    """Return a program that loses its id when ``swap`` is called."""
    with swapped(tmp_path) as found:
        yield found
        found.swap()
        found.untouched()


@pytest.fixture
def at_the_stop(target: Swapped, monkeypatch: pytest.MonkeyPatch) -> Swapped:
    """Return a program that loses its id when everything is prepared, just before it is stopped or copied."""
    undisturbed = stopping.undisturbed

    @contextmanager
    def late() -> Iterator[None]:
        target.swap()
        with undisturbed():
            yield

    monkeypatch.setattr(stopping, "undisturbed", late)
    return target


def test_between_preparation_and_stop(target: Swapped) -> None:
    """Check that the process of a preparation is identified: another process with its id at the stop is rejected."""
    preparation = Preparation(target.pid)
    preparation.load_files()
    target.swap()
    with pytest.raises(NoTarget, match=ANOTHER), stopped(target.pid, None, preparation=preparation):
        pass


@pytest.mark.parametrize("copies", [False, True])
def test_stop(at_the_stop: Swapped, copies: bool) -> None:
    """Check that a command does not stop another process that has the id by then."""
    with pytest.raises(NoTarget, match=ANOTHER), stopped(at_the_stop.pid, None, copies):
        pass


def test_clone(at_the_stop: Swapped) -> None:
    """Check that no copy is made if another process has the id."""
    with pytest.raises(NoTarget, match=ANOTHER), cloned(at_the_stop.pid):
        pass


@pytest.mark.parametrize("words", [["stats"], ["trim", "--yes"], ["holes"], ["heap", "--clone"], [""]])
def test_command(at_the_stop: Swapped, words: list[str]) -> None:
    """Check commands that read a process, call into it, or copy it."""
    noun, *options = words
    noun = "" if noun == "heap" else noun
    with pytest.raises(NoTarget, match=ANOTHER):
        answer(COMMANDS[noun], [str(at_the_stop.pid), *options])


def test_tracer_itself(target: Swapped) -> None:
    """Check that the native part uses the given folder of the process, not its id."""
    folder = ProcessFolder(target.pid)
    target.swap()
    for take in (_native.Stop, _native.Frozen):
        with pytest.raises(OSError):
            take(folder, 1.0)
    with _released(_native.Stop(target.pid, 1.0)) as stop:
        assert len(stop.threads) == 1


@contextmanager
def _released(stop: _native.Stop) -> Iterator[_native.Stop]:
    try:
        yield stop
    finally:
        stop.release()


@pytest.mark.parametrize("shared", [False, True])
def test_bytes(target: Swapped, shared: bool) -> None:
    """Check that without a stop, bytes of another process are not taken for those of the target."""
    folder = ProcessFolder(target.pid)
    row = MappingRow(4096, (1 << 47) - 4096, FROM_PROCESS, -1, 0)
    own = _native.Space.for_process(X86_64, folder, [row], None, [], shared)
    target.swap()
    others = _native.Space.for_process(X86_64, target.pid, [row], None, [], shared)
    mapped = int(Path(f"/proc/{target.pid}/maps").read_text().partition("-")[0], 16)
    assert others.read_available(mapped, 64)
    assert own.read_available(mapped, 64) == b""


def test_process_that_nobody_holds(target: Swapped) -> None:
    """Check that files of the process's folder are its own, and that its paths lead to no other process."""
    preparation = Preparation(target.pid)
    folder = preparation.folder
    assert folder.is_there() and folder.is_running() and os.readlink(folder.path("exe")) == preparation.exe
    target.swap()
    assert not folder.is_there() and not folder.is_running()
    for name in ("maps", "pagemap", "mem", "status", "root/etc"):
        assert not os.path.exists(folder.path(name))
    with pytest.raises((NoTarget, OSError)):
        Process(target.pid, preparation=preparation)


@pytest.mark.parametrize("refused", [None, OSError(38, "no such call"), PermissionError(1, "a filter")])
def test_signal(target: Swapped, refused: OSError | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a signal goes to the intended process or to none, also where there are no process descriptors."""
    folder = ProcessFolder(target.pid)
    if refused is not None:
        monkeypatch.setattr(os, "pidfd_open", Mock(side_effect=refused))
    folder.signal(signal.SIGCONT)
    target.swap()
    with pytest.raises(ProcessLookupError):
        folder.signal(signal.SIGCONT)


def test_follower(target: Swapped) -> None:
    """Check that no code is patched in another process."""
    if own_machine() is not X86_64:
        pytest.skip("code is patched on x86-64 only")
    live = LocalProcess(target.pid)
    _ = live.running
    target.swap()
    before = code(target.pid)
    with pytest.raises(NoTarget, match=ANOTHER), live.calls([9, 12], False, False):
        pass
    assert patched(target.pid, before) == 0


def test_family(target: Swapped) -> None:
    """Check that an ended process among several is reported as ended."""
    held = Programs([target.pid, os.getpid()])
    assert target.pid in held.now()
    target.swap()
    assert held.now() == [os.getpid()]
    found = family(held.named(), 1.0, quick=True)
    assert {member.pid: member.note for member in found.rows}[target.pid] == "it has ended"


def test_found_by_name(target: Swapped) -> None:
    """Check that a process that was found by its name is identified by its start time."""
    programs = Programs(name=re.compile(r"^(idle|reborn)"))
    assert target.pid in programs.now()
    target.swap()
    with pytest.raises(NoTarget, match=ANOTHER):
        programs.folder(target.pid)
    assert target.pid in programs.now() and programs.folder(target.pid).is_there()


# Commands that run for a long time.


def swap_behind(target: Swapped, command: int) -> None:
    """Swap the process id while the command does not read the process."""
    os.kill(command, signal.SIGSTOP)
    wait_for(lambda: Path(f"/proc/{command}/stat").read_text().rpartition(")")[2].split()[0] == "T", "it runs on")
    try:
        target.swap()
    finally:
        os.kill(command, signal.SIGCONT)


def watched(target: Swapped, folder: Path, *words: str) -> list[dict[str, Any]]:
    """Return all events of a watch whose process loses its id, until the watch ends by itself."""
    with watching(str(target.pid), *words, f"--output={folder}") as watch:
        watch.event("began")
        swap_behind(target, watch.process.pid)
        out, err = watch.process.communicate(timeout=PATIENCE)
    assert watch.process.returncode == 0, err
    return [json.loads(line) for line in out.splitlines()]


def test_watch(tmp_path: Path, rng: random.Random) -> None:
    """Check that the new process with the id of a watched one is not watched, although it exceeds --rss at once."""
    folder = tmp_path / "kept"
    folder.mkdir()
    with swapped(tmp_path, rng.randrange(48, 64)) as target:
        events = watched(target, folder, "--rss=24M", "--heap")
        target.untouched()
    assert [event["event"] for event in events] == ["ended", "end"] and events[-1]["acted"] == 0
    assert list(folder.iterdir()) == []


def test_no_core_is_written(target: Swapped, tmp_path: Path) -> None:
    """Check that gdbheap verifies which process has the id before it tells gdb to write, because gdb is given only the
    id.
    """
    if shutil.which("gdb") is None:
        pytest.skip("there is no gdb")
    folder, path, done = ProcessFolder(target.pid), tmp_path / "the.core", actions.Done()
    target.swap()
    reason = actions._written_by_gdb(folder, str(path), 60.0, False, done)
    assert reason is not None and ANOTHER in reason and not path.exists()
    # The same holds if the process ends between two checks.
    actions._core(_acting(tmp_path), folder, str(path.with_suffix("")), done)
    assert not done.files and len(done.errors) == 1 and not path.exists()


def _acting(folder: Path) -> actions.Actions:
    return actions.Actions(str(folder), False, False, False, True, (), 1.0, 60.0, lambda heap: "")


def test_core_of_the_right_one(target: Swapped, tmp_path: Path) -> None:
    """Check that a process that still exists is written, and runs on."""
    if shutil.which("gdb") is None:
        pytest.skip("there is no gdb")
    target.swap()
    done = actions.Done()
    actions._core(_acting(tmp_path), ProcessFolder(target.pid), str(tmp_path / "the"), done)
    assert not done.errors and (tmp_path / "the.core").stat().st_size > 1 << 20


def test_who_stands_is_left_standing(tmp_path: Path) -> None:
    """Check that SIGCONT, for a process that a debugger left stopped, does not reach another process that was
    stopped on purpose."""
    with swapped(tmp_path) as target:
        folder = ProcessFolder(target.pid)
        target.swap()
        os.kill(target.pid, signal.SIGSTOP)
        state = Path(f"/proc/{target.pid}/stat")
        wait_for(lambda: state.read_text().rpartition(")")[2].split()[0] == "T", "it does not stand")
        actions._let_run(folder, was_stopped=False)
        assert state.read_text().rpartition(")")[2].split()[0] == "T"


def test_what_is_stopped_runs_on_however_watching_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the process runs on if gdb is ended while it attaches, although its SIGSTOP remains."""

    def ended(gdb: subprocess.Popen[bytes], deadline: float | None) -> str:
        os.kill(folder.pid, signal.SIGSTOP)
        wait_for(lambda: actions._is_stopped(folder), "it does not stand")
        raise KeyboardInterrupt

    monkeypatch.setattr(actions, "_is_attached", ended)
    monkeypatch.setattr(actions, "GDB", ("sh", "-c", "sleep 60"))
    with busy.started("vforked", tmp_path, counters=3) as target:
        folder = ProcessFolder(target.pid)
        lending = lambda: [tid for tid in folder.tasks() if folder.status(tid)["State"].startswith("D")]  # noqa: E731
        wait_for(lambda: bool(lending()), "nobody is in state D")
        with pytest.raises(KeyboardInterrupt):
            actions._core(_acting(tmp_path), folder, str(tmp_path / "the"), actions.Done())
        wait_for(lambda: not actions._is_stopped(folder), "it does not run on")
        # One thread cannot stop yet: it waits for its child.
        (lender,) = lending()
        assert not actions._is_about_to_stop(folder)
        assert ctypes.CDLL(None).syscall(TGKILL, target.pid, lender, signal.SIGSTOP) == 0
        assert actions._is_about_to_stop(folder)
        actions._let_run(folder, was_stopped=False)
        assert not actions._is_about_to_stop(folder) and not actions._is_stopped(folder)


# A tracer like gdb -p PID: it attaches on request and never detaches.
TRACER = f"""
import ctypes, sys, time
sys.stdin.readline()
assert ctypes.CDLL(None).ptrace(16, int(sys.argv[2]), 0, 0) == 0
print({actions.READY.decode()!r}, file=sys.stderr, flush=True)
time.sleep(600)
"""


def test_who_has_the_number_runs_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a process that gets the id before gdb attaches runs on, although gdb is ended before it detaches."""
    is_attached = actions._is_attached

    def ended(gdb: subprocess.Popen[bytes], deadline: float | None) -> str:
        target.swap()
        is_attached(gdb, deadline)
        raise KeyboardInterrupt

    monkeypatch.setattr(actions, "_is_attached", ended)
    monkeypatch.setattr(actions, "GDB", (sys.executable, "-c", TRACER))
    with swapped(tmp_path) as target:
        folder = ProcessFolder(target.pid)
        with pytest.raises(KeyboardInterrupt):
            actions._core(_acting(tmp_path), folder, str(tmp_path / "the"), actions.Done())
        assert not folder.is_there()
        before = target.words()[0]
        wait_for(lambda: target.words()[0] > before + 1, "it does not run on")


@pytest.mark.parametrize("words", [("--every=20ms",), ("--every=20ms", "--stop")])
def test_record(target: Swapped, words: tuple[str, ...]) -> None:
    """Check that a recording ends with its process."""
    command = [str(GDBHEAP), "record", str(target.pid), "-o", "-", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while f"{target.pid}," not in process.stdout.readline():
            assert process.poll() is None
        swap_behind(target, process.pid)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err


@pytest.mark.parametrize("words", [(), ("--clone",)])
def test_session(target: Swapped, words: tuple[str, ...]) -> None:
    """Check a session whose process ended: new questions find no process, cached answers are still given."""
    command = [str(GDBHEAP), "shell", str(target.pid), "--verbose", *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdin is not None and process.stderr is not None
        assert "the copy is kept" in process.stderr.readline()
        target.swap()
        out, err = process.communicate("stats\ntrim --yes\nrefresh\ninfo\n", timeout=PATIENCE)
    assert process.returncode == NO_TARGET and err.count("has ended") >= 3, err
    assert (f"/proc/{target.pid}" in out) is not bool(words)


# The users of the processes that a name selects.


@contextmanager
def named(name: str, folder: Path, users: list[int]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Yield programs with that name, one for each user."""
    path = shutil.which("sleep")
    assert path is not None
    started = []
    try:
        for user in users:
            command = [name, str(10 * PATIENCE)]
            started.append(subprocess.Popen(command, executable=path, user=user, cwd="/"))
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="starting another user's process needs root")


@needs_root
def test_user(tmp_path: Path, rng: random.Random) -> None:
    """Check that --user selects by name only processes that the user started; a name in another user's process does
    not count."""
    name = f"service-{rng.randrange(1 << 32)}"
    with named(name, tmp_path, [0, UNNAMED, 0]) as (ours, theirs, again):
        pattern = re.compile(name)
        assert Programs(name=pattern).now() == sorted([ours.pid, theirs.pid, again.pid])
        assert Programs(name=pattern, user=UNNAMED).now() == [theirs.pid]
        assert Programs([theirs.pid], name=pattern, user=0).now() == sorted([ours.pid, theirs.pid, again.pid])
        for words, expected in ((["--user=0"], {ours.pid, again.pid}), (["--user=root"], {ours.pid, again.pid}),
                                ([f"--user={UNNAMED}"], {theirs.pid})):  # fmt: skip
            done = gdbheap("processes", f"--name={name}", "--quick", "--json", *words)
            assert {row["pid"] for row in json.loads(done.stdout)["rows"]} == expected
        for command in (("processes", "--user=root"), ("record", "--user=0"), ("watch", "--rss=1G", "--user=0")):
            done = gdbheap(*command)
            assert done.returncode == 2 and "--name or --cgroup" in done.stderr
        assert gdbheap("processes", "--name=x", "--user=no such").returncode == 2


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder that other users may enter."""
    with tempfile.TemporaryDirectory() as path:
        os.chmod(path, 0o755)
        yield Path(path)


@needs_root
def test_real_user_counts(folder: Path, rng: random.Random) -> None:
    """Check that another user who runs a setuid program of root is not root for --user."""
    program = folder / f"setuid-{rng.randrange(1 << 32)}"
    shutil.copy(shutil.which("sleep") or "", program)
    program.chmod(0o4755)
    with subprocess.Popen([str(program), str(10 * PATIENCE)], user=UNNAMED, cwd="/") as process:
        try:
            uids = next(line for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if "Uid" in line)
            if uids.split()[1:3] != [str(UNNAMED), "0"]:
                pytest.skip(f"set-uid programs do not run as their owner here ({uids})")
            pattern = re.compile(program.name[:12])
            assert Programs(name=pattern, user=0).now() == []
            assert Programs(name=pattern, user=UNNAMED).now() == [process.pid]
        finally:
            process.kill()


@needs_root
def test_watch_warns_of_users(tmp_path: Path, rng: random.Random) -> None:
    """Check that one line warns if a name selects processes of several users, and that none does if the user is
    given."""
    name = f"service-{rng.randrange(1 << 32)}"
    with named(name, tmp_path, [0, UNNAMED]):
        for words, expected in (([], 1), (["--user=root"], 0)):
            with watching(f"--name={name}", "--rss=1G", *words, cwd=tmp_path) as watch:
                for _ in range(2 - bool(words)):
                    watch.event("began")
                watch.process.send_signal(signal.SIGTERM)
                err = watch.rest()
            assert err.count("--user=USER") == expected, err
            assert not expected or f"2 users ({UNNAMED}, root)" in err


def test_count_is_each_users() -> None:
    """Check that another user's processes of the same name do not use up --count."""
    bounds = Bounds(1, 0.0)
    assert bounds.allow(1, 0, 1000) and not bounds.allow(2, 1, 1000)
    assert bounds.is_used_up({1000}) and not bounds.is_used_up({1000, 0})
    assert bounds.allow(3, 2, 0) and not bounds.allow(3, 3, 0) and bounds.is_used_up({1000, 0})
    again = Bounds(None, 10.0)
    assert again.allow(1, 0, 0) and not again.allow(1, 1, 0)
    # The id may belong to another process by now.
    again.forget(1)
    assert again.allow(1, 2, 0)
