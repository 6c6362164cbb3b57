"""Cores of all shapes, compared with the live answer about the same process, to the block and to the object.

The filters are the kernel's (core(5), coredump_filter). Headers of ELF files are missing from 0x21 and 0x23, and from
gdb's cores under these; older gdbs left them out by themselves. The other shapes are made from the kernel's core.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import kernel, programs, reshaped
from support.core_files import make_core, prstatus
from support.core_shapes import C_KINDS, PYTHONS, figures, holding
from support.programs import Running, ask, gdbheap, running

from gdbheap.targets.core import Core

pytestmark = pytest.mark.cases(6)

FILTERS = ("0x21", "0x23", "0x31", "0x33")
HEADERLESS = ("0x21", "0x23")
PAGE, HEADER = 4096, 16


def dumped(target: Running, shape: str, folder: Path) -> Path:
    """Return a core of this shape. A core by the kernel ends the program."""
    usual, _, what = shape.rpartition(" ")
    Path(f"/proc/{target.pid}/coredump_filter").write_text(what if what in FILTERS else "0x33")
    if usual == "gcore":
        return target.gcore()
    core = target.kernel_core()
    if shape == "without first pages":
        return reshaped.without_first_pages(core, folder / "shaped")
    if usual == "without NT_FILE":
        return reshaped.without_files_note(core, folder / "shaped")
    return core


SHAPES = (*FILTERS, "gcore 0x33", "gcore 0x23", "without first pages", "without NT_FILE 0x33", "without NT_FILE 0x21")


@pytest.mark.in_turn("kind", 2)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", [*C_KINDS, *PYTHONS])
def test_a_core_says_what_the_process_said(kind: str, shape: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that used and free chunks by size and arena, pools, types and counts are equal, and that each object has a
    file."""
    with running(holding(kind, rng, tmp_path), tmp_path) as target:
        live = figures(str(target.pid), kind in PYTHONS)
        core = dumped(target, shape, tmp_path)
        lacks = any(not headers_of(core, start) for start, _end, offset, path in mapped(core) if not offset)
    assert figures(str(core), kind in PYTHONS) == live
    found = Core(str(core))
    assert found.objects and not found.unseen and all(loaded.file for loaded in found.objects)
    if shape.endswith(HEADERLESS) or shape == "without first pages":
        assert lacks or "gcore" in shape or "NT_FILE" in shape
        assert any(loaded.agreed for loaded in found.objects)
    facts = {row["fact"]: row for row in ask("info", str(core))["rows"]}
    for loaded in found.objects:
        row = facts[f"object {loaded.path}"]
        assert row["value"] == loaded.build_id and str(loaded.file) in f"{row['source']} {row['confirmed']}"
        assert ("words of its data" in row["confirmed"]) == bool(loaded.agreed)


def mapped(core: Path) -> list[tuple[int, int, int, str]]:
    """Return NT_FILE's entries of programs and libraries that are mapped in more than one part; none without it."""
    try:
        rows = reshaped.files(core)
    except ValueError:
        return []
    return [row for row in rows if sum(row[3] == other[3] for other in rows) > 1]


def headers_of(core: Path, address: int) -> bool:
    """Return whether the core itself has the page at an address."""
    return any(one.start <= address < one.start + one.file_size for one in kernel.segments(core))


# Files of other versions.


SOURCE = """
#include <stdlib.h>
static int one(int n) {{ return n * 3; }}
static int two(int n) {{ {more} return n + 5; }}
static int three(int n) {{ return n ^ 9; }}
int (*table[24])(int) = {{ one, two, three, one, two, three, one, two, three, one, two, three }};
int answer(int n) {{ void *block = malloc(1000 + n); return table[n % 12](n) + (block != 0); }}
"""


