"""``watch --core``: attacks by a target, or by another user, while gdb writes a core of the target."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile
from support.busy import wait_for
from support.programs import build, tracer
from support.users import NOBODY

from gdbheap.heap import Heap
from gdbheap.host.procfs import ProcessFolder
from gdbheap.snapshots.snapshot import take
from gdbheap.watching import actions, core_contents
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
    """Yield a program that waits for a reader of a new pipe, and ends once there is one."""
    os.mkfifo(pipe)
    with subprocess.Popen(["sh", "-c", 'exec echo > "$0"', str(pipe)], stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def acting(folder: Path, most: float | None = 60.0) -> actions.Actions:
    """Return the actions: a core in ``folder``, in at most ``most`` seconds."""
    return actions.Actions(str(folder), False, False, False, True, (), 1.0, most, lambda heap: "")  # type: ignore[arg-type, return-value]


def link_to_symbols(built: Path, program: Path) -> None:
    """Copy an executable. The copy names the file misnamed.debug, in the same folder, for its symbols."""
    if shutil.which("objcopy") is None:
        pytest.skip("there is no objcopy")
    link = program.with_suffix(".link")
    # The name, zeros up to a multiple of four bytes, and the checksum of the file.
    link.write_bytes(b"misnamed.debug\0\0" + b"\1\2\3\4")
    command = ["objcopy", "--remove-section=.note.gnu.build-id", f"--add-section=.gnu_debuglink={link}"]
    subprocess.run([*command, str(built), str(program)], check=True)


@needs_gdb
def test_nothing_is_opened_by_a_name_of_the_target(tmp_path: Path) -> None:
    """Check that gdb opens neither libraries of the link map, absolute, relative or of the "target", nor files of
    symbols."""
    program, folder = tmp_path / "misnamed", tmp_path / "out"
    link_to_symbols(build("misnamed", "-g0", "-Wl,--no-as-needed", "-lm"), program)
    folder.mkdir()
    pipes = [tmp_path / "absolute", folder / "relative", tmp_path / "prefixed", tmp_path / "misnamed.debug"]
    names = [str(pipes[0]), "../relative", f"target:{pipes[2]}"]
    done = actions.Done()
    with ExitStack() as stack:
        writers = [stack.enter_context(writing(pipe)) for pipe in pipes]
        target = stack.enter_context(started([str(program), *names]))
        actions._core(acting(folder), ProcessFolder(target.pid), str(folder / "the"), done)
        assert [writer.poll() for writer in writers] == [None] * len(pipes)
    assert done.errors == [] and list(done.files) == ["core"]


def test_memory_of_the_debugger_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that gdb gets at most half of the free memory, whatever a target makes it read."""
    script = f"grep 'Max address space' /proc/self/limits > {tmp_path}/limits"
    monkeypatch.setattr(actions, "GDB", ("sh", "-c", script))
    with started([str(build("misnamed"))]) as target:
        actions._core(acting(tmp_path), ProcessFolder(target.pid), str(tmp_path / "the"), actions.Done())
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
    """Check that gdbheap's files get free names in a sticky folder in which another user has made files with all
    names that can be guessed."""
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
        done = actions.save(wanted, actions.Request(ProcessFolder(target.pid), "misnamed", Cause("rss", 2, 1)))
    assert done.errors == [] and set(done.files) == {"heap", "snapshot"}
    assert all(Path(path).stat().st_size and Path(path).parent == folder for path in done.files.values())


def state(pid: int) -> str:
    """Return the letter of a process's state."""
    return ProcessFolder(pid).status()["State"][0]


def ended_by_itself(gdb: subprocess.Popen[bytes], commands: str, deadline: float | None) -> str:
    """Let gdb end without writing a core."""
    del commands, deadline
    return gdb.communicate(b"quit 1\n")[1].decode()


def ended_by_time(gdb: subprocess.Popen[bytes], commands: str, deadline: float | None) -> str:
    """Reach the deadline while gdb holds the process."""
    del commands, deadline
    raise subprocess.TimeoutExpired(gdb.args, 0)


