"""Files on a server that never responds: a process that maps one blocks no command."""

from __future__ import annotations

import errno
import mmap
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.attackers import needs_root, place
from support.busy import wait_for
from support.programs import GDBHEAP, PATIENCE, SOURCES

from gdbheap._native import Frozen, has_sharer
from gdbheap.files import open_to_read
from gdbheap.host.file_systems import FileSystems, find_answering
from gdbheap.host.mounts import parse_mounts
from gdbheap.host.procfs import ProcessFolder
from gdbheap.host.tmpfs import _of_tmpfs
from gdbheap.loader import START
from gdbheap.refusals.refusal import check as machine_of_process
from gdbheap.sampling.sampled_process import SampledProcess, SampleTime
from gdbheap.targets.chosen_processes import Programs
from gdbheap.targets.elf import ElfFiles
from gdbheap.targets.mappings import parse_maps
from gdbheap.targets.process import elf_candidates, end_copy, mapped_file
from gdbheap.targets.running import RunningProcess
from gdbheap.watching import actions, child

FUSE = (10, 229)
USER = 65534
UNSUPPORTED = 5


@contextmanager
def mapped(how: str, folder: Path, *more: str) -> Iterator[int]:
    """Yield the id of a process that has mapped a file of a silent server, or holds a lock because of it; skip the test
    if no server can be mounted.
    """
    mounted, node = folder / "mounted", folder / "fuse"
    mounted.mkdir()
    try:
        os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(*FUSE))
    except OSError as error:
        pytest.skip(f"no device can be made here: {error}")
    command = [sys.executable, str(SOURCES / "unanswered.py"), str(mounted), str(node), how, *more]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        if not line:
            pytest.skip(f"nothing can be mounted here: {process.stderr.read().strip()[-200:]}")
        yield int(line.split()[0])
    finally:
        process.kill()
        process.wait()


@needs_root
@pytest.mark.parametrize("how", ["private", "shared"])
def test_nobody_waits(how: str) -> None:
    """Check that each command answers, without that file's pages."""
    with place(0o755) as folder, mapped(how, folder) as pid:
        for words in ([], ["owners"], ["duplicates"], ["info"], ["check", "--clone"]):
            noun, *options = words or [""]
            command = [str(GDBHEAP), *([noun] if noun else []), str(pid), *options]
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
            assert done.returncode in ((UNSUPPORTED,) if "--clone" in options else (0, 1)), done.stderr


