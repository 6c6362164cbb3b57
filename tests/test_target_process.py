"""A live process: its sums against the kernel's, its bytes against those that it wrote, and no change to it."""

from __future__ import annotations

import errno
import gc
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import kernel, programs
from support.library import heap_of

from gdbheap._native import PRESENT, Pages
from gdbheap.errors import Fault, NotPermitted
from gdbheap.machines.machine import Machine
from gdbheap.targets.mappings import Mapping, parse_smaps
from gdbheap.targets.process import Preparation, Process, Registers, stopped

# argv: seed, folder. Prints addresses of: private memory, a private file mapping, shared memory.
SPREAD = """
import ctypes, mmap, os, random, signal, sys, threading
rng, folder = random.Random(sys.argv[1]), sys.argv[2]
pages = 2000
def address(m): return ctypes.addressof(ctypes.c_char.from_buffer(m))
private = mmap.mmap(-1, pages * 4096, flags=mmap.MAP_PRIVATE)
private.madvise(mmap.MADV_NOHUGEPAGE)
written = rng.sample(range(pages), 500)
for page in written: private[page * 4096] = 1
for page in rng.sample(range(pages), 500): private[page * 4096]
with open(folder + "/data", "wb") as f: f.write(b"".join(bytes([n % 256]) * 4096 for n in range(64)))
data = open(folder + "/data", "r+b")
file = mmap.mmap(data.fileno(), 0, flags=mmap.MAP_PRIVATE)
file.madvise(mmap.MADV_RANDOM)
file[3 * 4096 + 7] = 255
shared = mmap.mmap(-1, 8 * 4096)
shared[0:5] = b"there"
def named():
    ctypes.CDLL(None).prctl(15, b"a thread")
    signal.pause()
threading.Thread(target=named, daemon=True).start()
print(address(private), address(file), address(shared), file=sys.stderr, flush=True)
signal.pause()
"""
UNPRIVILEGED = 65534


@pytest.fixture
def spread(tmp_path: Path, rng: random.Random) -> Iterator[programs.Running]:
    """Yield the program SPREAD while it waits."""
    command = [programs.interpreter_of("stripped"), "-I", "-c", SPREAD, str(rng.random()), str(tmp_path)]
    with programs.running(command, tmp_path) as running:
        yield running


def addresses(running: programs.Running) -> list[int]:
    """Return the addresses that SPREAD printed."""
    return [int(word) for word in running.stderr.split()]


def test_the_books_are_the_kernels(spread: programs.Running) -> None:
    """Check that pages equal smaps mapping by mapping, and smaps_rollup in total, to the page."""
    with stopped(spread.pid) as process:
        assert process.pages is not None
        for mapping in parse_smaps(Path(f"/proc/{spread.pid}/smaps").read_bytes()):
            count = process.pages.count(mapping.start, mapping.end)
            assert (count.resident, count.swapped) == (mapping.rss, mapping.swap), mapping
        total = sum(process.pages.count(m.start, m.end).resident for m in process.mappings)
        assert process.rss.source == "smaps_rollup" and process.rss.bytes == total
    assert (process.rss.bytes, process.rss.swap) == kernel.rollup(spread.pid)
    assert process.warnings == [] and process.stopped_seconds is not None


def test_what_it_got_meanwhile_is_counted(rng: random.Random) -> None:
    """Check that sums from before a stop are used only if no page changed since; for a waiting process they are not
    read again."""
    program = "import sys; kept = []\nfor line in sys.stdin: kept.append(b'x' * int(line)); print(flush=True)"
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as target:
        try:
            assert target.stdin is not None and target.stdout is not None
            for size in (rng.randrange(5 << 20, 50 << 20), 0):
                preparation = Preparation(target.pid)
                preparation.add_up()
                assert preparation.sums is not None
                if size:
                    print(size, file=target.stdin, flush=True)
                    assert target.stdout.readline() == "\n"
                with stopped(target.pid, preparation=preparation) as process:
                    assert process.rss.bytes is not None and not process.warnings
                    assert (process.rss.bytes, process.rss.swap) == kernel.rollup(target.pid)
                    assert process.rss.bytes - (preparation.sums.bytes or 0) >= size // 4096 * 4096
                    assert (process.rss is preparation.sums) == (size == 0)
        finally:
            target.kill()


def test_reading_all_of_it_adds_no_page(spread: programs.Running) -> None:
    """Check that after reading every byte of private memory the process has not one page more than before."""
    before = kernel.rollup(spread.pid), resident_sizes(spread.pid)
    with stopped(spread.pid) as process:
        for mapping in process.mappings:
            if mapping.private and mapping.readable and not mapping.path.startswith("[v"):
                assert len(process.space.read(mapping.start, mapping.size)) == mapping.size
    assert (kernel.rollup(spread.pid), resident_sizes(spread.pid)) == before


