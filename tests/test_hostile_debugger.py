"""``watch --core``: what a target, or another user, does while gdb writes a core of it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from support.busy import wait_for
from support.programs import build, tracer
from support.users import NOBODY

from gdbheap.heap import Heap
from gdbheap.history.snapshot import take
from gdbheap.target.procfs import ProcessFolder
from gdbheap.watching import actions
from gdbheap.watching.triggers import Cause

needs_gdb = pytest.mark.skipif(shutil.which("gdb") is None, reason="there is no gdb")


@contextmanager
def started(command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a program that has printed its first line; it is killed at the end."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            yield process
        finally:
            process.kill()


@contextmanager
def writing(pipe: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a program that waits for a reader of a new pipe, and ends when there is one."""
    os.mkfifo(pipe)
    with subprocess.Popen(["sh", "-c", 'exec echo > "$0"', str(pipe)], stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def acting(folder: Path, most: float | None = 60.0) -> actions.Actions:
    """Return what is to be done: a core in ``folder``, in at most ``most`` seconds."""
    return actions.Actions(str(folder), False, False, False, True, (), 1.0, most, lambda heap: "")  # type: ignore[arg-type, return-value]


def link_to_symbols(built: Path, program: Path) -> None:
    """Copy an executable; the copy says that its symbols are in a file misnamed.debug beside it."""
    if shutil.which("objcopy") is None:
        pytest.skip("there is no objcopy")
    link = program.with_suffix(".link")
    # The name, zeros up to a multiple of four bytes, and the checksum of the file.
    link.write_bytes(b"misnamed.debug\0\0" + b"\1\2\3\4")
    command = ["objcopy", "--remove-section=.note.gnu.build-id", f"--add-section=.gnu_debuglink={link}"]
    subprocess.run([*command, str(built), str(program)], check=True)


@needs_gdb
def test_nothing_is_opened_by_a_name_of_the_target(tmp_path: Path) -> None:
    """gdb opens neither libraries of the link map, absolute, relative or of the "target", nor files of symbols."""
    program, folder = tmp_path / "misnamed", tmp_path / "out"
    link_to_symbols(build("misnamed", "-g0", "-Wl,--no-as-needed", "-lm"), program)
    folder.mkdir()
    pipes = [tmp_path / "absolute", folder / "relative", tmp_path / "prefixed", tmp_path / "misnamed.debug"]
    names = [str(pipes[0]), "../relative", f"target:{pipes[2]}"]
    done = actions.Done()
    with ExitStack() as stack:
        writers = [stack.enter_context(writing(pipe)) for pipe in pipes]
        target = stack.enter_context(started([str(program), *names]))
        actions._core(acting(folder), ProcessFolder(target.pid), str(folder / "the.core"), done)
        assert [writer.poll() for writer in writers] == [None] * len(pipes)
    assert done.errors == [] and list(done.files) == ["core"]


def test_memory_of_the_debugger_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a target has gdb read, gdb gets at most half of the memory that is left."""
    script = f"grep 'Max address space' /proc/self/limits > {tmp_path}/limits"
    monkeypatch.setattr(actions, "GDB", ("sh", "-c", script))
    with started([str(build("misnamed"))]) as target:
        actions._core(acting(tmp_path), ProcessFolder(target.pid), str(tmp_path / "the.core"), actions.Done())
    soft = (tmp_path / "limits").read_text().split()[3]
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert soft.isdigit() and int(soft) <= max(total // 2, 512 << 20)


def plant(folder: Path, stems: list[str]) -> None:
    """Make files of another user under these names, with each ending."""
    for name in (f"{stem}.{ending}" for stem in stems for ending in ("json", "heap", "core")):
        with suppress(FileExistsError):
            os.close(os.open(folder / name, os.O_CREAT | os.O_EXCL))
            os.chown(folder / name, NOBODY, NOBODY)


def test_files_get_names_that_nobody_plants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a sticky folder another user makes files of the names that ours could have, also of those that ours show."""
    if os.getuid() != 0:
        pytest.skip("needs root to make files of another user")
    folder = tmp_path / "sticky"
    folder.mkdir()
    folder.chmod(0o1777)

    def planting(process: Any) -> Heap:
        moments = [time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(began + second)) for second in range(60)]
        plant(folder, [f"misnamed-{target.pid}-{moment}{number}" for moment in moments for number in ("", "-2")])
        return Heap(process)

    def copying(*arguments: Any) -> Any:
        plant(folder, [path.stem for path in folder.iterdir()])
        return take(*arguments)

    monkeypatch.setattr(actions, "Heap", planting)
    monkeypatch.setattr(actions, "take", copying)
    wanted = actions.Actions(str(folder), True, False, True, False, (), 1.0, 60.0, lambda heap: ("{}", None))  # type: ignore[arg-type, return-value]
    began = time.time()
    with started([str(build("misnamed"))]) as target:
        done = actions.act(wanted, ProcessFolder(target.pid), "misnamed", Cause("rss", 2, 1))
    assert done.errors == [] and set(done.files) == {"heap", "snapshot"}
    assert all(Path(path).stat().st_size and Path(path).parent == folder for path in done.files.values())


def state(pid: int) -> str:
    """Return the letter of a process's state."""
    return ProcessFolder(pid).status()["State"][0]


def ended_by_itself(gdb: subprocess.Popen[bytes], commands: str, deadline: float | None) -> str:
    """Write no core; gdb ends by itself."""
    del commands, deadline
    return gdb.communicate(b"quit 1\n")[1].decode()


def ended_by_time(gdb: subprocess.Popen[bytes], commands: str, deadline: float | None) -> str:
    """Find that the time is up, while gdb holds the process."""
    del commands, deadline
    raise subprocess.TimeoutExpired(gdb.args, 0)


@needs_gdb
@pytest.mark.parametrize("end", [ended_by_itself, ended_by_time])
def test_who_is_stopped_meanwhile_stays_stopped(
    end: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody stops the process while gdb holds it: whatever ends gdb, that stop counts."""

    def stopping(gdb: subprocess.Popen[bytes], commands: str, deadline: float | None) -> str:
        assert tracer(target.pid) == gdb.pid
        target.send_signal(signal.SIGSTOP)
        return end(gdb, commands, deadline)

    monkeypatch.setattr(actions, "_tell", stopping)
    with started([str(build("misnamed"))]) as target:
        actions._core(acting(tmp_path), ProcessFolder(target.pid), str(tmp_path / "the.core"), actions.Done())
        wait_for(lambda: state(target.pid) in "TS", "it does not come to rest")
        assert state(target.pid) == "T" and tracer(target.pid) == 0


@needs_gdb
@pytest.mark.parametrize("end", [ended_by_itself, ended_by_time])
def test_who_is_not_stopped_runs_on(end: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else stops the process: whatever ends gdb, it runs on."""
    monkeypatch.setattr(actions, "_tell", end)
    with started([str(build("misnamed"))]) as target:
        actions._core(acting(tmp_path), ProcessFolder(target.pid), str(tmp_path / "the.core"), actions.Done())
        wait_for(lambda: state(target.pid) == "S", "it does not run on")