@needs_root
@pytest.mark.parametrize("how", ["dirty", "dirtied", "opened"])
def test_no_copy_waits_in_its_exit(how: str) -> None:
    """Check that no copy is made of a process that maps a file of a silent server.

    A process that ends waits until all pages of its files are written back, also pages that another process wrote. If a
    copy was made nevertheless, gdbheap waits some seconds for its end; then a warning names the process that still
    waits.
    """
    with place(0o755) as folder, mapped(how, folder) as pid:
        done = subprocess.run(
            [str(GDBHEAP), "info", str(pid), "--clone"], capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == UNSUPPORTED and len(done.stderr.splitlines()) == 1, done
        assert f"{folder}/mounted/file (FUSE)" in done.stderr and "without --clone" in done.stderr
        copy = Frozen(pid)
        copy.let_go()
        (warning,) = end_copy(copy)
        assert copy.left is not None and f"process {copy.left} ends after it" in warning
        assert "TracerPid:\t0\n" in Path(f"/proc/{pid}/status").read_text()
    guardian = copy.left
    wait_for(lambda: os.waitpid(guardian, os.WNOHANG)[0] == guardian, "the guardian waits for a copy that has ended")


@needs_root
def test_nobody_waits_for_the_lock_of_its_memory_map() -> None:
    """Check that commands about all processes leave out such a process after a moment, and that a command about this
    process alone gives the reason in one line.
    """
    with place(0o755) as folder, mapped("locked", folder) as pid:
        own = subprocess.Popen(["sleep", "1000"])
        try:
            wait_for(lambda: waits(pid), "no thread waits in mmap()")
            assert own.pid in Programs(name=re.compile("sleep")).now()
            for words in (
                ["ps", "--top=3"],
                ["top", "--name=sleep", "--count=1"],
                ["record", str(own.pid), "--duration=10ms", "-o", "-"],
            ):
                done = subprocess.run([str(GDBHEAP), *words], capture_output=True, text=True, timeout=PATIENCE)
                assert done.returncode in (0, 1), done.stderr
            for words in ([str(pid)], ["info", str(pid)], ["doctor", str(pid)]):
                done = subprocess.run([str(GDBHEAP), *words], capture_output=True, text=True, timeout=PATIENCE)
                assert done.returncode and "memory map" in done.stderr + done.stdout, done.stdout + done.stderr
        finally:
            own.kill()
            own.wait()


SPARSE_BYTES = 8 << 20
HAS_SPARSE = """
import mmap, os, sys
with open(sys.argv[1], "r+b", buffering=0) as file:
    mapped = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE)
mapped[0] = 1
print(os.getpid(), flush=True)
sys.stdin.read()
"""


@needs_root
def test_nobody_waits_for_the_lock_of_a_file() -> None:
    """Check that no command blocks on a file whose lock a reader holds, in a shell or in gdb, nor stays after its
    answer; the holes are read as zeros. The kernel blocks every search for holes on that lock, deaf to SIGKILL."""
    with place(0o755) as folder:
        data = folder / "data"
        with open(data, "wb") as file:
            file.write(os.urandom(2 * mmap.PAGESIZE))
            file.truncate(SPARSE_BYTES)
        data.chmod(0o644)
        command = [sys.executable, "-c", HAS_SPARSE, str(data)]
        victim = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert victim.stdout is not None and victim.stdout.readline()
            with mapped("inode", folder, str(data)) as pid:
                wait_for(lambda: waits(pid), "nobody waits for the lock")
                check_holes(data)
                commands = [[str(GDBHEAP), str(victim.pid)]]
                if shutil.which("gdb") is not None:
                    gdb = ["gdb", "-nx", "-q", "-batch", "-p", str(victim.pid), "-x", str(START), "-ex", "heap"]
                    commands.append(gdb)
                for words in commands:
                    done = run(words, folder)
                    assert done.returncode in (0, 1) and "MiB" in done.stdout, done.stderr
                assert waits(pid), "the lock was free"
        finally:
            victim.kill()
            victim.communicate()


@needs_root
@pytest.mark.parametrize(("form", "name"), [("sqlite", "heap.sqlite"), ("parquet", "mappings.parquet")])
def test_no_query_waits_for_the_lock_of_a_file(form: str, name: str, tmp_path: Path) -> None:
    """Check that a query of an export says in one line that another program holds the lock of a file."""
    if form == "parquet":
        pytest.importorskip("duckdb")
        pytest.importorskip("pyarrow")
    with place(0o755) as folder:
        tables = folder / "tables"
        words = ["export", str(os.getpid()), "-o", str(tables), f"--format={form}", "--tables=mappings"]
        assert (done := run_in(tmp_path, words)).returncode == 0, done.stderr
        tables.chmod(0o755)
        (tables / name).chmod(0o644)
        with mapped("inode", folder, str(tables / name)) as pid:
            wait_for(lambda: waits(pid), "nobody waits for the lock")
            done = run_in(tmp_path, ["sql", str(tables), "select count(*) from mappings"])
            assert done.returncode == 2 and done.stderr.count("\n") == 1, done
            assert f"{name}: another program holds the file's lock" in done.stderr
            assert waits(pid), "the lock was free"


ASKS = """
import sys
from gdbheap._native import Space, data_extents
from gdbheap.machines.machine import X86_64
from gdbheap.targets.core import SegmentRow
start, size = 1 << 20, int(sys.argv[2])
space = Space.for_core(X86_64, [SegmentRow(start, start + size, 0, 0)], [sys.argv[1]])
found = space.read(start + size - 16, 16), space.next_backed(start + size // 2) == start + size // 2
try:
    data_extents(sys.argv[1], 100)
except TimeoutError:
    print(found)
"""


def check_holes(data: Path) -> None:
    """Check that the holes of a file count as unknown, as in a core."""
    done = run([sys.executable, "-I", "-c", ASKS, str(data), str(SPARSE_BYTES)], data.parent)
    assert done.stdout == f"({bytes(16)}, True)\n", done.stderr


@needs_root
def test_nobody_waits_for_the_lock_of_an_epoll() -> None:
    """Check that no command blocks on the lock that a thread holds in epoll_ctl(), nor stays after its answer: the
    objects in the kernel count as unknown."""
    with place(0o755) as folder, mapped("epoll", folder) as pid:
        wait_for(lambda: asks(pid), "no thread waits in epoll_ctl()")
        found = run([sys.executable, "-I", "-c", KNOWS, str(pid)], folder)
        assert found.stdout == "[] False\n", found.stderr
        for words in ([str(pid)], ["info", str(pid)]):
            done = run_in(folder, words)
            assert done.returncode in (0, 1) and done.stdout, done.stderr
        assert asks(pid), "the lock was free"


KNOWS = """
import sys
from gdbheap.host.kernel_pointers import kernel_pointers
found = kernel_pointers(sys.argv[1])
print(found.epoll, found.is_whole)
"""


@needs_root
def test_a_look_that_waits_in_the_kernel_keeps_no_other_waiting() -> None:
    """Check that a watch does not wait for a child that is deaf to SIGKILL."""
    with place(0o755) as folder, mapped("epoll", folder) as pid:
        wait_for(lambda: asks(pid), "no thread waits in epoll_ctl()")
        polls = [link for link in Path(f"/proc/{pid}/fd").iterdir() if "eventpoll" in os.readlink(link)]
        table = Path(f"/proc/{pid}/fdinfo/{polls[0].name}")
        look = child.Child(lambda: {"text": table.read_text()})
        wait_for(lambda: waits(look.pid), "the look does not wait")
        began = time.monotonic()
        look.end()
        assert time.monotonic() - began < child.PARTING_SECONDS
        assert asks(pid), "the lock was free"


FOLDERS = Path("/dev/shm")


@needs_root
@pytest.mark.skipif(not os.path.ismount(FOLDERS), reason="no tmpfs is mounted")
def test_nobody_waits_for_the_lock_of_a_folder() -> None:
    """Check that no search for files in a tmpfs blocks on a folder whose lock another user holds."""
    with place(0o755) as folder, tempfile.TemporaryDirectory(prefix="gdbheap-", dir=FOLDERS) as shared:
        os.chmod(shared, 0o777)
        trap = Path(shared, "trap")
        with mapped("folder", folder, str(trap)) as pid:
            wait_for(lambda: waits(pid), "nobody waits for the lock")
            own = subprocess.Popen(["sleep", "1000"])
            try:
                done = run([sys.executable, "-I", "-c", FINDS, str(own.pid)], folder)
                assert done.stdout == "True\n", done.stderr
                assert run_in(folder, [str(own.pid)]).returncode in (0, 1)
                assert waits(pid), "the lock was free"
            finally:
                own.kill()
                own.wait()


FINDS = """
import sys
from gdbheap.host.tmpfs import find_tmpfs_files
print(isinstance(find_tmpfs_files(sys.argv[1], []), list))
"""

READS = """
import os, signal, sys
from gdbheap._native import end_where_deaf
end_where_deaf(b"it is deaf\\n", b"it is blocked\\n")
end_where_deaf(b"a second time\\n", b"")
signal.signal(int(sys.argv[2]), signal.default_int_handler)
with open(f"/proc/{sys.argv[1]}/mem", "rb", buffering=0) as memory:
    print(flush=True)
    os.pread(memory.fileno(), 1, 1 << 20)
"""


@needs_root
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, None])
def test_what_waits_in_the_kernel_ends(sent: signal.Signals | None, tmp_path: Path) -> None:
    """Check that a signal ends a command although its first thread waits in the kernel, for a lock or for a server that
    is gone, so that Python runs no handler. Without a signal, a read of memory ends after a while.
    """
    with place(0o755) as folder, mapped("locked", folder) as pid:
        wait_for(lambda: waits(pid), "no thread waits in mmap()")
        command, pipe = [sys.executable, "-c", READS, str(pid), str(int(sent or signal.SIGINT))], subprocess.PIPE
        reader = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=tmp_path)
        try:
            assert reader.stdout is not None and reader.stdout.readline()
            wait_for(lambda: waits(reader.pid), "it does not wait for the lock")
            if sent is not None:
                reader.send_signal(sent)
            line = "it is blocked\n" if sent is None else "it is deaf\n"
            assert reader.communicate(timeout=PATIENCE)[1] == line and reader.returncode == 1
        finally:
            reader.kill()
            reader.wait()