def resident_sizes(pid: int) -> list[str]:
    """Return the Rss lines of smaps."""
    return [line for line in Path(f"/proc/{pid}/smaps").read_text().splitlines() if line.startswith("Rss")]


def test_bytes_of_each_kind(spread: programs.Running) -> None:
    """Check that absent private pages are zeros, absent file pages the file's, changed ones the process's; so is
    shared memory."""
    private, file, shared = addresses(spread)
    with stopped(spread.pid) as process:
        space = process.space
        pages = space.read(private, 2000 * 4096)
        assert sum(pages) == 500 and {pages[at] for at in range(0, len(pages), 4096)} == {0, 1}
        wanted = bytearray(b"".join(bytes([n % 256]) * 4096 for n in range(64)))
        wanted[3 * 4096 + 7] = 255
        assert space.read(file, len(wanted)) == bytes(wanted)
        assert space.read(shared, 5) == b"there"
        unmapped = process.mappings[0].start - 4096
        with pytest.raises(Fault) as fault:
            space.read(unmapped, 1)
        assert fault.value.args[0] == unmapped


def test_what_is_said_of_a_process(spread: programs.Running) -> None:
    """Check the program, threads with their names and thread pointers, stack, and objects."""
    with stopped(spread.pid) as process:
        about = {"kind": "process", "pid": spread.pid, "core": None, "exe": process.exe}
        assert process.describe() == {**about, **vars(process.identity)} and process.identity.start_time
        assert process.exe == str(Path(programs.interpreter_of("stripped")).resolve())
        assert {thread.tid for thread in process.threads} == {int(n) for n in os.listdir(f"/proc/{spread.pid}/task")}
        assert "a thread" in [thread.name for thread in process.threads]
        for thread in process.threads:
            assert (
                process.space.word(thread.thread_pointer) == thread.thread_pointer
            )  # glibc: the block begins with its own address
            assert process.mappings.find(thread.sp) is not None and process.object_of(thread.pc) is not None
        assert process.main_stack is not None and process.main_stack.path == "[stack]"
        assert all(owner.file is not None for owner in process.objects) and len(process.objects) >= 3


def test_it_runs_on_after_any_exception(spread: programs.Running) -> None:
    """Check that after any end of the block the process has no tracer and still handles signals."""
    for error in (ValueError, KeyboardInterrupt, SystemExit, MemoryError):
        with pytest.raises(error), stopped(spread.pid):
            assert programs.tracer(spread.pid) == os.getpid()
            raise error
        assert programs.tracer(spread.pid) == 0
    os.kill(spread.pid, signal.SIGTERM)
    assert spread.process.wait(programs.PATIENCE) == -signal.SIGTERM


def test_a_job_control_stop_is_kept(spread: programs.Running) -> None:
    """Check that a process that was stopped before is still stopped afterwards, and continues at SIGCONT."""
    os.kill(spread.pid, signal.SIGSTOP)
    os.waitpid(spread.pid, os.WUNTRACED)
    with stopped(spread.pid) as process:
        assert process.rss.bytes
    # The kernel wakes each thread to move it from one kind of stop into the other.
    wait_for(lambda: all(state(thread) == "T" for thread in Path(f"/proc/{spread.pid}/task").iterdir()))
    os.kill(spread.pid, signal.SIGCONT)
    assert os.waitpid(spread.pid, os.WCONTINUED)[0] == spread.pid
    spread.rest()


def state(folder: Path) -> str:
    """Return the state letter of a process or a thread."""
    return (folder / "stat").read_text().rpartition(")")[2].split()[0]


def wait_for(condition: Callable[[], bool]) -> None:
    """Return when ``condition`` is true; fail if it does not become so within a long time."""
    deadline = time.monotonic() + programs.PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_process_that_stands_already(spread: programs.Running) -> None:
    """Check that Process itself stops nothing: inside gdb, the threads come from gdb."""
    process = Process(spread.pid, [Registers(spread.pid, 1, 2, 3, [4, 5])])
    assert programs.tracer(spread.pid) == 0 and process.stopped_seconds is None
    assert [(t.tid, t.thread_pointer, t.sp, t.pc, t.registers) for t in process.threads] == [
        (spread.pid, 1, 2, 3, [4, 5])
    ]
    assert process.machine.page == resource.getpagesize()
    assert process.space.read(addresses(spread)[2], 5) == b"there"


