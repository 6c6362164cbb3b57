"""Packed cores, cores of coredumpctl, and files of debuginfod: the same answers as from the files themselves."""

from __future__ import annotations

import bz2
import gzip
import http.server
import io
import lzma
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from conftest import SEED
from support import kernel
from support.core_files import make_core, prstatus
from support.core_shapes import figures, holding
from support.programs import GDBHEAP, PATIENCE, ask, gdbheap, has_mount_namespaces, running

from gdbheap.errors import GdbheapError
from gdbheap.targets.core import Core
from gdbheap.targets.cores import debuginfod, timed_http, unpacking
from gdbheap.targets.cores.unpacking import packed_by

pytestmark = pytest.mark.cases(2)


def by_tool(*command: str) -> Callable[[bytes], bytes]:
    """Return a function that packs bytes with a tool; skip the test if there is none."""

    def pack(data: bytes) -> bytes:
        if shutil.which(command[0]) is None:
            pytest.skip(f"no {command[0]}")
        return subprocess.run(command, input=data, capture_output=True, check=True).stdout

    return pack


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "zstd": by_tool("zstd", "-qc"),
    # The format in which systemd stores them: blocks of 64 KiB.
    "lz4": by_tool("lz4", "-qc", "-B4"),
    "gzip": lambda data: gzip.compress(data, 1),
    "xz": lambda data: lzma.compress(data, preset=0),
    "bzip2": lambda data: bz2.compress(data, 1),
}


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a core of a program that holds some thousand blocks."""
    folder = tmp_path_factory.mktemp("core")
    with running(holding("stripped C", random.Random(f"{SEED} packed"), folder), folder) as target:
        return target.kernel_core()


@pytest.mark.parametrize("kind", PACKERS)
def test_a_packed_core_is_the_core(kind: str, core: Path, tmp_path: Path) -> None:
    """Check that the format is recognised by the first bytes, whatever the file's name is; only residency, which is
    unknown, differs."""
    packed = tmp_path / "packed"
    packed.write_bytes(PACKERS[kind](core.read_bytes()))
    assert packed_by(packed.read_bytes()[:6]) == kind
    assert figures(str(packed), False) == figures(str(core), False)
    answer, plain = ask("", str(packed)), ask("", str(core))
    assert answer["target"]["core"] == str(packed)
    assert answer["rss"]["bytes"] is None and plain["rss"]["bytes"] is not None
    assert {line["resident"] for line in answer["ledger"]} == {None}
    virtual = [{line["id"]: line["virtual"] for line in one["ledger"]} for one in (answer, plain)]
    assert virtual[0] == virtual[1]


@pytest.mark.parametrize("kind", PACKERS)
def test_a_part_of_a_packed_core(kind: str, core: Path, rng: random.Random, tmp_path: Path) -> None:
    """Check a packed core that is truncated or damaged anywhere: its beginning is a truncated core, or one line says
    what is wrong."""
    data = PACKERS[kind](core.read_bytes())
    whole = core.read_bytes()
    answered = 0
    for number in range(12):
        size = len(data) * number // 12 + rng.randrange(6, len(data) // 12)
        (tmp_path / "part").write_bytes(data[:size] + (rng.randbytes(50) if rng.random() < 0.3 else b""))
        try:
            found = Core(str(tmp_path / "part"))
        except GdbheapError as error:
            assert error.status in (4, 5)
            continue
        answered += 1
        assert found.partial and f"{kind} file is cut off" in str([damage.found for damage in found.damage])
        for segment in kernel.segments(core):
            there = found.space.read_available(segment.start, segment.file_size)
            noise = 64 << 10
            assert whole[segment.offset :][: max(0, len(there) - noise)] == there[: max(0, len(there) - noise)]
    assert answered
    (tmp_path / "part").write_bytes(data[: len(data) * 3 // 4])
    done = gdbheap(str(tmp_path / "part"))
    assert done.returncode == 1 and "is truncated" in done.stdout


def test_several_streams_and_padding(core: Path, tmp_path: Path) -> None:
    """Check that adjacent members are one core, and that zeros after the last are ignored."""
    data = core.read_bytes()
    half = len(data) // 2
    for kind in ("gzip", "xz", "bzip2"):
        pack = PACKERS[kind]
        (tmp_path / kind).write_bytes(pack(data[:half]) + pack(data[half:]) + bytes(512))
        assert not Core(str(tmp_path / kind)).damage, kind


def test_no_room(core: Path, tmp_path: Path) -> None:
    """Check a full disk and a limit on files: one line names the folder and the remedy, and nothing is left there."""
    packed, room = tmp_path / "packed", tmp_path / "room"
    packed.write_bytes(gzip.compress(core.read_bytes(), 1))
    room.mkdir()

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 18, 1 << 18))

    environment = {**os.environ, "TMPDIR": str(room)}
    command = [str(GDBHEAP), str(packed)]
    mounted = f"mount -t tmpfs -o size=256k none {room} && exec {' '.join(command)}"
    full = ["unshare", "--mount", "sh", "-c", mounted] if has_mount_namespaces() else None
    for words, prepare in ((command, limit), (full, None)):
        if words is None:
            continue
        done = subprocess.run(
            words, env=environment, capture_output=True, text=True, preexec_fn=prepare, timeout=PATIENCE
        )
        assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done.stderr
        assert str(room) in done.stderr and "there is no room to unpack" in done.stderr and "TMPDIR" in done.stderr
        assert list(room.iterdir()) == []
    environment["TMPDIR"] = str(tmp_path / "none")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1 and "no file can be created" in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_behind(number: signal.Signals, tmp_path: Path) -> None:
    """Check that no file stays if the command is ended in the middle, by any signal."""
    size, times = 64 << 20, 1000
    head = bytearray(make_core(tmp_path / "core", prstatus(7), [(0x10000, size, b"", 6)]).read_bytes())
    # The second program header claims the number of bytes that follow in the file.
    struct.pack_into("<QQ", head, 64 + 56 + 32, size * times, size * times)
    # It would unpack for minutes, into holes.
    with (tmp_path / "packed").open("wb") as file:
        file.write(gzip.compress(head) + gzip.compress(bytes(size), 1) * times)
    room = tmp_path / "room"
    room.mkdir()
    with subprocess.Popen(
        [str(GDBHEAP), str(tmp_path / "packed")],
        env={**os.environ, "TMPDIR": str(room)},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    ) as process:
        deadline = time.monotonic() + PATIENCE
        while not unpacks(process.pid, room):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        assert list(room.iterdir()) == []
        process.send_signal(number)
        _out, errors = process.communicate(timeout=PATIENCE)
    assert list(room.iterdir()) == []
    if number != signal.SIGKILL:
        assert process.returncode == 1 and len(errors.splitlines()) == 1


def unpacks(pid: int, room: Path) -> bool:
    """Return whether a process has an unnamed file in a folder."""
    try:
        links = [os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
    except OSError:
        return False
    return any(link.startswith(str(room)) and link.endswith("(deleted)") for link in links)


# coredumpctl.

# A simulated coredumpctl, following coredumpctl(1): dump writes the last core that matches, by pid, name or path, to
# standard output, which may not be a terminal. Other text goes to standard error, and the status is 1 if nothing
# matches.
COREDUMPCTL = """#!{python}
import os, shutil, sys
words = [word for word in sys.argv[1:] if word not in ("--quiet", "-q", "--no-pager")]
if len(words) != 2 or words[0] != "dump":
    sys.exit("Unknown command verb")