# The first thread, and the one that handles signals.
LISTENING = 2
SWEEPS = """
import os, signal, sys
from gdbheap._native import Space, end_where_deaf, read_once
from gdbheap.machines.machine import X86_64
from gdbheap.targets.core import SegmentRow
end_where_deaf(b"it is deaf\\n", b"")
signal.signal(signal.SIGINT, signal.default_int_handler)
os.setgroups([])
os.setresgid(*3 * [int(sys.argv[2])])
os.setresuid(*3 * [int(sys.argv[2])])
start, end = 1 << 20, 2 << 20
space = Space.for_core(X86_64, [SegmentRow(start, end, 0, 0)], [sys.argv[1]])
print(flush=True)
read_once(space, [(start, end)])
"""


@needs_root
def test_a_signal_ends_workers_that_wait_for_a_file(tmp_path: Path) -> None:
    """Check that the worker threads block all signals, and that the thread that waits for them handles the signal."""
    with place(0o755) as folder, mapped("private", folder) as pid:
        file, pipe = f"/proc/{pid}/root{folder}/mounted/file", subprocess.PIPE
        command = [sys.executable, "-c", SWEEPS, file, str(USER)]
        reader = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=tmp_path)
        assert reader.stdout is not None and reader.stderr is not None
        assert reader.stdout.readline(), reader.stderr.read()
        wait_for(lambda: len(os.listdir(f"/proc/{reader.pid}/task")) > LISTENING, "no worker has begun")
        reader.send_signal(signal.SIGINT)
        assert reader.stderr.readline() == "it is deaf\n"
    # A process that asked for a page waits until the server has ended.
    assert reader.wait(PATIENCE) == 1


