"""Bombs: small files and names of others that would need gigabytes, or hours. Each causes one line of error.

Each command runs under a limit on its address space, which is enough for gdbheap but not for the bomb.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import random
import resource
import signal
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import pytest
from support.busy import wait_for
from support.gdb_side import compiled
from support.programs import GDBHEAP, KINDS, PATIENCE, gdbheap, python_program, running

from gdbheap import _native
from gdbheap.errors import UsageError
from gdbheap.sampling.series import COLUMNS, MAX_LINE_BYTES
from gdbheap.sampling.series import NUMBER as SERIES_NUMBER
from gdbheap.sampling.series import read as read_series
from gdbheap.snapshots.file import ENTRY, FORMAT, read
from gdbheap.snapshots.file import NUMBER as SCHEMA
from gdbheap.targets.core import Core
from gdbheap.targets.elf import SymbolRoom
from gdbheap.targets.functions import Functions
from gdbheap.tracing.log import FRAME, MAGIC, PROCESS, read_log

MEGA = 1 << 20
ADDRESS_SPACE = 2 << 30
FILE_SIZE = 4 * MEGA
HEADER = {"format": FORMAT, "schema": SCHEMA, "time": 1.0, "version": "1", "target": {}}


def limited(size: int = ADDRESS_SPACE) -> None:
    """Limit a child's address space."""
    resource.setrlimit(resource.RLIMIT_AS, (size, size))


def refused(words: list[str], status: int, size: int = ADDRESS_SPACE) -> str:
    """Run the shell command under the limit; return its one line of errors."""
    done = gdbheap(*words, preexec_fn=lambda: limited(size))
    assert (done.returncode, done.stderr.count("\n"), done.stdout) == (status, 1, ""), done.stderr
    assert "fault of gdbheap" not in done.stderr and "MemoryError" not in done.stderr
    return done.stderr


# Names.


def place(number: int) -> str:
    """Return the name of the part of a mangled name with that number."""
    digits, number = "", number - 1
    while number >= 0:
        digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[number % 36] + digits
        number = number // 36 if number >= 36 else -1
    return f"S{digits}_"


def grown(levels: int, width: int) -> str:
    """Return a mangled class whose name has ``width`` to the power of ``levels`` parts.

    Names with over 20 levels are not read.
    """
    return "1TI1A" + "".join(f"S_I{place(number) * width}E" for number in range(1, levels + 1)) + "E"


def unparsable(rng: random.Random) -> list[str]:
    """Return names whose parsing does not end in a parser that tries several meanings for each part."""
    count = rng.randrange(12, 30)
    return [
        "_Z1fIX" + "nwT_" * count,
        "_Z1fI" + "ILSa" * count + "D1" * count + "EGR",
        "_ZTSSaI" + "LSaI" * count + "LUlvE_0E" + "0EE" * count,
        "_ZTS1AI" + "SaISt1A" * count + "XngsrS_IiE1aIiEE" + "E" * 2 * count,
        "_ZTSO" + "AnwL" * count + "K_" * count + "gs",
    ]


def test_names_that_explode(rng: random.Random) -> None:
    """Check that names that would need gigabytes or years are not read, but names of compilers are."""
    code = "import sys; from gdbheap._native import demangle\nfor name in sys.stdin: print(demangle(name.strip()))"
    names = [*unparsable(rng), *(f"_ZTS{grown(levels, rng.randrange(3, 9))}" for levels in (10, 18, 20, 200))]
    words = [sys.executable, "-c", code]
    done = subprocess.run(
        words, input="\n".join(names), capture_output=True, text=True, preexec_fn=limited, timeout=PATIENCE, cwd="/"
    )
    assert done.returncode == 0 and done.stdout.split() == ["None"] * len(names), done.stderr[-2000:]
    assert _native.demangle(f"_ZTS{grown(2, 2)}") == "typeinfo name for T<A, T<A, A>, T<T<A, A>, T<A, A> > >"


