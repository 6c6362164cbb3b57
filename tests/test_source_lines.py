"""Source lines and inlined functions, against what the compiler itself says of each line (``__LINE__``)."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.following import following
from support.programs import PATIENCE, SOURCES, gdbheap, running, status

from gdbheap import _native
from gdbheap.machines import image
from gdbheap.stack_frames import MAX_INLINED, few_inlined
from gdbheap.targets.elf import SectionTable, SymbolRoom
from gdbheap.targets.functions import Functions, readable
from gdbheap.targets.source_lines import NEEDED, OTHERS, SourceLines

SOURCE = SOURCES / "lines.cc"
FORMS = {
    "dwarf 4": ["-gdwarf-4"],
    "dwarf 5": ["-gdwarf-5"],
    "compressed": ["-g", "-gz=zlib"],
    "unoptimised": ["-g", "-O0"],
    "linked at compile time": ["-g", "-flto"],
    "by sections": ["-g", "-ffunction-sections", "-Wl,--gc-sections"],
}
# The name of a function that only its file sees is the bare one: the debug information has no symbol of it.
FUNCTIONS = ["innermost", "deep::Middle"]


def compiled(folder: Path, *flags: str) -> Path:
    """Return the program, compiled with these flags."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    program = folder / "lines"
    subprocess.run([compiler, "-O2", *flags, str(SOURCE), "-o", str(program)], check=True)
    return program


def said(program: Path, folder: Path) -> Iterator[tuple[int, list[int]]]:
    """Yield what the program says of each call: where it is in the code of the file, and the lines, innermost first."""
    with running([str(program)], folder) as target:
        text = target.stderr
    for row in text.splitlines():
        place, *lines = row.split()
        yield int(place, 16), [int(line) for line in lines if line != "0"]


def lines_of(program: Path, address: int) -> list[tuple[str | None, str, int]]:
    """Return the lines at an address of a program's file."""
    with program.open("rb") as file:
        functions = Functions(file, None)
    return [
        (None if line.function is None else readable(line.function), line.file, line.line)
        for line in functions.lines(address)
    ]


@pytest.mark.parametrize("form", FORMS)
def test_lines_are_those_of_the_compiler(form: str, tmp_path: Path) -> None:
    """Check the line of each call, and the functions and lines around it that were inlined."""
    program = compiled(tmp_path, *FORMS[form])
    rows = list(said(program, tmp_path))
    assert len(rows) == 2
    for address, lines in rows:
        found = lines_of(program, address)
        assert [line for _, _, line in found] == lines
        assert {file for _, file, _ in found} == {str(SOURCE)}
        assert [(name or "").partition("<")[0] for name, _, _ in found] == [*FUNCTIONS[: len(lines) - 1], ""], found


@pytest.mark.parametrize("is_cached", [False, True], ids=["system", "debuginfod"])
def test_lines_of_a_separate_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_cached: bool) -> None:
    """Check that a debug file with the same build-id gives a program its lines, also one that debuginfod's client has
    fetched, and that a stripped program without a debug file has no lines.
    """
    if shutil.which("objcopy") is None:
        pytest.skip("no objcopy")
    program = compiled(tmp_path, "-g", "-Wl,--build-id=0x0123456789abcdef")
    rows = list(said(program, tmp_path))
    debug = tmp_path / ("0123456789abcdef/debuginfo" if is_cached else "01/23456789abcdef.debug")
    debug.parent.mkdir()
    subprocess.run(["objcopy", "--only-keep-debug", str(program), str(debug)], check=True)
    subprocess.run(["strip", str(program)], check=True)
    if is_cached:
        monkeypatch.setenv("DEBUGINFOD_CACHE_PATH", str(tmp_path))
    else:
        monkeypatch.setattr("gdbheap.targets.functions.DEBUG_FILES", str(tmp_path / "{}" / "{}.debug"))
    for address, lines in rows:
        assert lines_of(program, address) == []
        with program.open("rb") as file:
            functions = Functions(file, "0123456789abcdef")
        assert [line.line for line in functions.lines(address)] == lines


def test_growth_names_lines(tmp_path: Path) -> None:
    """Check that the stacks of ``growth`` have a frame for each inlined function, with its line."""
    program = compiled(tmp_path, "-g")
    (_, lines), _ = said(program, tmp_path)
    with running([str(program)], tmp_path) as target:
        file, own = (1024 * status(target.pid, field) for field in ("RssFile", "RssAnon"))
        with following(target.pid, "growth", str(target.pid)) as follower:
            target.go_on()
            answer = follower.answer()
        file_after, own_after = (1024 * status(target.pid, field) for field in ("RssFile", "RssAnon"))
    # While gdbheap follows, the pages of code that it has changed are anonymous.
    assert own <= answer["rss_before"] <= answer["rss_after"] <= own_after + (64 << 10)
    assert 0 < answer["file_pages"] <= file_after - file
    (site,) = answer["sites"]
    # The compiler may leave the frame of probe() before it jumps to mmap().
    own = [frame for frame in site["frames"] if frame["file"] == str(SOURCE) and frame["name"] != "probe"]
    assert [frame["line"] for frame in own[-len(lines) :]] == lines[::-1]
    assert [frame["name"].partition("<")[0] for frame in own[-len(lines) :]] == ["outer", *FUNCTIONS[::-1]]