# A program whose file is deleted, and whose mapped file has a name that now leads elsewhere.
NAMES = """
import mmap, os, sys
with open(sys.argv[1], "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ)
os.remove(sys.argv[1])
os.symlink(sys.argv[2], sys.argv[1])
print(os.getpid(), flush=True)
sys.stdin.read()
"""


@needs_root
def test_nobody_waits_for_a_path_that_somebody_names() -> None:
    """Check that no command blocks on a path to the files of a process that holds the lock of its memory map: as the
    first argument of a program whose file is gone, as the name of a mapped file, as a file of the current folder."""
    with place(0o755) as folder, mapped("locked", folder) as pid:
        trap, library, program = f"/proc/{pid}/map_files/1000-2000", folder / "lib.so", folder / "sleeper"
        shutil.copy("/bin/true", library)
        shutil.copy("/bin/sleep", program)
        own = subprocess.Popen([trap, "1000"], executable=program)
        command = [sys.executable, "-c", NAMES, str(library), trap]
        naming = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert naming.stdout is not None
            naming.stdout.readline()
            wait_for(lambda: waits(pid), "no thread waits in mmap()")
            program.unlink()
            for name in (str(naming.pid), "planted"):
                (folder / name).symlink_to(trap)
            for words in (
                ["ps"],
                ["processes", "--name=sleeper"],
                [str(naming.pid)],
                ["trim", str(naming.pid), "--yes"],
            ):
                done = run_in(folder, words)
                assert done.returncode in (0, 1), (words, done.stderr)
            assert "sleeper [deleted]" in run_in(folder, ["ps"]).stdout
            done = run_in(folder, ["./planted"])
            assert done.returncode and len(done.stderr.splitlines()) == 1 and "does not respond" in done.stderr
        finally:
            for process in (own, naming):
                process.kill()
                process.communicate()


# Looks up files that others have planted in the current folder: one line, a list.
PLANTED = """
from contextlib import suppress
from gdbheap.commands.shell.input_lines import _is_at_home
from gdbheap.commands.shell.line_words import completions
from gdbheap.errors import UsageError
from gdbheap.files import is_stream
from gdbheap.tracing.replay_settings import library_of
found = [completions("snapshot ", ""), completions("snapshot ", "planted/"), _is_at_home("planted/x/history")]
with suppress(UsageError):
    found.append(library_of("./planted"))
print([*found, is_stream("planted/x")])
"""
INSTALLS = """
import sys
from gdbheap.commands.shell import acting
from gdbheap.commands.shell.main import main
acting.SECONDS = 1.0
sys.exit(main(["install"]))
"""