CLASSES = """
#include <stdlib.h>
#include <unistd.h>
/* Objects of a class whose type_info has that name (Itanium C++ ABI, 2.5 and 2.9.5). */
static const char own_name[] = "N10__cxxabiv117__class_type_infoE";
static const char evil_name[] = "{name}";
struct info {{ const void *vtable; const char *name; }};
static struct {{ long to_top; const struct info *info; void *functions[4]; }} meta, evil;
static struct info own_info, evil_info;
static void **keep[1000];
int main(void) {{
    own_info = (struct info){{meta.functions, own_name}};
    evil_info = (struct info){{meta.functions, evil_name}};
    meta.info = &own_info;
    evil.info = &evil_info;
    for (int i = 0; i < 1000; i++) {{ keep[i] = malloc(64); keep[i][0] = evil.functions; }}
    write(1, "ready\\n", 6);
    for (;;) pause();
}}
"""


def test_class_of_a_target(rng: random.Random, tmp_path: Path) -> None:
    """Check that a process with a class that has such a name is answered under the limit."""
    source = CLASSES.format(name=grown(rng.randrange(18, 21), rng.randrange(4, 9)))
    with compiled(source, tmp_path) as program, running([str(program)], tmp_path) as target:
        done = gdbheap("chunks", str(target.pid), "--by=type", preexec_fn=limited)
    assert done.returncode == 0, done.stderr[-2000:]


# Snapshots.


def snapshot(path: Path, document: str | bytes, **columns: bytes) -> str:
    """Write a snapshot as any user could, and return its path."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(ENTRY, document)
        for name, content in columns.items():
            archive.writestr(f"blocks/{name}", content)
    return str(path)


@pytest.mark.cases(2)
@pytest.mark.parametrize(
    "filling",
    ["[" * 100_000, "[[],[],[]],", " " * MEGA, '{"a":1},' * 1000, '"\\u0001",'],
    ids=["deep", "lists", "spaces", "dicts", "texts"],
)
def test_documents_that_explode(filling: str, tmp_path: Path) -> None:
    """Check documents of spaces, of empty lists, or of brackets only."""
    document = json.dumps(HEADER)[:-1] + ', "x": [' + filling * max(1, (96 << 20) // len(filling)) + "1]}"
    path = snapshot(tmp_path / "bomb.heap", document)
    line = refused(["diff", path, path], 2)
    assert "claims to be larger" in line


@pytest.mark.parametrize(
    "value", ["[" * 50_000, "9" * 3000, "1e400", "-1e400", "NaN", "Infinity", "9" * 100_000], ids=lambda text: text[:8]
)
def test_values_that_are_none(value: str, rng: random.Random, tmp_path: Path) -> None:
    """Check deep lists, and numbers that no process can have."""
    key = rng.choice(["time", "limit", "x"])
    others = {name: what for name, what in HEADER.items() if name != key}
    path = snapshot(tmp_path / "odd.heap", json.dumps(others)[:-1] + f', "{key}": {value}}}')
    with pytest.raises(UsageError, match="not a gdbheap snapshot"):
        read(path)


@pytest.mark.parametrize("seconds", [1e300, -1e300, -1.0, 1e12])
def test_times_without_a_date(seconds: float, whole_document: dict[str, object], tmp_path: Path) -> None:
    """Check a snapshot and a series from before 1970, or after the year 9999."""
    path = snapshot(tmp_path / "odd.heap", json.dumps({**whole_document, "time": seconds, "blocks": None}))
    with pytest.raises(UsageError, match="damaged"):
        read(path)
    series = {"kind": "series", "format": "gdbheap series", "schema": SERIES_NUMBER, "time": seconds, "processes": []}
    (tmp_path / "odd.jsonl").write_text(json.dumps(series) + "\n")
    with pytest.raises(UsageError, match="neither a possible date|damaged"):
        read_series(str(tmp_path / "odd.jsonl"))


@pytest.fixture(scope="module")
def whole_document(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, object]]:
    """Return the document of a process's snapshot, which has a table of blocks."""
    folder = tmp_path_factory.mktemp("budgets")
    with running(python_program(KINDS[0], "secret_texts", "x", 50), folder) as target:
        assert gdbheap("snapshot", str(target.pid), str(folder / "look.heap"), "--blocks").returncode == 0
    with zipfile.ZipFile(folder / "look.heap") as archive:
        yield json.loads(archive.read(ENTRY))