def library(folder: Path, name: str, more: str, *options: str) -> Path:
    """Return a small shared library. ``more``: a statement that its other version has."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    source = folder / f"{name}.c"
    source.write_text(SOURCE.format(more=more))
    path = folder / name
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", *options, str(source), "-o", str(path)], check=True)
    return path


CALLER = """
#include <unistd.h>
int answer(int);
int main(void) { int n = answer(4); pause(); return n; }
"""
LONGER = "if (n > 7) { for (int i = 0; i < n; i++) n += answer(i) * 77; return (int)(long)malloc(n); }"


def caller(folder: Path, of: Path) -> Path:
    """Return a program that uses a library by its path."""
    source, program = folder / "caller.c", folder / "caller"
    source.write_text(CALLER)
    subprocess.run(["gcc", "-O1", str(source), str(of), "-o", str(program)], check=True)
    return program


@pytest.mark.parametrize("ids", ["with build-ids", "without build-ids"])
def test_another_version_is_refused(ids: str, tmp_path: Path) -> None:
    """Check that another version at the same path, with the same segments, is refused and reported.

    The version that was mapped is accepted.
    """
    option = "-Wl,--build-id=sha1" if ids == "with build-ids" else "-Wl,--build-id=none"
    declared = "int answer(int);"
    path = library(tmp_path, "libanswer.so", "", option)
    core = core_of([str(caller(tmp_path, path))], tmp_path, "0x21")
    assert file_of(core, path) == str(path)
    kept = path.rename(tmp_path / "kept")
    (tmp_path / "newer").mkdir()
    newer = library(tmp_path / "newer", "libanswer.so", f"{declared} {LONGER}", option)
    shutil.copy(newer, path)
    assert file_of(core, path) is None
    (unseen,) = Core(str(core)).unseen
    assert (unseen.path, unseen.other, unseen.refuted) == (str(path), str(path), True)
    (warning,) = [warning for warning in ask("arenas", str(core))["warnings"] if "libanswer" in warning]
    assert f"{path} is another version" in warning and "--sysroot" in warning
    fact = next(row for row in ask("info", str(core))["rows"] if row["fact"] == f"object {path}")
    assert fact["value"] == "unknown" and "another version" in fact["confirmed"]
    kept.rename(path)
    assert file_of(core, path) == str(path)


def test_headers_without_build_ids(tmp_path: Path) -> None:
    """Check a core with the pages of ELF headers but without build-ids: the file is accepted by the data in memory."""
    path = library(tmp_path, "libanswer.so", "", "-Wl,--build-id=none")
    core = core_of([str(caller(tmp_path, path))], tmp_path, "0x31")
    assert file_of(core, path) == str(path)
    (tmp_path / "newer").mkdir()
    newer = library(tmp_path / "newer", "libanswer.so", f"int answer(int); {LONGER}", "-Wl,--build-id=none")
    path.unlink()
    shutil.copy(newer, path)
    assert file_of(core, path) is None


def core_of(command: list[str], folder: Path, shape: str, environment: dict[str, str] | None = None) -> Path:
    """Return a core of this shape of a command that rests."""
    with running(command, folder, environment) as target:
        return dumped(target, shape, folder)


def file_of(core: Path, path: Path, **options: Any) -> str | None:
    """Return the file that is accepted for an object of a core."""
    found = {loaded.path: loaded.file for loaded in Core(str(core), **options).objects}
    return found.get(str(path))


def test_a_libc_of_another_version_is_refused(rng: random.Random, tmp_path: Path) -> None:
    """Check that a libc whose functions lie 16 bytes further on is refused, and that malloc is not guessed."""
    own = tmp_path / "lib"
    own.mkdir()
    with running(holding("stripped C", rng, tmp_path), tmp_path) as target:
        usual = next(m.path for m in kernel.maps(target.pid) if Path(m.path).name == "libc.so.6")
        linker = next(m.path for m in kernel.maps(target.pid) if Path(m.path).name.startswith("ld-linux"))
    libc = own / "libc.so.6"
    shutil.copy(usual, libc)
    command = [linker, "--library-path", str(own), *holding("stripped C", rng, tmp_path)]
    with running(command, tmp_path) as target:
        live = figures(str(target.pid), False)
        core = dumped(target, "0x21", tmp_path)
    assert figures(str(core), False) == live
    assert file_of(core, libc) == str(libc)
    moved_functions(libc)
    refused = gdbheap("arenas", str(core))
    assert refused.returncode == 5 and f"{libc} is another version" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    whole = gdbheap(str(core))
    assert whole.returncode == 5 and "is unknown" in whole.stdout and "No memory to reclaim" not in whole.stdout
    shutil.copy(usual, libc)
    assert figures(str(core), False) == live


def moved_functions(libc: Path) -> None:
    """Add 16 to the targets of half of the relocations, as if the functions before them had become longer."""
    from elftools.elf.elffile import ELFFile

    with libc.open("rb") as file:
        elf = ELFFile(file)
        sections = {name: elf.get_section_by_name(name) for name in (".rela.dyn", ".data.rel.ro")}
        places = {name: (section["sh_offset"], section.data()) for name, section in sections.items()}
    rows = [list(row) for row in struct.iter_unpack("<QQq", places[".rela.dyn"][1])]
    # With packed relocations (DT_RELR), the numbers are added to the words themselves.
    words = list(struct.unpack(f"<{len(places['.data.rel.ro'][1]) // 8}Q", places[".data.rel.ro"][1]))
    addresses = sorted([row[2] for row in rows if row[1] == 8] + [word for word in words if word > PAGE])
    middle = addresses[len(addresses) // 2]
    for row in rows:
        row[2] += 16 * (row[1] == 8 and row[2] > middle)
    moved = [word + 16 * (middle < word < 1 << 40) for word in words]
    with libc.open("r+b") as file:
        os.pwrite(file.fileno(), b"".join(struct.pack("<QQq", *row) for row in rows), places[".rela.dyn"][0])
        os.pwrite(file.fileno(), struct.pack(f"<{len(moved)}Q", *moved), places[".data.rel.ro"][0])


def test_pages_that_are_there_decide(tmp_path: Path) -> None:
    """Check that a file with the same data but another page of code, which the core has, is refused."""
    path = library(tmp_path, "libanswer.so", "", "-Wl,--build-id=none")
    with running([str(caller(tmp_path, path))], tmp_path) as target:
        Path(f"/proc/{target.pid}/coredump_filter").write_text("0x37")
        core = reshaped.without_first_pages(target.kernel_core(), tmp_path / "shaped")
    assert file_of(core, path) == str(path)
    with path.open("r+b") as file:
        place = next(
            offset for start, _end, offset, name in reshaped.files(core) if name == str(path) and is_code(core, start)
        )
        byte = os.pread(file.fileno(), 1, place + 0x40)
        os.pwrite(file.fileno(), bytes([byte[0] ^ 0xFF]), place + 0x40)
    assert file_of(core, path) is None


def is_code(core: Path, address: int) -> bool:
    """Return whether a segment of a core may be executed."""
    return any(fields[0] == 1 and fields[3] == address and fields[1] & 1 for fields in reshaped.program_headers(core))


# Files at other places.


@pytest.fixture
def gone(rng: random.Random, tmp_path: Path) -> Iterator[tuple[Path, Path, dict[str, Any]]]:
    """Yield a core without headers of a static program, the moved program, and the live answer."""
    command = holding("static", rng, tmp_path)
    with running(command, tmp_path) as target:
        live = figures(str(target.pid), False)
        core = dumped(target, "0x21", tmp_path)
    (tmp_path / "away").mkdir()
    yield core, Path(command[0]).rename(tmp_path / "away" / "recorder"), live


def test_nothing_is_claimed_without_the_file(gone: tuple[Path, Path, dict[str, Any]], tmp_path: Path) -> None:
    """Check for status 5 with the file's name and advice, and that the page never says that nothing is reclaimable."""
    core, program, _live = gone
    done = gdbheap(str(core))
    assert done.returncode == 5
    page = gdbheap("report", str(core), "-o", str(tmp_path / "report.html"))
    assert page.returncode == 5 and (tmp_path / "report.html").stat().st_size > 1000
    assert "No memory to reclaim" not in done.stdout
    assert "some of this memory may be reclaimable" in " ".join(done.stdout.split())
    assert (
        "recorder" in done.stdout
        and "--sysroot=FOLDER" in done.stdout
        and "this machine has no such file" in done.stdout
    )
    for noun in ("arenas", "holes", "sizes", "pyobjects"):
        refused = gdbheap(noun, str(core))
        assert refused.returncode == 5 and "(recorder)" in refused.stderr and len(refused.stderr.splitlines()) == 1
    answer = ask("", str(core), status=5)
    assert sum(line["virtual"] for line in answer["ledger"] if line["parent"] is None) == sum(
        one.size for one in kernel.segments(core) if one.start < 1 << 63
    )
    assert program.exists()