@needs_root
def test_nobody_waits_for_what_another_has_planted() -> None:
    """Check that links in another user's folder to the files of a process that holds the lock of its memory map
    block nothing: Tab in a session, an allocator, a file to be written, ``gdbheap install`` in that user's home, the
    start of gdb there."""
    with place(0o755) as folder, mapped("locked", folder) as pid:
        wait_for(lambda: waits(pid), "no thread waits in mmap()")
        trap, home, here = f"/proc/{pid}/map_files/1000-2000", folder / "home", folder / "here"
        links = {home / ".gdbinit": f"{trap}/x", here / "planted": trap, here / "gdbheap": trap}
        for link, target in links.items():
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(target)
            for path in (link, link.parent):
                os.chown(path, USER, USER, follow_symlinks=False)
        done = run([sys.executable, "-I", "-c", PLANTED], here)
        assert done.stdout == "[['gdbheap', 'planted'], [], False, False]\n", done.stderr
        done = run([str(GDBHEAP), "watch", str(os.getpid()), "--rss=1T", "--run=here/planted", "--duration=1"], folder)
        assert done.returncode == 2 and "no program" in done.stderr, done.stderr
        done = run(["env", "-u", "XDG_CONFIG_HOME", f"HOME={home}", sys.executable, "-I", "-c", INSTALLS], folder)
        assert done.returncode == 1 and len(done.stderr.splitlines()) == 1 and "does not respond" in done.stderr
        if shutil.which("gdb") is not None:
            done = run(["gdb", "-nx", "-q", "-batch", "-x", str(START), "-ex", "print 6 * 7"], here)
            assert "= 42" in done.stdout and "current folder has a file" in done.stderr


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder."""
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=folder)


def run_in(folder: Path, words: list[str]) -> subprocess.CompletedProcess[str]:
    """Run gdbheap in a folder."""
    return run([str(GDBHEAP), *words], folder)


@needs_root
def test_nobody_is_asked_where_links_lead() -> None:
    """Check that a link to a file of a silent server is not followed, because a process that asked the server could not
    be killed.
    """
    with place(0o755) as folder, mapped("linked", folder) as pid:
        process = ProcessFolder(pid)
        row = next(row for row in parse_maps(process.read("maps")) if "/mounted.so" in row.path)
        systems = FileSystems(process)
        for path in elf_candidates(process, systems, None, row):
            found = ElfFiles(systems).get(path)
            assert found is None
        with pytest.raises(OSError) as raised:
            systems.hold(f"{process.path('root')}{folder}/mounted.so")
        assert raised.value.errno == errno.EXDEV
        assert systems.warnings == []


@needs_root
def test_lookups_that_nobody_answers_are_given_up() -> None:
    """Check that a path that the user names is given up too: the thread that waits for a server could be woken, but
    not by an answer."""
    with place(0o755) as folder, mapped("linked", folder) as pid:
        with pytest.raises(TimeoutError, match="does not respond"):
            open_to_read(f"/proc/{pid}/root{folder}/mounted/file")


@needs_root
def test_nobody_waits_for_an_exported_folder() -> None:
    """Check that lookups of files in the folder, which never return, are abandoned."""
    pytest.importorskip("duckdb", reason="the extra gdbheap[sql] is not installed")
    with place(0o755) as folder, mapped("linked", folder) as pid:
        done = run_in(folder, ["sql", f"/proc/{pid}/root{folder}/mounted", "select * from types"])
        assert done.returncode and "does not respond" in done.stderr and len(done.stderr.splitlines()) == 1, done


def test_links_are_followed_inside_of_a_root_folder() -> None:
    """Check that a link to a file is found by the file's real path, and that a link to /proc/self/exe is refused."""
    with place(0o755) as folder:
        (folder / "file").write_text("x")
        (folder / "link").symlink_to(folder / "file")
        (folder / "other").symlink_to("/proc/self/exe")
        process = ProcessFolder(os.getpid())
        systems = FileSystems(process)
        found = systems.find(str(folder / "link"))
        assert found is not None and Path(found.path) == (folder / "file").resolve()
        assert systems.find(str(folder / "other")) is None and systems.find("/proc/self/exe") is None
        assert systems.find(process.path("exe")) is not None