if os.isatty(1):
    sys.exit("Refusing to dump core to tty (use shell redirection or specify --output=).")
known = {known!r}
if words[1] not in known:
    sys.exit("No match found.")
sys.stderr.write("           PID: 1234 (recorder)\\n       Storage: /var/lib/systemd/coredump/core.zst (present)\\n")
sys.stderr.flush()
with open({core!r}, "rb") as file:
    data = file.read()
sys.stdout.buffer.write(data[: {size}])
sys.stdout.flush()
sys.exit({status})
"""


def coredumpctl(folder: Path, core: Path, size: int | None = None, status: int = 0) -> dict[str, str]:
    """Return an environment with a coredumpctl that has one core, or the first ``size`` bytes of this core."""
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    tool = tools / "coredumpctl"
    known = ("1234", "recorder", "/usr/bin/recorder")
    tool.write_text(COREDUMPCTL.format(python=sys.executable, known=known, core=str(core), size=size, status=status))
    tool.chmod(0o755)
    return {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}


def asked(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """Run the shell command with an environment."""
    command = [str(GDBHEAP), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE)


def test_cores_of_coredumpctl(core: Path, tmp_path: Path) -> None:
    """Check that any noun, with any of the names, is answered about the core itself."""
    environment = coredumpctl(tmp_path, core)
    plain = gdbheap("arenas", str(core)).stdout
    for match in ("1234", "recorder", "/usr/bin/recorder"):
        for words in (["arenas", "--coredump", match], [f"--coredump={match}", "arenas"]):
            done = asked(environment, *words)
            assert done.returncode == 0 and not done.stderr
            assert done.stdout.splitlines()[:6] == plain.splitlines()[:6]
    assert asked(environment, "--coredump", "1234").returncode == 0
    block = next(one.start for one in kernel.segments(core) if one.file_size)
    assert asked(environment, "at", "--coredump", "1234", hex(block)).returncode == 0


def test_coredumpctl_has_none(core: Path, tmp_path: Path) -> None:
    """Check one line and a status for each: no match, no such tool, a truncated core, and a wrong command line."""
    environment = coredumpctl(tmp_path, core)
    done = asked(environment, "--coredump", "99")
    assert done.returncode == 4 and "No match found." in done.stderr and len(done.stderr.splitlines()) == 1
    (tmp_path / "bare").mkdir()
    done = asked({**os.environ, "PATH": str(tmp_path / "bare")}, "--coredump=99", "holes")
    assert done.returncode == 4 and "there is no coredumpctl" in done.stderr and len(done.stderr.splitlines()) == 1
    for words in (["--coredump=-x"], ["diff", "--coredump=1", "2"], ["stats", "--coredump=1234"], ["--coredump"]):
        done = asked(environment, *words)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    size = core.stat().st_size
    done = asked(coredumpctl(tmp_path, core, size * 2 // 3), "--coredump=1234")
    assert done.returncode == 1 and "missing" in done.stdout
    done = asked(coredumpctl(tmp_path, core, status=3), "--coredump=1234")
    assert done.returncode == 1 and "ended with status 3" in done.stdout


# debuginfod.


class Server(http.server.BaseHTTPRequestHandler):
    """Serves files by their build-ids as debuginfod(8) does."""

    files: dict[str, bytes] = {}
    asked: list[str] = []

    def do_GET(self) -> None:
        """Answer one request."""
        self.asked.append(self.path)
        data = self.files.get(self.path)
        self.send_response(200 if data else 404)
        self.send_header("Content-Length", str(len(data or b"")))
        self.end_headers()
        self.wfile.write(data or b"")

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


class Dripping(http.server.BaseHTTPRequestHandler):
    """Sends a byte of the head or of the body now and then, forever."""

    def do_GET(self) -> None:
        """Begin one answer and never end it."""
        self.wfile.write(b"HTTP/1.1 200 OK\r\n" + (b"" if "head" in self.path else b"Content-Length: 999999\r\n\r\n"))
        with suppress(OSError):
            while True:
                self.wfile.write(b"x")
                time.sleep(0.05)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@pytest.mark.parametrize("part", ["head", "body"])
def test_time_of_a_whole_answer(part: str) -> None:
    """Check that a server that sends a byte now and then holds nobody longer than the time for the whole answer."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Dripping) as found:
        found.daemon_threads = True
        threading.Thread(target=found.serve_forever, daemon=True).start()
        with pytest.raises(TimeoutError):
            with timed_http.get(f"http://127.0.0.1:{found.server_port}/{part}", time.monotonic() + 0.5) as answer:
                while answer.read1(100):
                    pass
        found.shutdown()