def with_blocks(document: dict[str, object], count: int) -> str:
    """Return the document, with a table of ``count`` blocks of one allocator."""
    return json.dumps({**document, "blocks": {"allocators": ["glibc"], "counts": [count], "types": []}})


def test_columns_that_explode(whole_document: dict[str, object], tmp_path: Path) -> None:
    """Check columns of more blocks than fit into memory, packed into some hundred KiB."""
    count = 24 << 20
    widths = {"addresses": 4, "far": 0, "sizes": 4, "large": 0, "kinds": 2}
    columns = {name: bytes(width * count) for name, width in widths.items()}
    path = snapshot(tmp_path / "bomb.heap", with_blocks(whole_document, count), **columns)
    assert os.path.getsize(path) < MEGA
    line = refused(["diff", path, path], 2, ADDRESS_SPACE // 2)
    assert "unpacked it takes" in line and "MiB" in line


@pytest.mark.parametrize("column", ["addresses", "far", "sizes", "kinds"])
def test_columns_of_another_size(column: str, whole_document: dict[str, object], tmp_path: Path) -> None:
    """Check a column that is too long for its blocks, and one that another program compressed."""
    columns = dict.fromkeys(("addresses", "far", "sizes", "large", "kinds"), b"")
    path = snapshot(tmp_path / "odd.heap", with_blocks(whole_document, 0), **{**columns, column: bytes(MEGA)})
    with pytest.raises(UsageError, match="has the wrong size for 0 blocks"):
        read(path)
    for kind in (zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2):
        with zipfile.ZipFile(path, "w", kind) as archive:
            archive.writestr(ENTRY, with_blocks(whole_document, 0))
        with pytest.raises(UsageError, match="a method that no snapshot uses"):
            read(path)


def test_a_directory_that_explodes(whole_document: dict[str, object], tmp_path: Path) -> None:
    """Check that a zip with a long directory is refused as a whole: each entry would become an object before it is
    read."""
    columns = dict.fromkeys(("addresses", "far", "sizes", "large", "kinds"), b"")
    path = snapshot(tmp_path / "long.heap", with_blocks(whole_document, 0), **columns)
    assert read(path) is not None
    with zipfile.ZipFile(path, "a") as archive:
        for number in range(2000):
            archive.writestr(f"x{number}", b"")
    with pytest.raises(UsageError, match="directory is larger"):
        read(path)


def test_an_honest_snapshot_of_many_blocks(whole_document: dict[str, object], tmp_path: Path) -> None:
    """Check that four million blocks in a few KiB are read: a high compression ratio is no sign of a bomb."""
    count = 4_000_000
    columns = {"addresses": bytes([2]) + bytes(4 * count - 1), "sizes": bytes(4 * count), "kinds": bytes(2 * count)}
    path = snapshot(tmp_path / "many.heap", with_blocks(whole_document, count), far=b"", large=b"", **columns)
    found = read(path)
    assert found.columns is not None and found.columns.counts == [count] and os.path.getsize(path) < MEGA


# Series and logs.


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_rows_that_explode(form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check rows with numbers of thousands of digits, invalid numbers, nested lists, and an endless line."""
    series = {"kind": "series", "format": "gdbheap series", "schema": SERIES_NUMBER, "time": 1.0, "processes": []}
    path = tmp_path / f"odd.{form}"

    def row(value: str) -> str:
        if form == "jsonl":
            return f'{{"kind": "sample", "pid": {value}, "time": {value}, "offset": 0}}\n'
        return ",".join({"pid": value, "time": value, "offset": "0"}.get(name, "") for name in COLUMNS) + "\n"

    start = json.dumps(series) + "\n" if form == "jsonl" else ",".join(COLUMNS) + "\n"
    for value in ("9" * 4000, "1e400", "NaN", "[" * 50_000, "9" * (MAX_LINE_BYTES + rng.randrange(MEGA))):
        path.write_text(start + row(value))
        with pytest.raises(UsageError) as error:
            read_series(str(path))
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", ["[" * 100_000, '{"pid": ' + "9" * 4000 + "}", '{"pid": 1e400}', '{"pid": NaN}'])
def test_logs_that_explode(content: str, tmp_path: Path) -> None:
    """Check a log whose process is nested too deeply, or has no number."""
    path = tmp_path / "odd.calls"
    path.write_bytes(MAGIC + FRAME.pack(PROCESS, 0, len(content)) + content.encode())
    with pytest.raises(UsageError) as error:
        read_log(str(path))
    assert "\n" not in str(error.value) and "damaged" in str(error.value)


# Packed cores.


def zstd(data: bytes) -> bytes:
    """Return a frame of stored blocks and repeated bytes (RFC 8878)."""
    size = 64 << 10
    frame = b"\x28\xb5\x2f\xfd\x00\x38"
    for at in range(0, len(data), size):
        block = data[at : at + size]
        is_last, is_same = at + size >= len(data), block.count(block[:1]) == len(block)
        frame += (len(block) << 3 | is_same << 1 | is_last).to_bytes(3, "little") + (block[:1] if is_same else block)
    return frame


def lz4(data: bytes) -> bytes:
    """Return a frame of stored blocks (lz4's doc/lz4_Frame_format.md)."""
    size = 64 << 10
    blocks = (data[at : at + size] for at in range(0, len(data), size))
    stored = b"".join((len(block) | 1 << 31).to_bytes(4, "little") + block for block in blocks)
    return b"\x04\x22\x4d\x18\x60\x40\x82" + stored + bytes(4)


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, 1),
    "bzip2": lambda data: bz2.compress(data, 1),
    "xz": lambda data: lzma.compress(data, preset=0),
    "zstd": zstd,
    "lz4": lz4,
}


def core_with(count: int, size: int) -> bytes:
    """Return the headers of a core with that many segments of that many bytes."""
    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 4, 62, 1, 0, 64, 0, 0, 64, 56, count, 0, 0, 0
    )
    places = (4096 + number * size for number in range(count))
    segments = (struct.pack("<IIQQQQQQ", 1, 6, at, 0x10000 + at, 0, size, size, 4096) for at in places)
    return (header + b"".join(segments)).ljust(4096, b"\0")