def test_a_child_that_cannot_be_killed_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a watch continues without a child that waits in the kernel for ever."""
    monkeypatch.setattr(child, "PARTING_SECONDS", 0.1)
    look = child.Child(lambda: time.sleep(1000) or {})
    with monkeypatch.context() as deaf:
        deaf.setattr(os, "kill", lambda pid, number: None)
        look.end()
    os.kill(look.pid, signal.SIGKILL)
    os.waitpid(look.pid, 0)


@needs_root
def test_nobody_waits_for_an_execve() -> None:
    """Check that a process that hangs in execve() blocks neither commands about all processes nor another one that
    is stopped."""
    with place(0o755) as folder, mapped("exec", folder) as pid:
        own = subprocess.Popen(["sleep", "1000"])
        try:
            wait_for(lambda: waits(pid), "it does not wait in execve()")
            for words in (
                ["growth", str(own.pid), "--duration=0.1"],
                ["trim", str(own.pid), "--yes"],
                ["ps", "--top=3"],
                ["top", "--name=sleep", "--count=1"],
                ["processes", "--name=sleep"],
            ):
                done = subprocess.run([str(GDBHEAP), *words], capture_output=True, text=True, timeout=PATIENCE)
                assert done.returncode in (0, 1), (words, done.stderr)
            # In one process, too: an earlier question that hangs says nothing about other processes.
            assert [has_sharer(own.pid) for _ in range(3)] == [False] * 3
            for words in ([str(pid)], ["doctor", str(pid)]):
                done = subprocess.run([str(GDBHEAP), *words], capture_output=True, text=True, timeout=PATIENCE)
                assert done.returncode and "execve()" in done.stderr + done.stdout, done.stdout + done.stderr
        finally:
            own.kill()
            own.wait()


@needs_root
def test_nobody_waits_who_looked_at_it_before() -> None:
    """Check that the memory counts as unknown after a thread takes the lock between two samples."""
    with place(0o755) as folder, mapped("locking", folder) as pid:
        samples = folder / "samples.jsonl"
        words = [str(GDBHEAP), "record", str(pid), "--every=0.2", "--duration=4", "-o", str(samples)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as recorder:
            try:
                wait_for(lambda: samples.exists() and b'"malloc":{' in samples.read_bytes(), "it reads nothing")
                os.kill(pid, signal.SIGUSR1)
                wait_for(lambda: waits(pid), "no thread waits in mmap()")
                _, errors = recorder.communicate(timeout=PATIENCE)
                assert recorder.returncode in (0, 1), errors
            finally:
                recorder.kill()


READS_ON = """
import sys
from gdbheap._native import Fault
from gdbheap.host.procfs import TABLE_LIMIT, ProcessFolder
from gdbheap.machines.machine import THIS_MACHINE
from gdbheap.targets.mappings import parse_maps
from gdbheap.targets.running_memory import RunningMemory
folder = ProcessFolder(int(sys.argv[1]))
maps = folder.read("maps", TABLE_LIMIT)
memory = RunningMemory(folder, THIS_MACHINE, THIS_MACHINE.user_end)
memory.renew(maps)
address = parse_maps(maps)[0].start
print(memory.space.word(address), flush=True)
try:
    while True:
        memory.space.word(address)
except Fault:
    print("unknown")