@pytest.fixture
def server() -> Iterator[str]:
    """Yield the address of a server on this machine."""
    Server.files, Server.asked = {}, []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{found.server_port}"
        found.shutdown()


def test_files_of_debuginfod(server: str, rng: random.Random, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a server is asked only if the user names one, and then once, for missing files; the build-id in the
    file decides."""
    command = holding("static", rng, tmp_path)
    with running(command, tmp_path) as target:
        core = target.kernel_core()
    build_id = next(loaded.build_id for loaded in Core(str(core)).objects)
    program = Path(command[0]).rename(tmp_path / "away")
    assert build_id is not None
    place = f"/buildid/{build_id}/executable"
    (tmp_path / "tools").mkdir()
    environment = {**os.environ, "DEBUGINFOD_CACHE_PATH": str(tmp_path / "cache"), "PATH": str(tmp_path / "tools")}
    environment.pop("DEBUGINFOD_URLS", None)

    def file_of() -> str:
        done = subprocess.run(
            [str(GDBHEAP), "info", str(core)], env=environment, capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == 0, done.stderr
        return next(line for line in done.stdout.splitlines() if line.startswith("object") and "recorder" in line)

    Server.files[place] = b"\x7fELF and nothing else"
    assert "has the same" not in file_of() and Server.asked == []
    environment["DEBUGINFOD_URLS"] = f"{server}/none {server}"
    if os.geteuid() != 12345:
        environment["SUDO_UID"] = "12345"
        assert "has the same" not in file_of() and Server.asked == [] and not (tmp_path / "cache").exists()
        del environment["SUDO_UID"]
    assert "has the same" not in file_of() and place in Server.asked
    shutil.rmtree(tmp_path / "cache")
    Server.files[place] = program.read_bytes()
    cached = tmp_path / "cache" / build_id / "executable"
    assert f"{cached} has the same" in file_of() and cached.read_bytes() == program.read_bytes()
    assert list(cached.parent.iterdir()) == [cached]
    count = len(Server.asked)
    del environment["DEBUGINFOD_URLS"]
    assert f"{cached} has the same" in file_of() and len(Server.asked) == count
    # The client's own tool, if it is installed.
    shutil.rmtree(tmp_path / "cache")
    environment["DEBUGINFOD_URLS"] = server
    tool = tmp_path / "tools" / "debuginfod-find"
    tool.write_text(f'#!/bin/sh\n[ "$1 $2" = "executable {build_id}" ] && echo {program}\n')
    tool.chmod(0o755)
    assert f"{program} has the same" in file_of() and len(Server.asked) == count


def test_debuginfod_is_bounded(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a file that is too large is not kept, that a missing server is no error, and that no other address
    is asked."""
    monkeypatch.setenv("DEBUGINFOD_CACHE_PATH", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("DEBUGINFOD_URLS", raising=False)
    assert debuginfod.fetcher() is None
    monkeypatch.setenv("DEBUGINFOD_URLS", "file:///etc ftp://127.0.0.1")
    assert debuginfod.fetcher() is None
    Server.files["/buildid/abcdef/executable"] = bytes(3 << 20)
    monkeypatch.setattr(debuginfod, "LARGEST", 1 << 20)
    monkeypatch.setenv("DEBUGINFOD_URLS", f"http://127.0.0.1:9 {server}")
    fetch = debuginfod.fetcher()
    assert fetch is not None and fetch("abcdef") is None and fetch("../../x") is None and fetch("00") is None
    assert Server.asked == ["/buildid/abcdef/executable"]
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []
    monkeypatch.setattr(debuginfod, "LARGEST", 8 << 20)
    assert fetch("abcdef") is not None and len(debuginfod.cached("abcdef")) == 1


class CountingDecoder:
    """A decoder of gzip that counts the bytes that it returns."""

    given_back = 0

    def __init__(self) -> None:
        self._decoder = zlib.decompressobj(zlib.MAX_WBITS | 16)

    def decompress(self, packed: bytes, most: int) -> bytes:
        """Return at most so many bytes."""
        found = self._decoder.decompress(packed, most)
        CountingDecoder.given_back += len(self._decoder.unused_data) + len(self._decoder.unconsumed_tail)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._decoder, name)


def test_many_small_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the copied bytes grow with the file, whatever the number of streams in it."""
    empty, end = gzip.compress(b""), gzip.compress(b"end")
    monkeypatch.setitem(unpacking.DECODERS, b"\x1f\x8b", ("gzip", CountingDecoder))
    for count in (3000, 30_000):
        CountingDecoder.given_back = 0
        pieces = unpacking._pieces(io.BytesIO(empty * count + end), empty[:6])
        assert [piece for piece, _position in pieces] == [b"end"]
        # For each portion, only the stream itself.
        assert CountingDecoder.given_back <= (count + 1) * unpacking.FIRST


@pytest.mark.parametrize("kind", ["gzip", "xz", "bzip2"])
def test_streams_one_after_the_other(kind: str, rng: random.Random) -> None:
    """Check that streams of all sizes, with zeros after the last one, are unpacked to the original bytes."""
    sizes = [0, 1, unpacking.FIRST, 3 * unpacking.PIECE, *(rng.randrange(1 << rng.randrange(1, 21)) for _ in range(12))]
    parts = [rng.choice([rng.randbytes(size), bytes(size)]) for size in sizes]
    rng.shuffle(parts)
    packed = b"".join(map(PACKERS[kind], parts)) + bytes(rng.randrange(3000))
    found = unpacking._pieces(io.BytesIO(packed), packed[:6])
    assert b"".join(piece for piece, _position in found) == b"".join(parts)