def test_without_pagemap(spread: programs.Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that residency is unknown page by page, not zero, with a warning, and that smaps' figures of each
    mapping are kept."""

    class Closed:
        @staticmethod
        def from_pagemap(machine: Machine, path: str, ranges: list[tuple[int, int]], scan: bool = True) -> Pages:
            raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("gdbheap.targets.process.Pages", Closed)
    with stopped(spread.pid) as process:
        assert process.pages is None and "pagemap" in process.warnings[0] and process.rss.bytes
        assert sum(mapping.rss or 0 for mapping in process.mappings) == process.rss.bytes
        assert process.space.read(addresses(spread)[2], 5) == b"there"


def test_pagemap_that_differs_is_told(spread: programs.Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a warning states the difference if pagemap and smaps count differently."""

    class More:
        @staticmethod
        def from_pagemap(machine: Machine, path: str, ranges: list[tuple[int, int]], scan: bool = True) -> Pages:
            return Pages.from_runs(machine, [(ranges[0][0], ranges[0][1], PRESENT)])

    monkeypatch.setattr("gdbheap.targets.process.Pages", More)
    with stopped(spread.pid) as process:
        assert len(process.warnings) == 1 and "smaps differ in" in process.warnings[0]


class Unscanned:
    """``Pages`` of a kernel before 6.7, which does not know PAGEMAP_SCAN; ``read``: the bytes that were asked for."""

    read = 0

    @staticmethod
    def from_pagemap(machine: Machine, path: str, ranges: list[tuple[int, int]], scan: bool = True) -> Pages:
        if scan:
            raise OSError(errno.ENOTTY, "Inappropriate ioctl for device")
        Unscanned.read = sum(end - start for start, end in ranges)
        return Pages.from_pagemap(machine, path, ranges, False)


def test_pages_without_scan(spread: programs.Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that entries read one by one give the same pages as the kernel's runs."""
    with stopped(spread.pid) as process:
        assert process.pages is not None
        scanned = process.pages.runs(0, 1 << 63)
    monkeypatch.setattr("gdbheap.targets.process.Pages", Unscanned)
    with stopped(spread.pid) as process:
        assert process.pages is not None and process.warnings == []
        assert [run for run in process.pages.runs(0, 1 << 63) if run.state == PRESENT] == [
            run for run in scanned if run.state == PRESENT
        ]


def test_reserved_terabytes_are_not_read_without_scan(
    rng: random.Random, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that two terabytes without a page are not read page by page while the process is stopped."""
    monkeypatch.setattr("gdbheap.targets.process.Pages", Unscanned)
    with programs.running(programs.c_program("reserved", rng.getrandbits(30)), tmp_path) as running:
        with stopped(running.pid) as process:
            pages = process.pages
        assert (process.rss.bytes, process.rss.swap) == kernel.rollup(running.pid)
    assert pages is not None and process.warnings == []
    reserved = [mapping for mapping in process.mappings if mapping.size >= 1 << 40]
    assert sum(mapping.size for mapping in reserved) >= 2 << 40 and all(mapping.rss == 0 for mapping in reserved)
    assert Unscanned.read < 1 << 30
    assert sum(pages.count(m.start, m.end).resident for m in process.mappings) == process.rss.bytes


def test_older_kernels(spread: programs.Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the sums of smaps are used without smaps_rollup, and the status without smaps."""
    from gdbheap.host.procfs import ProcessFolder

    hidden = {"smaps_rollup"}
    read = ProcessFolder.read

    def partly(self: ProcessFolder, name: str, limit: int = 1 << 20) -> bytes:
        if name in hidden:
            raise FileNotFoundError(2, "No such file or directory")
        return read(self, name, limit)

    monkeypatch.setattr(ProcessFolder, "read", partly)
    preparation = Preparation(spread.pid)
    summed = Process(spread.pid, preparation=preparation)
    hidden.add("smaps")
    coarse = Process(spread.pid, preparation=preparation)
    assert (summed.rss.source, summed.rss.bytes) == ("smaps", kernel.rollup(spread.pid)[0])
    assert coarse.rss.source == "status" and coarse.rss.bytes and coarse.mappings[0].rss is None


def test_many_mappings(tmp_path: Path) -> None:
    """Check that 20,000 mappings are read, with their residency, during the stop."""
    script = "import mmap,signal,sys;m=mmap.mmap(-1,40000*4096,flags=2,prot=1)\nimport ctypes\n"
    script += "a=ctypes.CDLL(None);a.mprotect.argtypes=[ctypes.c_void_p,ctypes.c_size_t,ctypes.c_int]\n"
    script += "a.mmap.restype=ctypes.c_void_p;b=a.mmap(0,40000*4096,1,0x22,-1,0)\n"
    script += "[a.mprotect(b+i*4096,4096,3) for i in range(0,40000,2)];signal.pause()"
    with programs.running([programs.interpreter_of("stripped"), "-I", "-c", script], tmp_path) as running:
        with stopped(running.pid) as process:
            assert len(process.mappings) > 39_000 and not process.warnings
            assert process.rss.bytes == kernel.rollup(running.pid)[0]


def test_half_an_answer_without_memory(spread: programs.Running, tmp_path: Path) -> None:
    """Check that smaps and pagemap are answered for root without CAP_SYS_PTRACE, who may read them of a process with
    more capabilities."""
    setpriv = shutil.which("setpriv")
    if os.getuid() or setpriv is None:
        pytest.skip("needs root and setpriv")
    script = (
        "import sys\nfrom gdbheap.targets.process import stopped\n"
        "with stopped(int(sys.argv[1])) as p: print(p.partial, type(p.refusal).__name__, p.rss.bytes,"
        " p.pages is not None, p.space.contains(p.mappings[0].start, 1), len(p.warnings), p.warnings[0])"
    )
    command = [setpriv, "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace"]
    command += [sys.executable, "-c", script, str(spread.pid)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    if "CAP_SYS_PTRACE" not in done.stdout:
        pytest.skip(f"this kernel refuses smaps as well: {done.stderr[-200:]}")
    start = f"True NotPermitted {kernel.rollup(spread.pid)[0]} True False 1 gdbheap could read only mappings"
    assert done.stdout.startswith(start), done.stdout + done.stderr


def test_another_user_is_refused(spread: programs.Running, tmp_path: Path) -> None:
    """Check that one line names both users: not even the mappings of another user's process can be read."""
    if os.getuid():
        pytest.skip("needs root to become another user")
    script = (
        "import os,sys\nfrom gdbheap.targets.process import stopped\nfrom gdbheap.errors import NotPermitted\n"
        f"os.setgroups([]);os.setgid({UNPRIVILEGED});os.setuid({UNPRIVILEGED})\n"
        "try:\n  with stopped(int(sys.argv[1])): pass\nexcept NotPermitted as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(spread.pid)], capture_output=True, text=True, cwd=tmp_path)
    assert f"belongs to uid 0 and gdbheap runs as uid {UNPRIVILEGED}" in done.stdout, done.stderr


def test_a_second_tracer_is_named(spread: programs.Running) -> None:
    """Check that another tracer is named with its id, and that a process traced by gdbheap's own process is not
    refused."""
    with stopped(spread.pid):
        Process(spread.pid)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                with stopped(spread.pid):
                    pass
            except NotPermitted as error:
                status = 0 if f"already traced by {comm()} (process {os.getppid()})" in str(error) else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def comm() -> str:
    """Return this process's own name."""
    return Path("/proc/self/comm").read_text().strip()


def test_a_mapping_is_found_by_its_file(spread: programs.Running) -> None:
    """Check the file behind a private mapping: the kernel's own link, the same inode by its path, or none."""
    from gdbheap.targets.process import mapped_file

    preparation = Preparation(spread.pid)
    with stopped(spread.pid) as process:
        mapping = next(m for m in process.mappings if m.path.endswith("/data"))
        file = mapped_file(preparation.folder, preparation.systems, mapping)
        assert file is not None and os.path.samefile(file.number, mapping.path)
        elsewhere = Mapping(0, 4096, "r--p", 0, mapping.device, mapping.inode, mapping.path)
        by_path = mapped_file(preparation.folder, preparation.systems, elsewhere)
        assert by_path is not None and os.path.samefile(by_path.number, mapping.path)
        other = Mapping(0, 4096, "r--p", 0, mapping.device, mapping.inode + 1, mapping.path)
        assert mapped_file(preparation.folder, preparation.systems, other) is None


def test_nothing_stays_open(tmp_path: Path) -> None:
    """Check that files opened for a process are closed with the last reference to it, without the garbage collector."""
    with programs.running(programs.python_program("stripped", "pools", 1, 100), tmp_path) as target:
        before = len(os.listdir("/proc/self/fd"))
        gc.disable()
        try:
            with heap_of(str(target.pid)) as heap:
                assert heap.python.census is not None
                assert len(os.listdir("/proc/self/fd")) > before
            del heap
            assert len(os.listdir("/proc/self/fd")) == before
        finally:
            gc.enable()