"""


@needs_root
def test_nobody_waits_who_reads_all_the_time(tmp_path: Path) -> None:
    """Check that a thread may take the lock between any two reads."""
    with place(0o755) as folder, mapped("locking", folder) as pid:
        command = [sys.executable, "-c", READS_ON, str(pid)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as reader:
            try:
                assert reader.stdout is not None and reader.stdout.readline()
                os.kill(pid, signal.SIGUSR1)
                assert reader.communicate(timeout=PATIENCE)[0] == "unknown\n"
            finally:
                reader.kill()


def test_nobody_in_a_user_namespace_is_root() -> None:
    """Check that user 0 of a mount from another user namespace is the user who made that namespace."""
    text = b"60 22 0:52 / /mnt/f rw - fuse x rw,user_id=0,group_id=0\n"
    assert find_answering(text) == {"00:34": 0}
    assert find_answering(text, b"", USER) == {"00:34": USER}
    assert find_answering(text, text, USER) == {"00:34": 0}


def waits(pid: int) -> bool:
    """Return whether a thread of a process waits in the kernel without end."""
    return any("\nState:\tD" in path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status"))


def asks(pid: int) -> bool:
    """Return whether a thread of a process waits for the server of a file."""
    return any("request_wait_answer" in path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/wchan"))


FOLLOWING = {
    "private": (["growth"], ["catch", "malloc"]),
    "shared": (["growth", "--perf"], ["watch", "--on-memory-error", "--no-snapshot", "--run=true", "--output=/tmp"]),
}


@needs_root
@pytest.mark.parametrize("how", FOLLOWING)
def test_nobody_waits_who_follows(how: str) -> None:
    """Check that commands that follow a running process end when their time is up."""
    with place(0o755) as folder, mapped(how, folder) as pid:
        for noun, *options in FOLLOWING[how]:
            command = [str(GDBHEAP), noun, str(pid), *options, "--duration=0.1"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
            # Not every kernel reports calls (--perf).
            assert done.returncode in ((0, 2, 3) if "--perf" in options else (0, 1)), done.stderr


def file_of(pid: int, folder: Path) -> int | None:
    """Return the address at which a process has mapped the file of the silent server."""
    rows = parse_maps(ProcessFolder(pid).read("maps"))
    return next((row.start for row in rows if row.path == f"{folder}/mounted/file"), None)


@needs_root
@pytest.mark.parametrize("how", ["private", "later"])
def test_no_stack_leads_into_the_file(how: str) -> None:
    """Check that a thread's stack pointer into the file, and a read at any address, both end at once, also if the
    file was mapped after the others."""
    with place(0o755) as folder, mapped(how, folder) as pid:
        running = RunningProcess(pid, machine_of_process(ProcessFolder(pid)))
        if how == "later":
            os.kill(pid, signal.SIGUSR1)
            wait_for(lambda: file_of(pid, folder), "it maps nothing")
            assert running.look_again()
        start = file_of(pid, folder)
        assert start is not None
        code = next(row for row in running.mappings if row.executable)
        found = running.unwind([*[start + 64] * 16, code.start])
        assert len(found.counters) >= 1
        assert running.space.read_available(start, 16) == b""
        assert len(running.space.read_available(code.start, 16)) == 16


@needs_root
@pytest.mark.parametrize("how", ["shared", "later"])
def test_no_sample_leads_into_the_file(how: str) -> None:
    """Check that a recording's reads of the allocators' structures, by pointers of the process, stop at the file,
    too."""
    with place(0o755) as folder, mapped(how, folder) as pid:
        watched = SampledProcess(pid)
        watched.look(watched.usage())
        if how == "later":
            os.kill(pid, signal.SIGUSR1)
            wait_for(lambda: file_of(pid, folder), "it maps nothing")
            wait_for(lambda: watched._files.is_due, "the files are not looked at again")
        watched.sample(SampleTime(0.0, 0.0), watched.usage())
        start = file_of(pid, folder)
        assert start is not None and watched.found is not None and watched.found.malloc is not None
        assert watched.found.space.read_available(start, 16) == b""


@needs_root
@pytest.mark.skipif(shutil.which("gdb") is None, reason="there is no gdb")
@pytest.mark.parametrize("how", ["private", "shared"])
def test_no_core_waits(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that gdb is not started, because it would read the file of the silent server."""
    monkeypatch.setattr(actions, "_started_gdb", lambda *arguments: pytest.fail("gdb was started"))
    wanted = actions.Actions("", False, False, False, True, (), 1.0, 5.0, lambda heap: "")  # type: ignore[arg-type, return-value]
    with place(0o755) as folder, mapped(how, folder) as pid:
        done = actions.Done()
        actions._core(wanted, ProcessFolder(pid), str(folder / "the.core"), done)
    assert len(done.errors) == 1 and f"{folder}/mounted/file" in done.errors[0] and "(FUSE)" in done.errors[0]


def test_mounts_tell_who_answers() -> None:
    """Check that the server of a FUSE mount is the user that it names, and is untrusted if it names none."""
    lines = [
        "31 1 254:0 / / rw - ext4 /dev/vda rw",
        "32 31 0:42 / /mnt/a\\040b rw,nosuid shared:1 - fuse.sshfs me@there rw,user_id=1000,group_id=1000",
        "33 31 0:43 / /mnt/c rw - fuseblk /dev/sda1 rw,user_id=0,group_id=0,allow_other",
        "34 31 0:44 / /mnt/d rw - fuse x rw",
        "35 31 0:45 / /dev/shm rw - tmpfs tmpfs rw",
        "damaged",
        "36 31 x:y / / rw - fuse x rw,user_id=5",
    ]
    found = find_answering("\n".join(lines).encode())
    assert found == {"fe:00": None, "00:2a": 1000, "00:2b": 0, "00:2c": -1, "00:2d": None}


OVERLAYS = [
    "31 1 254:0 / / rw - ext4 /dev/vda rw",
    "32 31 0:42 / /home/u/served rw - fuse.evil x rw,user_id=1000,group_id=1000",
    "33 31 0:43 / /plain rw - overlay o rw,lowerdir=/usr/a:/usr/b,upperdir=/var/up,workdir=/var/work",
    "34 31 0:44 / /lower rw - overlay o rw,lowerdir=/usr/a:/home/u/served/x,upperdir=/var/up,workdir=/var/work",
    "35 31 0:45 / /upper rw - overlay o rw,lowerdir=/usr/a,upperdir=/home/u/served,workdir=/var/work",
    "36 31 0:46 / /twice rw - overlay o rw,lowerdir=/lower/z:/usr/c",
    "37 31 0:47 / /added rw - overlay o rw,lowerdir+=/usr/a,lowerdir+=/home/u/served/y",
    "38 31 0:48 / /colon\\040x rw - overlay o rw,lowerdir=/usr/a\\134::/home/u/served/y",
    "39 31 0:49 / /round rw - overlay o rw,lowerdir=/round/a:l/RELATIVE",
]