def look(path: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Read a packed core under a limit of FILE_SIZE for each file."""

    def prepare() -> None:
        limited()
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE, FILE_SIZE))

    environment = {**os.environ, "TMPDIR": str(folder), "GDBHEAP_DEBUG": "1"}
    words = [str(GDBHEAP), str(path)]
    return subprocess.run(words, env=environment, capture_output=True, text=True, preexec_fn=prepare, timeout=PATIENCE)


@pytest.mark.parametrize("kind", PACKERS)
def test_a_packed_file_that_is_no_core(kind: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that a packed file that is no core is refused by its first bytes, before anything is written."""
    for start in (b"GARBAGE!", b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack("<HH", 3, 62) + bytes(44)):
        path = tmp_path / "bomb"
        path.write_bytes(PACKERS[kind](start + bytes([rng.randrange(1, 256)]) * (8 * MEGA)))
        done = look(path, tmp_path)
        assert done.returncode == 4 and done.stderr.count("\n") == 1 and "not a core" in done.stderr, done.stderr


@pytest.mark.parametrize("kind", PACKERS)
def test_a_packed_core_that_goes_on(kind: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that bytes after the end that the program headers give are not written."""
    path, count = tmp_path / "bomb", rng.randrange(1, 50)
    path.write_bytes(PACKERS[kind](core_with(count, 4096) + bytes([rng.randrange(1, 256)]) * (8 * MEGA)))
    done = look(path, tmp_path)
    assert "no room" not in done.stderr and done.returncode in (1, 5), done.stderr
    found = Core(str(path))
    assert any("end of the core that its program headers state" in damage.found for damage in found.damage)


def test_program_headers_beyond_all(tmp_path: Path) -> None:
    """Check a header that puts the program headers beyond any possible end of the file."""
    header = bytearray(core_with(1, 4096))
    header[32:40] = struct.pack("<Q", 1 << 40)
    path = tmp_path / "bomb"
    path.write_bytes(gzip.compress(bytes(header) + b"x" * (8 * MEGA), 1))
    done = look(path, tmp_path)
    assert done.returncode == 4 and "its program headers end at byte" in done.stderr, done.stderr


def test_interrupted(tmp_path: Path) -> None:
    """Check that Ctrl-C ends the unpacking of gigabytes of zeros, and that no file is left."""
    folder, path = tmp_path / "room", tmp_path / "zeros"
    folder.mkdir()
    path.write_bytes(gzip.compress(core_with(1, 1 << 44)) + gzip.compress(bytes(64 * MEGA)) * 500)
    environment = {**os.environ, "TMPDIR": str(folder)}
    process = subprocess.Popen(
        [str(GDBHEAP), str(path)], env=environment, stderr=subprocess.PIPE, text=True, preexec_fn=limited
    )
    try:
        wait_for(lambda: _is_unpacking(process.pid, folder), "it does not unpack the core")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 1 and said.count("\n") == 1 and "interrupted" in said, said
    assert list(folder.iterdir()) == []


def _is_unpacking(pid: int, folder: Path) -> bool:
    """Return whether a process has a file without a name open in this folder."""
    for number in os.listdir(f"/proc/{pid}/fd"):
        # It may already be closed.
        with suppress(FileNotFoundError):
            if os.readlink(f"/proc/{pid}/fd/{number}").startswith(str(folder)):
                return True
    return False


# Files of the target.


def test_symbols_in_symbols(rng: random.Random) -> None:
    """Check that a packed symbol table that unpacks to zeros, or that contains another one, is not followed."""
    bomb = lzma.compress(bytes(200 * MEGA), preset=0)
    assert Functions(BytesIO(elf_with(".gnu_debugdata", bomb)), None).find(rng.randrange(1 << 32)) is None
    inner = elf_with(".gnu_debugdata", b"")
    for _ in range(5):
        inner = elf_with(".gnu_debugdata", lzma.compress(inner, preset=0))
    assert Functions(BytesIO(inner), None).find(0) is None


def test_packed_symbols_are_counted(rng: random.Random) -> None:
    """Check that the bytes of a packed symbol table count as read: packed, and unpacked."""
    content = rng.randbytes(rng.randrange(MEGA, 2 * MEGA))
    packed, room = lzma.compress(content, preset=0), SymbolRoom()
    assert room.take(0)
    before = room._left
    Functions(BytesIO(elf_with(".gnu_debugdata", packed)), None, room)
    assert before is not None and room._left is not None
    assert before - room._left >= len(packed) + len(content)


def elf_with(name: str, content: bytes) -> bytes:
    """Return an ELF file with one section."""
    names = b"\0" + name.encode() + b"\0.shstrtab\0"
    at = 64 + len(content)
    table = at + len(names)
    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, table, 0, 64, 56, 0, 64, 3, 2
    )
    sections = struct.pack("<IIQQQQIIQQ", *[0] * 10)
    sections += struct.pack("<IIQQQQIIQQ", 1, 1, 0, 0, 64, len(content), 0, 0, 1, 0)
    sections += struct.pack("<IIQQQQIIQQ", 2 + len(name), 3, 0, 0, at, len(names), 0, 0, 1, 0)
    return header + content + names + sections