def test_the_program_is_named(gone: tuple[Path, Path, dict[str, Any]], tmp_path: Path) -> None:
    """Check that the program is found by --exe, in a copy of the root folder by --sysroot, and next to the core."""
    core, program, live = gone
    whole = [("--exe", str(program)), ("--sysroot", str(tmp_path / "root"))]
    inside = Path(f"{tmp_path / 'root'}{tmp_path}")
    inside.mkdir(parents=True)
    shutil.copy(program, inside / "recorder")
    for options in whole:
        assert ask("arenas", str(core), *options)["total"]["in_use"] == total_of(live)
        assert ask("", str(core), *options)["damage"] == []
    assert gdbheap("arenas", str(core)).returncode == 5
    shutil.copy(program, core.parent / "recorder")
    assert figures(str(core), False) == live
    wrong = gdbheap("arenas", str(core), "--sysroot", str(program))
    assert wrong.returncode == 2 and "is not a folder" in wrong.stderr


def total_of(live: dict[str, Any]) -> int:
    """Return the bytes in use of all arenas and of mmapped chunks."""
    return int(sum(row["in_use"] for row in live["arenas"]) + live["mmapped"]["bytes"])


def test_by_build_id(rng: random.Random, tmp_path: Path) -> None:
    """Check that files of a removed root folder are found by build-id below --sysroot, for a core with headers."""
    command = holding("fixed address", rng, tmp_path)
    core = core_of(command, tmp_path, "0x33")
    program = Path(command[0]).rename(tmp_path / "elsewhere")
    assert file_of(core, Path(command[0])) is None
    build_id = next(loaded.build_id for loaded in Core(str(core)).objects if loaded.path == command[0])
    assert build_id is not None
    kept = tmp_path / "root" / "usr/lib/debug/.build-id" / build_id[:2] / build_id[2:]
    kept.parent.mkdir(parents=True)
    symbols = Path(f"{kept}.debug")
    subprocess.run(["objcopy", "--only-keep-debug", str(program), str(symbols)], check=True)
    root = str(tmp_path / "root")
    assert file_of(core, Path(command[0]), sysroot=root) == str(symbols)
    code = next(loaded for loaded in Core(str(core), sysroot=root).objects if loaded.path == command[0])
    text = next(mapping for mapping in code.mappings if mapping.executable)
    # Such a file has the program's headers, but none of its bytes.
    assert code.symbol("main") is not None and not Core(str(core), sysroot=root).space.contains(text.start, 1)
    program.rename(kept)
    found = Core(str(core), sysroot=root)
    assert found.space.contains(text.start, text.size) and file_of(core, Path(command[0]), sysroot=root) == str(kept)