def test_overlays_are_answered_by_who_answers_for_their_layers() -> None:
    """Check that an overlay with a layer on a user's FUSE mount counts as this user's, whatever its name is."""
    found = find_answering("\n".join(OVERLAYS).encode())
    plain = {"fe:00": None, "00:2b": None, "00:31": None}
    assert found == {**plain, **dict.fromkeys(("00:2a", "00:2c", "00:2d", "00:2e", "00:2f", "00:30"), 1000)}


def test_overlays_of_other_namespaces() -> None:
    """Check that an overlay that a user mounted in a namespace is untrusted, unless it is in this one too."""
    own = "\n".join(OVERLAYS[:3]).encode()
    theirs = "\n".join([OVERLAYS[2], "50 1 0:60 / / rw - overlay o rw,lowerdir=/usr/a,upperdir=/var/up"]).encode()
    assert find_answering(theirs, own, 1000) == {"00:2b": None, "00:3c": 1000}
    assert find_answering(theirs, b"", -1) == {"00:2b": -1, "00:3c": -1}
    assert find_answering(theirs, b"", None) == {"00:2b": None, "00:3c": None}


def test_tmpfs_below_a_user_s_overlay() -> None:
    """Check that a tmpfs whose mount point is on another user's overlay is not searched."""
    text = "\n".join([*OVERLAYS[:4], "60 33 0:70 / /plain/t rw - tmpfs t rw", "61 34 0:71 / /lower/t rw - tmpfs t rw"])
    mounts = list(parse_mounts(text.encode()))
    assert [mount.point for mount in _of_tmpfs(mounts, find_answering(text.encode()))] == ["/plain/t"]


# A user's own namespaces with an overlay: its layers are plain folders here, but this cannot be verified.
MOUNTED = """
mount -t overlay -o "lowerdir=$1/low,upperdir=$1/up,workdir=$1/work,userxattr" o "$1/m" || exit 1
if [ "$2" = hidden ]; then exec 3<"$1/m/mapped.so"; else mkdir "$1/m/x"; fi
exec "$3" -c "$4" "$1/m/mapped.so" "$2"
"""
MAPS = """
import ctypes, mmap, os, sys
file = open(sys.argv[1], "rb")
maps = [mmap.mmap(file.fileno(), 0, kind, mmap.PROT_READ) for kind in (mmap.MAP_PRIVATE, mmap.MAP_SHARED)]
file.close()
if sys.argv[2] == "hidden":
    os.close(3)
    ctypes.CDLL(None).umount2(os.path.dirname(sys.argv[1]).encode(), 2)
print(os.getpid(), flush=True)
sys.stdin.read()
"""


@needs_root
@pytest.mark.parametrize("how", ["seen", "hidden"])
def test_a_user_s_overlay_is_not_asked(how: str) -> None:
    """Check that no file of a user's overlay is opened, also if the overlay was unmounted after the file was mapped."""
    with place(0o755) as folder:
        for name in ("low", "up", "work", "m"):
            (folder / name).mkdir()
            os.chown(folder / name, USER, USER)
        shutil.copy(sys.executable, folder / "low" / "mapped.so")
        as_user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "unshare", "-Urm"]
        command = [*as_user, "sh", "-c", MOUNTED, "sh", str(folder), how, sys.executable, MAPS]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                pytest.skip("no user can mount an overlay here")
            check_not_opened(int(line))
        finally:
            process.kill()
            process.communicate()


def check_not_opened(pid: int) -> None:
    """Check that no file of the overlay is opened, and that the other mappings' files are found."""
    found = ProcessFolder(pid)
    systems = FileSystems(found)
    rows = parse_maps(found.read("maps"))
    own = [row for row in rows if row.path.endswith("/mapped.so")]
    assert own
    for row in own:
        assert mapped_file(found, systems, row) is None and elf_candidates(found, systems, None, row) == []
        assert systems.is_answered(row.device) is False
    libc = next(row for row in rows if "/libc" in row.path)
    assert mapped_file(found, systems, libc) is not None and elf_candidates(found, systems, None, libc)
