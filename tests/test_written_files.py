"""Files that gdbheap writes while another user plants names: no link is followed, no file of others is replaced, and
no pipe of theirs is waited for."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import random
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.attackers import STRANGER, as_stranger, attacking, needs_root, place, planted
from support.busy import wait_for
from support.programs import (
    GDBHEAP,
    PATIENCE,
    Running,
    c_program,
    has_mount_namespaces,
    plain_environment,
    running,
)
from support.recorded import recorder_environment

from gdbheap import files
from gdbheap.errors import UsageError
from gdbheap.files.folders import HeldFolder, hold
from gdbheap.sampling.sample import Series
from gdbheap.sampling.series import SeriesFile
from gdbheap.tracing.log import LogWriter
from gdbheap.tracing.stack_settings import STACKS_ENVIRONMENT
from gdbheap.tracing.traced_command import finish

VICTIM = b"what must not change\n"
# PR_SET_DUMPABLE (linux/prctl.h).
SET_DUMPABLE = 4


def series_file(path: str) -> None:
    """Write a series that has only its beginning."""
    SeriesFile(path, Series(1.0, "1", 1.0, False, "host", "boot")).close()


def folder(path: str) -> None:
    """Write a folder with one file."""
    with files.replacing_folder(path, lambda _name: True) as inside:
        Path(inside, "one").write_bytes(b"new")


def moved(path: str) -> None:
    """Let a file of a private folder take its place, as for a core."""
    with files.working_folder(os.path.dirname(path)) as inside:
        Path(inside, "core").write_bytes(b"new")
        files.settle(f"{inside}/core", path)


WRITERS: dict[str, Callable[[str], object]] = {
    "bytes": lambda path: files.write_bytes(path, b"new"),
    "series": series_file,
    "log": lambda path: LogWriter(path).close(),
    "continued log": lambda path: LogWriter(path, 0).close(),
    "moved": moved,
    "folder": folder,
    "history": lambda path: os.close(files.open_to_append(path, make=True)),
    "check": files.check_writable,
}
NEW = [name for name in WRITERS if name not in ("continued log", "check")]


@pytest.fixture
def shared() -> Iterator[Path]:
    """Yield a folder like /tmp, with a file of root's that nobody else may write to."""
    with place(0o1777) as found:
        (found / "victim").write_bytes(VICTIM)
        yield found


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Yield a small program."""
    with running(c_program("steps", 5, 1), tmp_path_factory.mktemp("target")) as found:
        yield found


def plant(kind: str, path: Path, victim: Path) -> None:
    """Plant a name as the stranger; where links are protected, the test plants it for him."""
    if kind == "symlink":
        planted(lambda: os.symlink(victim, path))
    elif kind == "dangling":
        planted(lambda: os.symlink(path.parent / "made", path))
    elif kind == "device":
        planted(lambda: os.symlink("/dev/zero", path))
    elif kind == "pipe":
        planted(lambda: os.mkfifo(path, 0o666))
    elif kind == "hard link":
        os.link(victim, path)
    elif kind == "file":
        planted(lambda: path.write_bytes(b"his"))
    else:
        planted(lambda: path.mkdir(0o777))


@needs_root
@pytest.mark.parametrize("kind", ["symlink", "dangling", "device", "pipe", "hard link", "file", "folder"])
@pytest.mark.parametrize("writer", WRITERS)
def test_planted(writer: str, kind: str, shared: Path) -> None:
    """Check that any existing file is refused with one line, and stays, and that a pipe without a reader is not
    waited for."""
    path = shared / "out.csv"
    plant(kind, path, shared / "victim")
    before = os.lstat(path)
    with pytest.raises(UsageError, match="cannot be written"):
        WRITERS[writer](str(path))
    after = os.lstat(path)
    assert (before.st_ino, before.st_mode, before.st_uid) == (after.st_ino, after.st_mode, after.st_uid)
    assert (shared / "victim").read_bytes() == VICTIM and sorted(os.listdir(shared)) == ["out.csv", "victim"]


@needs_root
@pytest.mark.parametrize("writer", NEW)
def test_planted_temporary_names(writer: str, shared: Path) -> None:
    """Check that no predictable name is used in between: neither those of earlier releases nor those seen last time."""
    path, victim, pid = shared / "out.csv", shared / "victim", os.getpid()
    names = [f"out.csv.{pid}.{end}" for end in ("part", "older", "tmp")] + [".out.csv.part", "out.csv.part", "out.csv~"]
    planted(lambda: [os.symlink(victim, shared / name) for name in names])
    WRITERS[writer](str(path))
    assert victim.read_bytes() == VICTIM and path.exists() and not path.is_symlink()
    assert sorted(os.listdir(shared)) == sorted([*names, "out.csv", "victim"])


@needs_root
@pytest.mark.parametrize("mode, owner", [(0o777, 0), (0o775, 0), (0o1777, STRANGER), (0o755, STRANGER), (0o2770, 0)])
@pytest.mark.parametrize("writer", WRITERS)
def test_unsafe_folders(writer: str, mode: int, owner: int) -> None:
    """Check that a folder in which others may plant names is refused, also behind a link, and that nothing is left
    there."""
    with place(mode, owner) as unsafe, place(0o755) as safe:
        os.chown(unsafe, owner, STRANGER)
        os.chmod(unsafe, mode)
        (safe / "link").symlink_to(unsafe)
        for path in (unsafe / "out.csv", safe / "link" / "out.csv"):
            with pytest.raises(UsageError) as refused:
                WRITERS[writer](str(path))
            assert str(unsafe) in str(refused.value) and "\n" not in str(refused.value)
        assert os.listdir(unsafe) == []


@needs_root
@pytest.mark.parametrize("writer", NEW)
def test_links_on_the_way(writer: str, shared: Path) -> None:
    """Check that another user's link to a folder of root's is not followed, and that root's own is."""
    with place(0o700) as private:
        planted(lambda: os.symlink(private, shared / "his"))
        os.symlink(private, shared / "ours")
        with pytest.raises(UsageError, match="a link that belongs to uid 54321"):
            WRITERS[writer](str(shared / "his" / "out.csv"))
        assert os.listdir(private) == []
        WRITERS[writer](str(shared / "ours" / "out.csv"))
        assert os.listdir(private) == ["out.csv"]