def test_traced_stacks_have_lines(tmp_path: Path) -> None:
    """Check the stacks of a recorded program: they are read from files after it has ended."""
    source = tmp_path / "made.cc"
    source.write_text(
        "#include <cstdlib>\n"
        "static inline __attribute__((always_inline)) void *made(int size) {\n"
        "    return malloc(size);\n"
        "}\n"
        "int main() {\n"
        "    void *kept = made(12345678);\n"
        "    return kept == nullptr;\n"
        "}\n"
    )
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    subprocess.run([compiler, "-O2", "-g", "-fno-builtin", str(source), "-o", str(tmp_path / "made")], check=True)
    log = tmp_path / "log"
    done = gdbheap("trace", "--stacks", "-o", str(log), "--", str(tmp_path / "made"))
    assert done.returncode == 0, done.stderr
    rows = json.loads(gdbheap("stacks", str(log), "--json").stdout)["rows"]
    (row,) = [row for row in rows if row["allocated_bytes"] >= 12345678]
    own = [(frame["name"], frame["line"]) for frame in row["frames"] if frame["file"] == str(source)]
    assert own == [("main", 6), ("made", 3)]


LONG = """
#line 1 "PATH"
static inline __attribute__((always_inline)) void inner(void) { __asm__ volatile("nop" : : : "memory"); }
int main(void)
{
    inner();
    inner();
    return 0;
}
"""


def long_program(folder: Path) -> tuple[str, Path, list[int]]:
    """Return a path of 3,900 characters, a program compiled from it, and the addresses of code that was inlined."""
    compiler, path = shutil.which("gcc"), "a" * 3888 + "/🦀 in/long.c"
    if compiler is None:
        pytest.skip("no C compiler")
    (folder / "long.c").write_text(LONG.replace("PATH", path))
    program = folder / "long"
    subprocess.run([compiler, "-g", "-O1", str(folder / "long.c"), "-o", str(program)], check=True)
    with program.open("rb") as file:
        table, room = SectionTable(file), SymbolRoom()
        code = dict(table.named(room))[".text"]
    with program.open("rb") as file:
        functions = Functions(file, None)
    addresses = range(code.address, code.address + code.size)
    return path, program, [address for address in addresses if len(functions.lines(address)) == 2]


def test_paths_are_short_and_kept_once(tmp_path: Path) -> None:
    """Check that of a long path only the end is kept, and that lines at several addresses share their texts."""
    path, program, addresses = long_program(tmp_path)
    with program.open("rb") as file:
        functions = Functions(file, None)
    found = [line for address in addresses for line in functions.lines(address)]
    assert len(addresses) >= 2 and {line.function for line in found} == {"inner", None}
    assert {line.file for line in found} == {"…" + path[-299:]}
    assert len({id(line.file) for line in found}) == 1 and len({id(line.function) for line in found}) == 2