# The dynamic linker's list.


def test_the_list_is_the_kernels(rng: random.Random, tmp_path: Path) -> None:
    """Check that the links of the dynamic linker give the same files at the same addresses as NT_FILE."""
    core = core_of(holding("unstripped", rng, tmp_path), tmp_path, "0x33")
    bare = reshaped.without_files_note(core, tmp_path / "bare")
    one, other = Core(str(core)), Core(str(bare))
    assert ["NT_FILE" in warning for warning in other.warnings] == [True]
    assert {(o.base, o.bias, o.build_id, os.path.realpath(o.path)) for o in other.objects} == {
        (o.base, o.bias, o.build_id, os.path.realpath(o.path)) for o in one.objects
    }
    assert [o.bss for o in other.objects] == [o.bss for o in one.objects]


def test_no_list_at_all(tmp_path: Path) -> None:
    """Check a core without NT_FILE and auxiliary vector: one line names the missing data, and the ledger exists."""
    path = make_core(tmp_path / "core", prstatus(7), [(0x10000, 64 << 20, b"", 6)])
    done = gdbheap(str(path))
    assert done.returncode == 5 and "does not say which files were mapped (no NT_FILE)" in done.stdout
    assert ask("", str(path), status=5)["ledger"]


# Cut short.


@pytest.mark.parametrize("kind", ["stripped C", "unstripped"])
def test_cut_at_ten_places(kind: str, rng: random.Random, tmp_path: Path) -> None:
    """Check ten cuts: status 1, balanced books with a line for the missing bytes, and no larger figures."""
    folder = tmp_path if kind == "stripped C" else tmp_path / "python"
    folder.mkdir(exist_ok=True)
    core = core_of(holding(kind, rng, folder), folder, "0x33")
    data = core.read_bytes()
    segments = kernel.segments(core)
    whole = {line["id"]: line["virtual"] for line in ask("", str(core))["ledger"]}
    first = min(one.offset for one in segments)
    cut = tmp_path / "cut"
    for _ in range(10):
        size = rng.randrange(first, len(data) - 1)
        cut.write_bytes(data[:size])
        answer = ask("", str(cut), status=1)
        lines = {line["id"]: line for line in answer["ledger"]}
        lost = sum(
            one.file_size - max(0, min(one.file_size, size - one.offset)) for one in segments if one.start < 1 << 63
        )
        assert (lines["missing"]["virtual"] if "missing" in lines else 0) == lost, (size, lost)
        roots = [line["virtual"] for line in answer["ledger"] if line["parent"] is None]
        assert sum(roots) == sum(one.size for one in segments if one.start < 1 << 63), size
        for name in ("glibc", "pymalloc", "stacks"):
            parts = [line for line in answer["ledger"] if line["parent"] == name]
            assert not parts or sum(line["virtual"] for line in parts) == lines[name]["virtual"]
            assert lines[name]["virtual"] <= whole[name], (size, name)


