"""A process behind gdbserver: the same answers, and it runs on. Also the file packets, against a simulated server."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.gdb_side import batch, documents, executed, gdb, home, needs_gdb, own_lines, runs
from support.programs import Running, ask, c_program, python_program, running, whole_lists

from gdbheap._native import PRESENT, SWAPPED, ZERO, Pages
from gdbheap.commands.gdb import remote_target
from gdbheap.commands.gdb.remote_files import RemoteFiles
from gdbheap.commands.gdb.remote_target import RemoteProcess, _file_part, _filled
from gdbheap.errors import GdbheapError
from gdbheap.machines.machine import X86_64
from gdbheap.targets.elf import ElfFile
from gdbheap.targets.mappings import parse_smaps

pytestmark = pytest.mark.cases(1)

needs_server = pytest.mark.skipif(shutil.which("gdbserver") is None, reason="no gdbserver")
ASKED = ("arenas", "holes --min=64K", "pools", "pyobjects --top=50", "trim", "map", "check", "")


def gdb_damages() -> bool:
    """Return whether gdb's own calls damage a process here: gdb before 14 on a CPU with AMX."""
    said = subprocess.run(["gdb", "--version"], capture_output=True, text=True).stdout.splitlines()[0]
    version = int(said.split()[-1].split(".")[0])
    return version < 14 and " amx_tile" in Path("/proc/cpuinfo").read_text()