@pytest.mark.parametrize("limit", ["MAX_SOURCE_LINES", "MAX_SOURCE_BYTES"])
def test_lines_of_a_target_are_limited(limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that after the limit no more lines are found, but those of addresses that were asked about before."""
    _path, program, (first, second, *_) = long_program(tmp_path)
    monkeypatch.setattr(f"gdbheap.targets.elf.{limit}", 2)
    with program.open("rb") as file:
        functions = Functions(file, None)
    assert (len(functions.lines(first)), functions.lines(second)) == (2, ())
    assert len(functions.lines(first)) == 2


def test_few_inlined_frames_in_a_stack() -> None:
    """Check that inlined functions after the limit are left out, and the functions that own the code never."""
    stack = [[f"inlined {place}.{call}" for call in range(32)] + [f"own {place}"] for place in range(1000)]
    found = list(few_inlined(stack))
    assert [frames[-1] for frames in found] == [f"own {place}" for place in range(1000)]
    whole = MAX_INLINED // 32
    assert found[:whole] == stack[:whole] and {len(frames) for frames in found[whole:]} == {1}


def test_damaged_debug_information(rng: random.Random, tmp_path: Path) -> None:
    """Check that nothing but missing or wrong lines follows from damage."""
    program = compiled(tmp_path, "-g")
    with program.open("rb") as file:
        table, room = SectionTable(file), SymbolRoom()
        sections = {name: table.contents(name, room) for name in (*NEEDED, *OTHERS)}
        code = next(one for name, one in table.named(room) if name == ".text")
    addresses = range(code.address, code.address + code.size, 7)
    whole = _native.SourceLines(sections, _native.LineBudget())
    assert sum(bool(whole.find(address)) for address in addresses) > len(addresses) // 2
    for _ in range(200):
        damaged = {name: bytearray(contents) for name, contents in sections.items()}
        for name in rng.sample([name for name in damaged if damaged[name]], 2):
            for _ in range(rng.choice([1, 10, 300])):
                value = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
                damaged[name][rng.randrange(len(damaged[name]))] = value
            del damaged[name][rng.choice([len(damaged[name]), rng.randrange(len(damaged[name]))]) :]
        lines = _native.SourceLines({name: bytes(one) for name, one in damaged.items()}, _native.LineBudget())
        for address in rng.sample(addresses, 20):
            assert all(len(line) == 3 for line in lines.find(address))


# A child reads debug information that is made up to take much time or memory, with the memory of a few files.
READS = r"""
import resource, struct, sys
from gdbheap._native import LineBudget, SourceLines
kind, count = sys.argv[1], int(sys.argv[2])
HIGH = 1 << 40
def number(value):
    low = value & 127
    return bytes([low | 128]) + number(value >> 7) if value >> 7 else bytes([low])
def form(code, tag, children, *attributes):
    pairs = b"".join(number(name) + number(kind) for name, kind in attributes)
    return number(code) + number(tag) + bytes([children]) + pairs + bytes(2)
def unit(entries):
    body = struct.pack("<HBBI", 5, 1, 8, 0) + entries
    return struct.pack("<I", len(body)) + body
COMMON = struct.pack("<BBBbBB", 1, 1, 1, -1, 14, 13) + bytes([0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1])
def table(program, names, files):
    head = COMMON + bytes([1, 1, 8]) + number(1) + b"d\0"
    head += bytes([1, 1, 8]) + number(files) + names
    body = struct.pack("<HBBI", 5, 8, 0, len(head)) + head + program
    return struct.pack("<I", len(body)) + body
def older_table(program):
    head = COMMON + b"\0f\0\0\0\0\0"
    body = struct.pack("<HI", 4, len(head)) + head + program
    return struct.pack("<I", len(body)) + body
def place(address): return bytes([0, 9, 2]) + struct.pack("<Q", address)
END = bytes([0, 1, 1])
own = struct.pack("<QQI", 0, HIGH, 0)
# Units with and without children; an inlined call with a list of ranges.
forms = form(1, 0x11, 0, (0x11, 1), (0x12, 7), (0x10, 0x17)) + form(2, 0x11, 1, (0x11, 1), (0x12, 7), (0x10, 0x17))
found = {".debug_abbrev": forms + form(3, 0x1D, 0, (0x55, 0x17)) + bytes(1)}
line = place(0) + b" \2" + number(HIGH) + END
found[".debug_line"] = table(line, b"f\0", 1)
found[".debug_info"] = unit(number(1) + own)
if kind == "files":
    found[".debug_line"] = table(line, bytes(count), count)
elif kind == "added files":
    found[".debug_line"] = older_table(bytes([0, 5, 3, 0, 0, 0, 0]) * count + line)
elif kind == "shared rows":
    found[".debug_line"] = table(place(1 << 50) + b" " * count + b"\2" + number(1) + END, b"f\0", 1)
    found[".debug_info"] = unit(number(1) + own) * 64
elif kind == "empty ranges":
    rows = struct.pack("<HBBI", 5, 8, 0, 0) + bytes([4, 0, 0]) * count + bytes(1)
    found[".debug_rnglists"] = struct.pack("<I", len(rows)) + rows
    found[".debug_info"] = unit(number(2) + own + (number(3) + struct.pack("<I", 12)) * 100_000 + bytes(1))
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
lines = SourceLines(found, LineBudget())
for address in range(10, 3000, 10):
    print(len(lines.find(address)))
"""


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        ("plain", 0),
        ("files", 4 << 20),
        ("added files", 9 << 20),
        ("added files", 1),
        ("added files", 0),
        ("shared rows", 3 << 20),
        ("empty ranges", 8 << 20),
    ],
)
def test_debug_information_that_would_take_hours(kind: str, count: int) -> None:
    """Check that few bytes of debug information cost neither gigabytes nor minutes: a budget ends the work."""
    command = [sys.executable, "-I", "-c", READS, kind, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr[-2000:]
    counts = set(map(int, done.stdout.split()))
    assert counts == ({1} if kind in ("plain", "empty ranges") or not count else {0})


def test_a_section_that_would_unpack_to_gigabytes(tmp_path: Path) -> None:
    """Check that a section that claims to be larger than there is room for is left out."""
    program = compiled(tmp_path, "-g", "-gz=zlib")
    rows = list(said(program, tmp_path))
    contents = bytearray(program.read_bytes())
    with program.open("rb") as file:
        sections = dict(SectionTable(file).named(SymbolRoom()))
    start = sections[".debug_info"].offset
    contents[start + 8 : start + 16] = (1 << 62).to_bytes(8, "little")
    program.write_bytes(contents)
    assert [lines_of(program, address) for address, _ in rows] == [[], []]
    assert image.SHF_COMPRESSED & sections[".debug_info"].flags
    with program.open("rb") as file:
        assert SourceLines.of(file, SectionTable(file), SymbolRoom()) is not None