@pytest.mark.cases(4)
@needs_root
@pytest.mark.parametrize("who", ["nobody", "sudo's user"])
@pytest.mark.parametrize("writer", ["bytes", "series", "moved", "folder"])
def test_race(who: str, writer: str, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check 200 files while names are swapped all the time: each is root's and complete or refused, and no victim
    changes. Sudo's user may rename root's files in his own folder."""
    mode, owner = (0o1777, 0) if who == "nobody" else (0o755, STRANGER)
    if owner:
        monkeypatch.setenv("SUDO_UID", str(STRANGER))
    with place(mode, owner) as raced, place(0o700) as private:
        victim, out, seed = private / "victim", raced / "out.csv", rng.random()
        victim.write_bytes(VICTIM)
        (private / "folder").mkdir()
        private.chmod(0o711)
        swap = Swapper(raced, [victim, private / "folder", Path("/dev/zero")], seed)
        written = 0
        with attacking(swap.swap):
            for _ in range(50 if writer == "folder" else 200):
                with contextlib.suppress(UsageError):
                    WRITERS[writer](str(out))
                    written += 1
                with contextlib.suppress(OSError):
                    shutil.rmtree(out) if stat.S_ISDIR(os.lstat(out).st_mode) else os.unlink(out)
        assert victim.read_bytes() == VICTIM and sorted(os.listdir(private)) == ["folder", "victim"]
        assert os.listdir(private / "folder") == []


class Swapper:
    """The stranger's actions: he makes, renames and removes names, both guessed and visible ones."""

    def __init__(self, raced: Path, goals: list[Path], seed: float) -> None:
        self.raced, self.goals, self.random = raced, goals, random.Random(seed)

    def swap(self) -> None:
        """Do one action."""
        seen = [name for name in os.listdir(self.raced) if name.startswith(".gdbheap")]
        path = self.raced / self.random.choice([*seen, "out.csv", "out.csv"])
        does = self.random.choice(("link", "hard", "pipe", "unlink", "away", "over", "folder"))
        if does == "link":
            os.symlink(self.random.choice(self.goals), path)
        elif does == "hard":
            os.link(self.goals[0], path)
        elif does == "pipe":
            os.mkfifo(path)
        elif does == "unlink":
            os.unlink(path)
        elif does == "folder":
            os.mkdir(path)
        elif does == "away":
            os.rename(path, self.raced / "away")
        else:
            beside = self.raced / "his"
            os.symlink(self.random.choice(self.goals), beside)
            os.rename(beside, path)


def test_a_working_folder_that_is_moved_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a folder that is renamed between its making and its opening gives one line and no file."""
    make = os.mkdir

    def make_and_move(name: str, mode: int, dir_fd: int) -> None:
        make(name, mode, dir_fd=dir_fd)
        os.rename(name, "away", src_dir_fd=dir_fd, dst_dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", make_and_move)
    with pytest.raises(UsageError, match="cannot be written: No such file"):
        moved(str(tmp_path / "out"))
    assert os.listdir(tmp_path) == ["away"] and os.listdir(tmp_path / "away") == []


@needs_root
def test_sudo_user(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that root writes into the home of the user whom sudo names, and into no other's, never through his links
    nor over his files."""
    with place(0o755, STRANGER) as home:
        monkeypatch.setenv("SUDO_UID", str(STRANGER + 1))
        with pytest.raises(UsageError, match="belongs to uid 54321"):
            files.write_text(str(home / "a"), "new")
        monkeypatch.setenv("SUDO_UID", str(STRANGER))
        files.write_text(str(home / "a"), "new")
        assert (home / "a").stat().st_uid == 0
        links = {"link": shared, "end": shared / "victim", "nowhere": shared / "new"}
        planted(lambda: [(home / "b").write_text("his"), *(os.symlink(to, home / name) for name, to in links.items())])
        for path in (home / "b", home / "link" / "c", home / "end", home / "nowhere"):
            with pytest.raises(UsageError, match="belongs to uid 54321"):
                files.write_text(str(path), "new")
        folder(str(home / "tables"))
        assert (home / "tables" / "one").read_bytes() == b"new" and (home / "b").read_text() == "his"


def test_private_group(tmp_path: Path) -> None:
    """Check that a folder that the owner's own group may write to counts as private if nobody else is in the group."""
    # On some machines accounts of the system are in root's group.
    if os.geteuid() == 0 and {account.pw_uid for account in pwd.getpwall() if account.pw_gid == 0} == {0}:
        tmp_path.chmod(0o775)
        os.chown(tmp_path, 0, 0)
        files.write_text(str(tmp_path / "a"), "new")
    tmp_path.chmod(0o777)
    with pytest.raises(UsageError, match="other users may plant files"):
        files.write_text(str(tmp_path / "b"), "new")


def test_killed_in_the_middle(tmp_path: Path) -> None:
    """Check that kill -9 leaves the older file complete, and a hidden partial file that nobody else can read."""
    path = tmp_path / "out"
    files.write_text(str(path), "older")
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        with files.replacing(str(path)) as stream:
            stream.write(b"half")
            stream.flush()
            os.write(tell, b"x")
            signal.pause()
        os._exit(0)
    os.read(told, 1)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(told)
    os.close(tell)
    assert path.read_text() == "older"
    (left,) = [name for name in tmp_path.iterdir() if name != path]
    assert left.name.startswith(".gdbheap-") and left.read_text() == "half"
    assert stat.S_IMODE(left.stat().st_mode) == 0o600


@needs_root
def test_killed_between_two_names(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a new file in a folder such as /tmp never has two names: gdbheap would refuse to replace it later."""
    path = shared / "out"
    with hold(str(path), str(shared)) as held:
        (shared / "probe").touch()
        if not held.take_new(held.number, "probe", "taken"):
            pytest.skip("this file system cannot rename without replacing")
    pid = os.fork()
    if pid == 0:
        monkeypatch.setattr(os, "unlink", lambda *_arguments, **_named: os.kill(os.getpid(), signal.SIGKILL))
        files.write_text(str(path), "older")
        os._exit(0)
    os.waitpid(pid, 0)
    assert path.stat().st_nlink == 1
    files.write_text(str(path), "new")
    assert path.read_text() == "new"


def test_folder_killed_in_the_middle(tmp_path: Path) -> None:
    """Check that kill -9 after any step leaves the older folder, or the new one, complete."""
    path, probe = tmp_path / "out", tmp_path / "probe"
    for folder in (path, probe):
        folder.mkdir()
    with hold(str(path), str(tmp_path)) as held:
        if not held.exchange("out", "probe"):
            pytest.skip("two names of this file system cannot change places at once")
    probe.rmdir()
    for function in ("rename", "unlink", "rmdir"):
        (path / "a").write_text("older")
        pid = os.fork()
        if pid == 0:
            _replace_until(path, function)
            os._exit(0)
        os.waitpid(pid, 0)
        assert [one.name for one in path.iterdir()] == ["a"] and (path / "a").read_text() in ("older", "new"), function


def _replace_until(path: Path, function: str) -> None:
    """Replace a folder, and be killed after the first call of a function."""
    plain = getattr(os, function)

    def call(*words: Any, **more: Any) -> None:
        plain(*words, **more)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(os, function, call)
    with files.replacing_folder(str(path), lambda name: name == "a") as folder:
        Path(folder, "a").write_text("new")


def test_folders_that_cannot_change_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the new folder is put in place in two steps if a file system has no exchange."""
    path = tmp_path / "out"
    path.mkdir()
    (path / "a").write_text("older")
    monkeypatch.setattr(HeldFolder, "exchange", lambda *_: False)
    with files.replacing_folder(str(path), lambda name: name == "a") as folder:
        Path(folder, "a").write_text("new")
    assert (path / "a").read_text() == "new" and list(tmp_path.iterdir()) == [path]


def test_failed_leaves_nothing(tmp_path: Path) -> None:
    """Check that an error while a file is written leaves the older file, and no part of the new one."""
    path = tmp_path / "out"
    files.write_text(str(path), "older")
    for error in (OSError(28, "No space left on device"), KeyboardInterrupt(), MemoryError()):
        with pytest.raises((UsageError, KeyboardInterrupt, MemoryError)), files.replacing(str(path)) as stream:
            stream.write(b"half")
            raise error
    assert path.read_text() == "older" and list(tmp_path.iterdir()) == [path]


def test_own_descriptors(tmp_path: Path) -> None:
    """Check that /dev/stdout, /dev/fd/N and the like are the inherited descriptors, at their present offsets;
    nothing is truncated."""
    out, script = tmp_path / "out", "import sys; from gdbheap import files; files.write_text(sys.argv[1], 'new')"
    with out.open("wb") as stream:
        stream.write(b"before,")
        stream.flush()
        number = stream.fileno()
        for name in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", f"/dev/fd/{number}", "//dev/./stdout"):
            words = [sys.executable, "-c", script, name]
            subprocess.run(words, check=True, stdout=stream, pass_fds=[number], cwd="/", timeout=PATIENCE)
    assert out.read_text() == "before," + 5 * "new"
    for name in ("/dev/fd/77", "/dev/fd/99999999", f"/dev/fd/{os.open('/dev/null', os.O_WRONLY)}"):
        with pytest.raises(UsageError, match="cannot be written"):
            files.write_text(name, "new")
    files.write_text("/dev/null", "new")
    files.check_writable("/dev/null")


def test_pipes(tmp_path: Path) -> None:
    """Check that the user's own pipe is waited for until it has a reader, and that Ctrl-C ends the wait."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = subprocess.Popen(["cat", str(path)], stdout=subprocess.PIPE)
    files.write_text(str(path), "new")
    assert reader.communicate(timeout=PATIENCE)[0] == b"new" and path.is_fifo()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            files.write_text(str(path), "new")
        except KeyboardInterrupt:
            os._exit(7)
        os._exit(1)
    while "S" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:3]:
        pass
    # It may sleep before its first check of the pipe, too.
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        os.kill(pid, signal.SIGINT)
        time.sleep(0.01)


def test_links_of_ours(tmp_path: Path) -> None:
    """Check that a link is neither followed nor replaced, wherever it leads, and that the second name of a file
    keeps its contents."""
    (tmp_path / "victim").write_bytes(VICTIM)
    for name, goal in (("a", tmp_path / "victim"), ("b", "/dev/null"), ("c", tmp_path / "none"), ("d", tmp_path)):
        (tmp_path / name).symlink_to(goal)
        with pytest.raises(UsageError, match="it is a link"):
            files.write_text(str(tmp_path / name), "new")
        assert (tmp_path / name).is_symlink()
    os.link(tmp_path / "victim", tmp_path / "second")
    files.write_text(str(tmp_path / "second"), "new")
    assert (tmp_path / "victim").read_bytes() == VICTIM


def test_another_root(tmp_path: Path) -> None:
    """Check that /proc/PID/root is the folder of that process, and that no link in it is followed to this root."""
    place_of = f"/proc/self/root{tmp_path}"
    files.write_text(f"{place_of}/a", "new")
    assert (tmp_path / "a").read_text() == "new"


@needs_root
def test_links_in_another_root(tmp_path: Path) -> None:
    """Check a process of another root folder with a link in it that would lead into this one."""
    inside = tmp_path / "inside"
    (inside / "real").mkdir(parents=True)
    (inside / "link").symlink_to(tmp_path)
    pid = os.fork()
    if pid == 0:
        os.chroot(inside)
        signal.pause()
        os._exit(0)
    try:
        while os.readlink(f"/proc/{pid}/root") == "/":
            pass
        files.write_text(f"/proc/{pid}/root/real/a", "new")
        assert (inside / "real" / "a").read_text() == "new"
        with pytest.raises(UsageError, match="another process's file system"):
            files.write_text(f"/proc/{pid}/root/link/a", "new")
        assert sorted(os.listdir(tmp_path)) == ["inside"]
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@needs_root
@pytest.mark.parametrize("link", ["root", "cwd", "task/{}/root"])
def test_root_of_a_process_that_hides(link: str, tmp_path: Path) -> None:
    """Check a link of another user's process: root owns the link, because the process is not dumpable."""

    def hide() -> None:
        ctypes.CDLL(None).prctl(SET_DUMPABLE, 0, 0, 0, 0)
        signal.pause()

    pid = as_stranger(hide)
    try:
        wait_for(lambda: f"Uid:\t{STRANGER}" in Path(f"/proc/{pid}/status").read_text(), "it is still root's")
        wait_for(lambda: Path(f"/proc/{pid}/root").lstat().st_uid == 0, "it is dumpable")
        with pytest.raises(UsageError, match=f"a link of a process of .*{STRANGER}"):
            files.write_text(f"/proc/{pid}/{link.format(pid)}{tmp_path}/a", "new")
        assert not os.listdir(tmp_path)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@needs_root
def test_planted_parts(shared: Path) -> None:
    """Check that --finish takes nothing from a folder that another user made or linked to, and follows no link in
    the user's own folder."""
    log, parts = shared / "calls.log", shared / "calls.log.parts"
    planted(lambda: parts.mkdir(0o777))
    planted(lambda: os.symlink(shared / "victim", parts / f"{1:016x}-{1:016x}.calls"))
    with pytest.raises(UsageError, match="may write to it"):
        finish(str(log))
    shutil.rmtree(parts)
    with place(0o700) as ours:
        planted(lambda: os.symlink(ours, parts))
        with pytest.raises(UsageError):
            finish(str(log))
        os.unlink(parts)
    parts.mkdir(0o700)
    os.link(shared / "victim", parts / f"{1:016x}-{1:016x}.calls")
    assert "the recorder did not make" in "".join(finish(str(log)).failures)
    assert (shared / "victim").read_bytes() == VICTIM


PROGRAM = """
import os, sys
os.closerange(3, 4096)
print(os.listdir(sys.argv[1]), flush=True)
sys.stdin.readline()
for number in range(60000):
    bytes(1000 + number % 1000)
print("done", flush=True)
os._exit(0)
"""


@contextlib.contextmanager
def recorded(parts: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    """Yield a program with the recorder in it, which has closed the recorder's file."""
    environment = {**plain_environment(), **recorder_environment(parts), **dict(word.split("=") for word in more)}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(parts)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=environment,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("kind", ["hard link", "symlink", "pipe"])
def test_recorder_takes_its_own_file_alone(kind: str, tmp_path: Path) -> None:
    """Check that another file in the place of the recorder's closed file is not written to."""
    parts, victim = tmp_path / "parts", tmp_path / "victim"
    parts.mkdir(0o700)
    with recorded(parts) as process:
        assert process.stdin is not None and process.stdout is not None
        names = re.findall(r"[0-9a-f]+-[0-9a-f]+\.calls", process.stdout.readline())
        assert names
        for name in names:
            # It begins like the recorder's file, which is how the recorder recognises its own.
            shutil.copy(parts / name, victim)
            (parts / name).unlink()
            plant_own(kind, parts / name, victim)
        before = victim.read_bytes()
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "done\n"
    assert victim.read_bytes() == before


def plant_own(kind: str, path: Path, victim: Path) -> None:
    """Plant a name as the same user."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "symlink":
        path.symlink_to(victim)
    else:
        os.link(victim, path)


@needs_root
@pytest.mark.parametrize("mode, owner, linked", [(0o777, 0, False), (0o755, STRANGER, False), (0o700, 0, True)])
def test_recorder_refuses_folders(mode: int, owner: int, linked: bool, tmp_path: Path) -> None:
    """Check that nothing is made in a folder, or through a link, of that name that belongs to someone else, and that
    the program runs."""
    parts = tmp_path / "parts"
    parts.mkdir()
    os.chown(parts, owner, owner)
    parts.chmod(mode)
    named = parts
    if linked:
        named = tmp_path / "link"
        named.symlink_to(parts)
    with recorded(named, f"{STACKS_ENVIRONMENT}=") as process:
        out, _ = process.communicate("\n", timeout=PATIENCE)
    assert out == "[]\ndone\n" and process.returncode == 0 and os.listdir(parts) == []


# Files that are read.


@pytest.mark.cases(3)
@pytest.mark.parametrize(
    "line", [["info", "F"], ["diff", "F", "F"], ["report", "F", "-o", "r.html"], ["plot", "F", "-o", "p.svg"],
             ["stacks", "F"], ["replay", "F"], ["export", "F", "-o", "out"], ["diff", "F", "PID"]],
    ids=lambda line: line[0],
)  # fmt: skip
def test_pipes_to_read(line: list[str], target: Running, tmp_path: Path) -> None:
    """Check that a pipe in the place of a given file is refused, and not waited for."""
    os.mkfifo(tmp_path / "F")
    words = [str(target.pid) if word == "PID" else word for word in line]
    command = [str(GDBHEAP), *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode in (2, 4) and done.stderr.count("\n") == 1 and "regular file" in done.stderr
    assert os.listdir(tmp_path) == ["F"]


def test_pipes_of_a_shell(tmp_path: Path) -> None:
    """Check that an inherited pipe is read, such as <(zcat series.csv.gz) of a shell."""
    series_file(str(tmp_path / "a.csv"))
    script = "import sys; from gdbheap.sampling.series import read; print(read(sys.argv[1]).host)"
    words = ["bash", "-c", f"{sys.executable} -c '{script}' <(cat {tmp_path}/a.csv)"]
    if shutil.which("bash") is None:
        pytest.skip("no bash")
    assert subprocess.run(words, capture_output=True, text=True, cwd="/", timeout=PATIENCE).stdout == "host\n"


@needs_root
@pytest.mark.skipif(sys.version_info < (3, 9), reason="no such Python")
def test_settings_of_the_folder(tmp_path: Path) -> None:
    """Check that a matplotlibrc of the current folder, which matplotlib evaluates, is not used, nor that of another
    user's home."""
    pytest.importorskip("matplotlib", reason="the extra gdbheap[plot] is not installed")
    (tmp_path / "home" / ".config" / "matplotlib").mkdir(parents=True)
    for place_of in (tmp_path, tmp_path / "home" / ".config" / "matplotlib"):
        (place_of / "matplotlibrc").write_text("lines.linewidth: 77\n")
    script = (
        "from gdbheap.report.formats import plot; import os; before = os.getcwd()\n"
        "print(plot._matplotlib().rcParams['lines.linewidth'], os.getcwd() == before)"
    )
    environment = {**plain_environment(), "HOME": str(tmp_path / "home")}
    words = [sys.executable, "-c", script]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout == "1.5 True\n", done.stderr
    assert not (tmp_path / "home" / ".cache").exists()


def test_limit(tmp_path: Path) -> None:
    """Check that a file that cannot become large enough leaves the older one."""
    path = tmp_path / "out"
    files.write_text(str(path), "older")
    script = f"from gdbheap import files; files.write_bytes({str(path)!r}, bytes(100000))"
    small = lambda: (  # noqa: E731
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192)),
    )  # fmt: skip
    words = [sys.executable, "-c", script]
    done = subprocess.run(words, preexec_fn=small, capture_output=True, text=True, cwd="/", timeout=PATIENCE)
    assert done.returncode == 1 and "UsageError" in done.stderr and path.read_text() == "older"
    assert list(tmp_path.iterdir()) == [path]


@needs_root
def test_swapped_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that no mode changes if sudo's user puts his own folder, with a hard link in it, in the place of a new
    one."""
    monkeypatch.setenv("SUDO_UID", str(STRANGER))
    with place(0o755, STRANGER) as home:
        victim = home / "victim"
        victim.write_bytes(VICTIM)
        victim.chmod(0o600)
        make = os.mkdir

        def swapped(name: str, mode: int, dir_fd: int) -> None:
            make(name, mode, dir_fd=dir_fd)
            os.rename(home / name, home / "away")
            planted(lambda: make(home / name, 0o777))
            os.link(victim, home / name / "one")

        monkeypatch.setattr(os, "mkdir", swapped)
        with pytest.raises(UsageError, match="another user replaced the folder"):
            with files.replacing_folder(str(home / "out"), lambda _name: True, 0o644) as inside:
                Path(inside, "two").write_bytes(b"new")
        monkeypatch.undo()
        assert stat.S_IMODE(victim.stat().st_mode) == 0o600 and victim.read_bytes() == VICTIM


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make links that belong to other users")
def test_links_of_others_are_not_advised(tmp_path: Path) -> None:
    """Check that root is not advised to write to the target of a link, which its maker chose."""
    tmp_path.chmod(0o1777)
    (tmp_path / "a").symlink_to(tmp_path / "victim")
    os.chown(tmp_path / "a", 54321, 54321, follow_symlinks=False)
    with pytest.raises(UsageError, match="it is a link that belongs to uid 54321: choose another name"):
        files.write_text(str(tmp_path / "a"), "new")
    assert (tmp_path / "a").is_symlink() and not (tmp_path / "victim").exists()


# argv: a path of one letter in a folder that cannot be written to. Prints the result of each check.
CHECKED = """
import sys
from gdbheap import files
checks = files.check_writable, lambda path: files.check_folder(path, bool), lambda path: files.check_place(path[:-2])
for check in checks:
    try:
        check(sys.argv[1])
    except Exception as error:
        print(error.status, error)
"""


def test_read_only_file_system(tmp_path: Path) -> None:
    """Check that a read-only file system is named: no right that the user could get would help."""
    if not has_mount_namespaces():
        pytest.skip("no mount namespace may be made here")
    mounted = f'mount -t tmpfs -o ro none {tmp_path} && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", mounted, "sh", sys.executable, "-I", "-c", CHECKED, f"{tmp_path}/a"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    said = f"cannot be written: the file system of {tmp_path} is read-only"
    assert done.stdout.splitlines() == [f"3 {path} {said}" for path in (f"{tmp_path}/a", f"{tmp_path}/a", tmp_path)]


@pytest.mark.parametrize("mode", [0o600, 0o640])
def test_moved_files_have_their_mode_before_their_name(
    mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that a file that another program wrote, readable for all, has its final mode before it gets its name, so
    that nobody can open it with more rights.
    """
    inside, seen = tmp_path / "private", []
    inside.mkdir(0o700)
    rename = os.rename

    def renaming(source: Any, name: Any, **folders: int) -> None:
        rename(source, name, **folders)
        seen.append(stat.S_IMODE(os.stat(name, dir_fd=folders["dst_dir_fd"]).st_mode))

    monkeypatch.setattr(os, "rename", renaming)
    (inside / "a").write_bytes(b"core")
    (inside / "a").chmod(0o666)
    (tmp_path / "a").write_bytes(b"old")
    files.settle(str(inside / "a"), str(tmp_path / "a"), mode)
    assert seen == [mode] and (tmp_path / "a").read_bytes() == b"core"