@contextlib.contextmanager
def served(target: Running) -> Iterator[str]:
    """Yield the address of a gdbserver that is attached to the process; the server ends when gdb detaches."""
    command = ["gdbserver", "--once", "--attach", "localhost:0", str(target.pid)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    try:
        port = next(line.split()[-1] for line in server.stderr if line.startswith("Listening on port"))
        yield f"localhost:{port}"
        server.wait(30)
    finally:
        if server.poll() is None:
            server.terminate()
        server.wait(30)
        server.stderr.close()


def connected(address: str) -> list[str]:
    """Return gdb's arguments: files come from this machine's root, so that none is fetched through the server."""
    return ["-iex", "set sysroot /", "-ex", f"target remote {address}"]


@needs_gdb
@needs_server
@pytest.mark.parametrize("kind", ["stripped", "unstripped"])
def test_same_answers(kind: str, rng: random.Random, tmp_path: Path) -> None:
    """Check every command, residency included, and the process's own figures; then the process runs on."""
    environment = home(tmp_path)
    with running(python_program(kind, "fragmented", rng.randrange(1 << 30), 30), tmp_path) as started:
        with served(started) as address:
            gdb(["-batch", *connected(address)], environment)
        with served(started) as address:
            lines = [" ".join(["heap", line, *whole_lists(*line.split()), "--json"]) for line in ASKED]
            done = batch(connected(address), lines, environment)
        assert done.returncode == 0, done.stderr
        assert own_lines(done) == []
        assert len(documents(done)) == len(ASKED)
        for line, ours in zip(ASKED, documents(done)):
            noun, *options = line.split() or [""]
            theirs = ask(noun, str(started.pid), *options)
            # The host of a remote target is not known to be a container. Through gdbserver the command line of the
            # program is unknown.
            apart: dict[str, Any] = {"warnings": [], "control_group": None, "program": "", "verdict": "", "next": []}
            apart |= {"holders": [], "imported": None, "meanwhile": None}
            if "rss" in ours:
                # Clean, dirty and shared pages of files are unknown for a remote target.
                unknown = dict.fromkeys(("file_clean", "file_dirty", "shared"))
                assert ours["rss"] == {**theirs["rss"], **unknown}
                apart["rss"] = None
            if "findings" in ours:
                # Some findings are about holders: all that are found remotely are found here, with as many bytes.
                known = {(found["id"], found["bytes"]) for found in theirs["findings"]}
                assert known.issuperset((found["id"], found["bytes"]) for found in ours["findings"]), line
                assert {*ours["unknown_findings"]} >= {*theirs["unknown_findings"]}
                apart |= {"findings": [], "unknown_findings": []}
            assert {**ours, **apart} == {**theirs, **apart}, line
        if gdb_damages():
            return
        with served(started) as address:
            lines = ["heap stats --json", "heap trim --yes --json"]
            said, done_to = documents(batch(connected(address), lines, environment))
        assert said["agrees"] is True
        assert abs(done_to["predicted"] - done_to["actual"]) <= max(64 << 10, done_to["actual"] // 50), done_to
        assert done_to["predicted"] > 0
        assert runs(started.pid)
        started.rest()


@needs_gdb
@needs_server
def test_call_through_a_server_leaves_no_signal(rng: random.Random, tmp_path: Path) -> None:
    """Check that the SIGSEGV that ended gdb's call is not delivered when gdbserver detaches, and that registers are
    as before."""
    environment = home(tmp_path)
    command = c_program("holes", rng.randrange(1 << 30), 10, 100_000, 1, 0, tmp_path / "table")
    names = "('rip', 'rax', 'orig_rax', 'rsp', 'eflags')"
    look = f"python print('REGISTERS', *(gdb.newest_frame().read_register(name) for name in {names}))"
    if gdb_damages():
        pytest.skip("gdb's own calls damage processes on this CPU: test_refused_where_gdb_damages")
    with running(command, tmp_path) as started:
        with served(started) as address:
            commands = ["thread 2", look, "heap stats --json", "thread", look]
            done = gdb([*connected(address), "-batch", "-x", "gdbheap", *executed(commands)], environment)
        assert done.returncode == 0, done.stderr
        lines = [line for line in done.stdout.splitlines() if line.startswith("REGISTERS")]
        assert len(lines) == 2 and lines[0] == lines[1]
        assert documents(done)[0]["agrees"] is True
        assert runs(started.pid)
        started.rest()


@needs_gdb
@needs_server
@pytest.mark.parametrize("line", ["heap stats --json", "heap trim --yes --json"])
def test_refused_where_gdb_damages(line: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that a gdb before 14 on a CPU with AMX, real or simulated, gives one line and calls nothing."""
    environment = {**home(tmp_path), "GDBHEAP_LONG_STATE": "" if gdb_damages() else "1"}
    version = subprocess.run(["gdb", "--version"], capture_output=True, text=True).stdout.splitlines()[0].split()[-1]
    if int(version.split(".")[0]) >= 14:
        pytest.skip("this gdb knows AMX")
    command = c_program("holes", rng.randrange(1 << 30), 10, 100_000, 1, 0, tmp_path / "table")
    with running(command, tmp_path) as started:
        with served(started) as address:
            done = batch(connected(address), [line], environment)
        assert done.returncode == 1 and {one["error"]["status"] for one in documents(done)} <= {1}
        assert len(own_lines(done)) == 1 and "AMX" in own_lines(done)[0], done.stderr
        assert runs(started.pid)
        started.rest()


def test_absent_pages_are_not_asked_for(rng: random.Random) -> None:
    """Check against a byte-by-byte model that each byte comes from a source that may be asked for this byte."""
    page = 4096
    for _ in range(50):
        states = [rng.choice([0, PRESENT, SWAPPED, ZERO]) for _ in range(20)]
        pages = Pages.from_runs(X86_64, [(i * page, (i + 1) * page, state) for i, state in enumerate(states) if state])
        address, size = rng.randrange(15 * page), rng.randrange(5 * page)

        def read(start: int, count: int, states: list[int] = states) -> bytes:
            assert all(states[place // page] in (PRESENT, SWAPPED) for place in range(start, start + count))
            return bytes((place * 7) % 251 for place in range(start, start + count))

        def absent(start: int, count: int) -> bytes:
            return bytes((place * 3) % 13 for place in range(start, start + count))

        def byte(place: int, states: list[int] = states) -> int:
            return place * 7 % 251 if states[place // page] in (PRESENT, SWAPPED) else place * 3 % 13

        found = _filled(pages, address, size, read, absent)
        assert found == bytes(byte(place) for place in range(address, address + size))


class Server:
    """Answers file packets for real files as gdbserver does: a few bytes at a time, with the four special bytes
    escaped."""

    def __init__(self, rng: random.Random, escapes: bool) -> None:
        self.rng = rng
        self.escapes = escapes
        self.opened: set[int] = set()

    def send(self, packet: bytes) -> bytes:
        name, _, words = packet.removeprefix(b"vFile:").partition(b":")
        try:
            return getattr(self, name.decode())(*words.split(b","))
        except OSError as error:
            return b"F-1,%x" % (error.errno or 0)

    def open(self, path: bytes, flags: bytes, mode: bytes) -> bytes:
        number = os.open(bytes.fromhex(path.decode()), os.O_RDONLY)
        self.opened.add(number)
        return b"F%x" % number

    def close(self, number: bytes) -> bytes:
        os.close(int(number, 16))
        self.opened.remove(int(number, 16))
        return b"F0"

    def pread(self, number: bytes, size: bytes, offset: bytes) -> bytes:
        most = min(int(size, 16), self.rng.randrange(1, 300))
        return self.answer(os.pread(int(number, 16), most, int(offset, 16)))

    def readlink(self, path: bytes) -> bytes:
        return self.answer(os.fsencode(os.readlink(bytes.fromhex(path.decode()))))

    def answer(self, data: bytes) -> bytes:
        sent = b"".join(b"}" + bytes([byte ^ 32]) if byte in b"$#}*" else bytes([byte]) for byte in data)
        return b"F%x;" % len(data) + (sent if self.escapes else data)


@pytest.mark.parametrize("escapes", [True, False])
def test_remote_files(escapes: bool, rng: random.Random, tmp_path: Path) -> None:
    """Check whole files, ranges past the end, and links; every descriptor is closed, and escapes are undone exactly
    once."""
    content = bytes(rng.choice(b"$#}*\x00abc;,\xff") for _ in range(rng.randrange(1, 3000)))
    path = tmp_path / "a file, with $ign#"
    path.write_bytes(content)
    (tmp_path / "link").symlink_to(path)
    server = Server(rng, escapes)
    files = RemoteFiles(server.send)
    assert files.read(str(path), 1 << 20) == content
    limit = rng.randrange(1, 4000)
    assert files.read(str(path), limit) == content[:limit]
    ranges = [(rng.randrange(4000), rng.randrange(1, 500)) for _ in range(20)]
    assert files.read_ranges(str(path), ranges) == [content[start : start + size] for start, size in ranges]
    assert files.link(str(tmp_path / "link")) == str(path)
    with pytest.raises(FileNotFoundError):
        files.read(str(tmp_path / "none"), 10)
    assert server.opened == set()


def test_a_file_that_became_another(tmp_path: Path) -> None:
    """Check a file that became a pipe: the process behind the server names it, its owner may replace it, and a pipe
    would wait for a writer."""
    path = shutil.copy("/bin/true", tmp_path / "program")
    elf = ElfFile(str(path))
    assert _file_part(elf, 0, 4) == b"\x7fELF"
    os.unlink(path)
    os.mkfifo(path)
    assert _file_part(elf, 0, 4) == b""


@pytest.mark.parametrize("answer", [b"", b"E01", b"F", b"Fzz", b"F-1", b"F-1,zz", b"OK"])
def test_hostile_server(answer: bytes) -> None:
    """Check that any other answer is an OSError."""
    with pytest.raises(OSError):
        RemoteFiles(lambda packet: answer).read("/proc/1/maps", 100)


def test_endless_file() -> None:
    """Check that a file without an end is cut at the limit."""
    answers = {b"vFile:open": b"F5", b"vFile:clos": b"F0", b"vFile:prea": b"F10;" + b"x" * 16}
    assert len(RemoteFiles(lambda packet: answers[packet[:10]]).read("/any", 1000)) >= 1000


@pytest.mark.parametrize(("size", "said"), [(1 << 40, "reserved so much memory"), (1 << 20, "beyond 2 GiB")])
def test_a_pagemap_that_takes_too_long(
    size: int, said: str, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check that the entries of a huge mapping are not asked for, and that a server that cannot read the last entries,
    as of a position-independent program, is not asked for the others."""
    asked = []

    def send(packet: bytes) -> bytes:
        if packet.startswith(b"vFile:pread"):
            asked.append(int(packet.split(b",")[2], 16))
            return b"F-1,16" if asked[-1] >= 1 << 31 else b"F8;" + bytes(8)
        return b"F5" if packet.startswith(b"vFile:open") else b"F0"

    low = rng.randrange(1 << 16, 1 << 20) << 12
    monkeypatch.setattr(remote_target, "_is_here", lambda *_: False)
    process = RemoteProcess.__new__(RemoteProcess)
    process._files, process.machine, process.pid, process.pages = RemoteFiles(send), X86_64, 7, None
    high = 0x7F0000000000
    text = "".join(
        f"{start:x}-{start + one:x} rw-p 00000000 00:00 0\nRss: 4 kB\n" for start, one in ((low, size), (high, 4096))
    )
    process.mappings, process.warnings = parse_smaps(text.encode()), []
    process._read_pages()
    assert process.pages is None and [said in one for one in process.warnings] == [True]
    assert asked == ([] if size > 1 << 30 else [high // 4096 * 8])


def test_lists_of_mappings_that_were_cut(rng: random.Random) -> None:
    """Check that no answer is made from a part of the mappings: the shorter list serves if the longer one is cut, and
    a cut shorter one is refused."""
    row = b"%x-%x rw-p 00000000 00:00 0 \n"
    count = rng.randrange(10, 60_000)
    few = b"".join(row % (at << 13, (at << 13) + 4096) for at in range(1, count + 1))
    process = RemoteProcess.__new__(RemoteProcess)
    process.pid, process.rss = 7, None
    files = {
        "/proc/7/maps": lambda limit: few[:limit],
        "/proc/7/smaps": lambda limit: (few + b"Rss: 4 kB\n" * limit)[:limit],
    }
    process._files = lambda path, limit: files[path](limit)
    process._read_mappings()
    assert len(process.mappings) == count and process.rss is None
    files["/proc/7/maps"] = lambda limit: (few * (limit // len(few) + 1))[:limit]
    with pytest.raises(GdbheapError, match="too many mappings"):
        process._read_mappings()


def test_lists_of_mappings_that_overlap(rng: random.Random) -> None:
    """Check that a list in which mappings overlap is refused in one line."""
    starts = sorted(rng.sample(range(1, 1 << 20), 20))
    rows = [f"{start << 12:x}-{start + 1 << 12:x} rw-p 0 00:00 0 \nRss: 4 kB\n" for start in starts]
    rows.insert(rng.randrange(20), f"0-{rng.choice(starts[1:]) << 12:x} rw-p 0 00:00 0 [stack]\nRss: 4 kB\n")
    process = RemoteProcess.__new__(RemoteProcess)
    process.pid = 7
    process._files = lambda path, limit: "".join(rows).encode()
    with pytest.raises(GdbheapError, match="of process 7 is wrong: some overlap$"):
        process._read_mappings()