@needs_gdb
@pytest.mark.parametrize("end", [ended_by_itself, ended_by_time])
def test_who_is_stopped_meanwhile_stays_stopped(
    end: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that a stop by another process while gdb holds the target lasts, however gdb ends."""

    def stopping(gdb: subprocess.Popen[bytes], commands: str, deadline: float | None) -> str:
        assert tracer(target.pid) == gdb.pid
        target.send_signal(signal.SIGSTOP)
        return end(gdb, commands, deadline)

    monkeypatch.setattr(actions, "_tell", stopping)
    with started([str(build("misnamed"))]) as target:
        actions._core(acting(tmp_path), ProcessFolder(target.pid), str(tmp_path / "the"), actions.Done())
        wait_for(lambda: state(target.pid) in "TS", "it does not come to rest")
        assert state(target.pid) == "T" and tracer(target.pid) == 0


@needs_gdb
@pytest.mark.parametrize("end", [ended_by_itself, ended_by_time])
def test_who_is_not_stopped_runs_on(end: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a process that no other program has stopped runs on, for each way in which gdb can end."""
    monkeypatch.setattr(actions, "_tell", end)
    with started([str(build("misnamed"))]) as target:
        actions._core(acting(tmp_path), ProcessFolder(target.pid), str(tmp_path / "the"), actions.Done())
        wait_for(lambda: state(target.pid) == "S", "it does not run on")


def status_of(pid: int, *names: str) -> list[str]:
    """Return the kernel's values of a process under these names."""
    status = ProcessFolder(pid).status()
    return [status[name] for name in names]


def segments_of(core: str) -> dict[int, tuple[int, bytes]]:
    """Return the size in memory of each segment of a core, and its first bytes in the file, by address."""
    with open(core, "rb") as stream:
        loads = [one for one in ELFFile(stream).iter_segments() if one["p_type"] == "PT_LOAD"]
        found = {}
        for one in loads:
            stream.seek(one["p_offset"])
            found[one["p_vaddr"]] = one["p_memsz"], stream.read(min(one["p_filesz"], 64 << 10))
    return found


@needs_gdb
def test_no_memory_is_brought_into_the_process(tmp_path: Path, rng: random.Random) -> None:
    """Check that no part of partly resident shared memory is read or written, nor of reserved memory; the core has
    the process's own memory."""
    mib = rng.randrange(300, 900)
    with started([str(build("reserving")), str(mib)]) as target:
        assert target.stdout is not None
        sparse, whole, untouched, space, own = (int(word, 16) for word in target.stdout.readline().split())
        before = status_of(target.pid, "RssShmem", "VmPTE")
        done = actions.Done()
        actions._core(acting(tmp_path), ProcessFolder(target.pid), str(tmp_path / "the"), done)
        shared, tables, resident = status_of(target.pid, "RssShmem", "VmPTE", "VmRSS")
        # Reading one of them would take a page of page tables for each 2 MiB.
        assert shared == before[0] and int(tables.split()[0]) < int(before[1].split()[0]) + 2 * mib
    assert done.errors == []
    core = done.files["core"]
    found = segments_of(core)
    assert found[sparse] == (mib << 20, b"")
    assert found[whole][1] == b"w" * (64 << 10)
    assert any(found[start][1][own - start :][:1] == b"o" for start in found if start <= own)
    # Notes, and mappings of files with some resident pages, are written whole.
    assert os.stat(core).st_blocks * 512 < (int(resident.split()[0]) << 10) + (8 << 20) < mib << 20
    assert all(not any(found[place][1]) for place in (untouched, space) if place in found)


def test_a_disk_without_room_is_found_before_gdb_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the required room is the memory that gdb may read, with its notes."""
    monkeypatch.setattr(actions, "_written_by_gdb", lambda *arguments: pytest.fail("gdb was started"))
    with started([str(build("reserving")), "64"]) as target:
        needed = actions.CORE_NOTES_BYTES + actions.find_contents(ProcessFolder(target.pid)).bytes
        full = os.statvfs_result((4096, 4096, 0, 0, needed // 4096 - 1, 0, 0, 0, 0, 255))
        monkeypatch.setattr(os, "statvfs", lambda path: full)
        done = actions.Done()
        actions._core(acting(tmp_path), ProcessFolder(target.pid), str(tmp_path / "the"), done)
    assert len(done.errors) == 1 and "has room for" in done.errors[0]


def test_page_tables_have_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that gdb is not started for a large and mostly untouched memory if memory is short."""
    monkeypatch.setattr(actions, "_started_gdb", lambda *arguments: pytest.fail("gdb was started"))
    monkeypatch.setattr(core_contents, "memory_left", lambda pid: 8 << 20)
    monkeypatch.setattr(actions, "_check_room", lambda contents, folder: contents)
    # 8 bytes of page tables for each page of 4 KiB: more than half of the free memory.
    with started([str(build("reserving")), "64", str((4 << 10) // 8 * 5)]) as target:
        done = actions.Done()
        actions._core(acting(tmp_path), ProcessFolder(target.pid), str(tmp_path / "the"), done)
    assert len(done.errors) == 1 and "page tables" in done.errors[0]


def test_files_of_the_debugger_are_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that nobody else may read the files that gdb writes, whatever the umask is."""
    monkeypatch.setattr(actions, "GDB", ("sh", "-c", f"umask > {tmp_path}/umask"))
    before = os.umask(0)
    try:
        with started([str(build("misnamed"))]) as target:
            actions._core(acting(tmp_path), ProcessFolder(target.pid), str(tmp_path / "the"), actions.Done())
    finally:
        os.umask(before)
    assert int((tmp_path / "umask").read_text(), 8) == 0o077


def test_a_debugger_that_hears_nothing_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a gdb that waits in the kernel while it holds the process is killed at once, and that the process
    runs on."""
    sent: list[int] = []
    kill = os.killpg

    def killing(group: int, number: int) -> None:
        sent.append(number)
        kill(group, number)

    monkeypatch.setattr(actions, "GDB", (str(build("deaf_debugger")),))
    monkeypatch.setattr(actions, "find_program", lambda name: name)
    monkeypatch.setattr(os, "killpg", killing)
    with started([str(build("misnamed"))]) as target:
        done = actions.Done()
        actions._core(acting(tmp_path, 0.5), ProcessFolder(target.pid), str(tmp_path / "the"), done)
        assert sent[0] == signal.SIGKILL and signal.SIGTERM not in sent
        wait_for(lambda: state(target.pid) == "S" and tracer(target.pid) == 0, "it does not run on")
    assert len(done.errors) == 1 and "--max-stop" in done.errors[0]