def listed(target: str, status: int = 0) -> tuple[dict[int, tuple[int, str]], list[str]]:
    """Return {address: (size, state)} of all chunks, and the warnings."""
    found = ask("chunks", target, "--top=all", status=status)
    return {row["address"]: (row["size"], row["state"]) for row in found["rows"]}, found["warnings"]


def test_what_is_left_of_a_cut_core(rng: random.Random, tmp_path: Path) -> None:
    """Check ten cuts: each chunk has its address, size and state.

    Chunks whose state only an unreadable list shows count as in use, and so does the chunk at the end of memory. A
    warning gives the number of missing thread caches.
    """
    with running(holding("static, fixed address, stripped", rng, tmp_path), tmp_path) as target:
        live, _warnings = listed(str(target.pid))
        core = target.kernel_core()
    data, cut, seen = core.read_bytes(), tmp_path / "cut", 0
    # The program's own data comes first: without it malloc cannot be found.
    heap = next(one for one in kernel.segments(core) if one.start <= min(live) < one.start + one.size)
    for _ in range(10):
        size = rng.randrange(heap.offset + PAGE, len(data) - 1)
        cut.write_bytes(data[:size])
        refused = gdbheap("chunks", str(cut))
        if refused.returncode == 5:
            # Too little of the first heap is left to prove the bins.
            assert "may be cut off" in refused.stderr and size < heap.file_end
            continue
        left, warnings = listed(str(cut), 1)
        (end,) = (one.start + size - one.offset for one in kernel.segments(core) if one.offset <= size < one.file_end)
        wrong = {at: (*left[at], live.get(at)) for at in left if left[at] != live.get(at)}
        lists = {
            at: before[1] for at, (now, state, before) in wrong.items()
            if state == "used" and before in ((now, "tcache"), (now, "fast"))
        }  # fmt: skip
        assert "tcache" not in lists.values() or any("free chunks in their caches" in warning for warning in warnings)
        assert "fast" not in lists.values() or size < heap.file_end or end > 1 << 40
        last = {at for at in wrong if at in live and at <= end <= at + live[at][0] + 2 * HEADER}
        assert set(wrong) <= set(lists) | last, (size, {at: wrong[at] for at in set(wrong) - set(lists)}, hex(end))
        seen += len(left)
    assert seen > 1000


def test_a_core_without_its_notes(rng: random.Random, tmp_path: Path) -> None:
    """Check that no file is requested if the notes are cut off, because it would not help. gdb writes them last."""
    with running(holding("stripped C", rng, tmp_path), tmp_path) as target:
        core = target.gcore()
    cut = tmp_path / "cut"
    cut.write_bytes(core.read_bytes()[: core.stat().st_size // 2])
    warnings = ask("", str(cut), status=1)["warnings"]
    assert any("notes are cut off" in warning for warning in warnings)
    assert not any("--exe" in warning or "--sysroot" in warning for warning in warnings)


# In gdb.


def test_in_gdb(rng: random.Random, tmp_path: Path) -> None:
    """Check that gdb's own view of a core without mapped files has no effect, except that gdb's sysroot gives the
    folder of files.
    """
    if shutil.which("gdb") is None:
        pytest.skip("no gdb")
    command = holding("static", rng, tmp_path)
    with running(command, tmp_path) as target:
        live = figures(str(target.pid), False)
        core = dumped(target, "0x21", tmp_path)
    inside = Path(f"{tmp_path / 'root'}{tmp_path}")
    inside.mkdir(parents=True)
    Path(command[0]).rename(inside / "recorder")
    script = gdbheap("--gdb-script").stdout.strip()
    for root, status in ((str(tmp_path / "root"), 0), ("", 5)):
        line = ["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex", f"set sysroot {root}"]
        line += ["-c", str(core), "-x", script, "-ex", "heap arenas --json"]
        done = subprocess.run(line, capture_output=True, text=True, timeout=programs.PATIENCE, stdin=subprocess.DEVNULL)
        assert done.returncode == status, done.stdout + done.stderr
        if not status:
            (document,) = [text for text in done.stdout.splitlines() if text.startswith("{")]
            assert f'"in_use": {total_of(live)}' in document
