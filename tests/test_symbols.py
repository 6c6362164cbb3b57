"""Symbols of a target's files: those that readelf lists, by name and by address.

Files with very many symbols take memory and time in proportion, all together, and no more than is left.
"""

from __future__ import annotations

import resource
import shutil
import struct
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path

import pytest
from support import programs
from support.work import ended

from gdbheap._native import SymbolTable
from gdbheap.graph import roots
from gdbheap.targets import elf
from gdbheap.targets.elf import ElfFile, ElfFiles
from gdbheap.targets.functions import Functions

SYMBOL, SECTION = struct.Struct("<IBBHQQ"), struct.Struct("<IIQQQQIIQQ")
GLOBAL_FUNCTION, LETTERS = 0x12, b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$"
EVERYTHING = 0, 2**64 - 1, 0, 1 << 30
COUNT, FILES = 300_000, 3
KIB, MEGA = 1 << 10, 1 << 20
HAVE_ADDRESSES = {"NOTYPE", "OBJECT", "FUNC", "COMMON", "IFUNC"}
LOADS = """
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **paths) {
    for (int i = 1; i < count; i++)
        if (!dlopen(paths[i], RTLD_NOW))
            return 1;
    fputs("ready", stderr);
    pause();
    return malloc(1000) == 0;
}
"""
LIBRARY = """
#include <string>
namespace { struct Local { std::string text; virtual ~Local() {} }; Local hidden; int twice[3] = {1}; }
namespace shop { std::string name; template <class T> T least(T a, T b) { return a < b ? a : b; } }
extern "C" int plain(int a) { static int calls; calls += twice[a]; return shop::least(calls, a); }
extern "C" int other(int a) __attribute__((alias("plain")));
extern "C" int weak(int a) __attribute__((weak));
int weak(int a) { static long calls[4]; return static_cast<int>(++calls[a & 3]); }
thread_local int each = 5;
asm(".text\\n.globl around\\n.type around,@function\\naround: nop\\n"
    ".globl inside\\n.type inside,@function\\ninside: ret\\n"
    ".size inside,1\\n.size around,2\\nnowhere = 0x1234\\n");
"""
GROWS = """
import time
kept = []
while True:
    kept.append(bytes(1 << 20))
    time.sleep(0.05)
"""
NO_ROOM = """
from gdbheap.commands.shell.main import main
from gdbheap.targets import elf
elf.room_for_copy = lambda: 0
raise SystemExit(main())
"""


def compiled(folder: Path, source: str, name: str, *flags: str) -> Path:
    """Return the result of compiling a source of C or C++."""
    compiler = shutil.which("g++" if "namespace" in source else "gcc")
    if compiler is None:
        pytest.skip("no compiler")
    language, folder = "c++" if compiler.endswith("++") else "c", folder / "built"
    folder.mkdir(exist_ok=True)
    command = [compiler, "-x", language, "-", "-x", "none", "-o", str(folder / name), *flags]
    subprocess.run(command, input=source, text=True, check=True)
    return folder / name


def many_symbols(folder: Path, count: int, number: int = 0, size: int | None = None) -> Path:
    """Return a library whose ``.symtab`` was replaced by one with ``count`` functions of different names.

    ``size``: the size that the header states, if it is not the table's; the file has room for it.
    """
    path = compiled(folder, f"int library_{number}(void) {{ return {number}; }}", f"lib{number}.so", "-shared", "-fPIC")
    data = bytearray(path.read_bytes())
    (start,), (step, many, last) = struct.unpack_from("<Q", data, 0x28), struct.unpack_from("<HHH", data, 0x3A)
    sections = [list(SECTION.unpack_from(data, start + step * place)) for place in range(many)]
    table = next(section for section in sections if data[sections[last][4] + section[0] :].startswith(b".symtab\0"))
    strings = sections[table[6]]
    names = b"\0" + b"".join(bytes(letters) + b"\0" for letters in islice(product(LETTERS, repeat=4), count))
    symbols = bytes(SYMBOL.size) + b"".join(
        SYMBOL.pack(1 + 5 * place, GLOBAL_FUNCTION, 0, 1, (1 << 32) + 4096 * place, 1 + place) for place in range(count)
    )
    strings[4:6] = len(data), len(names)
    table[4:6] = len(data) + len(names), size or len(symbols)
    data += names + symbols
    for place, section in enumerate(sections):
        SECTION.pack_into(data, start + step * place, *section)
    path.write_bytes(data)
    if size:
        with path.open("r+b") as stream:
            stream.truncate(len(data) + size)
    return path


def listed(path: Path) -> Iterator[tuple[str, int, int, str, str]]:
    """Yield (table, address, size, type, name) of the symbols that readelf lists and that are in the file."""
    if shutil.which("readelf") is None:
        pytest.skip("no readelf")
    table = ""
    done = subprocess.run(["readelf", "-sW", str(path)], capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        words = line.split()
        if line.startswith("Symbol table"):
            table = words[2].strip("'")
        elif len(words) >= 7 and words[0].rstrip(":").isdigit() and words[6] not in ("UND", "ABS"):
            name = words[7].partition("@")[0] if table == ".dynsym" and len(words) > 7 else "".join(words[7:8])
            yield table, int(words[1], 16), int(words[2], 0), words[3], name


@pytest.mark.parametrize("name", ["libc.so.6", "libstdc++.so.6", "built.so"])
def test_equal_to_readelf(tmp_path: Path, name: str) -> None:
    """Check that exactly these symbols are found by name and by address, and so are functions."""
    if name == "built.so":
        path = compiled(tmp_path, LIBRARY, name, "-g", "-shared", "-fPIC")
    else:
        found = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
        path = Path(found.stdout.strip())
        if not path.is_absolute():
            pytest.skip(f"no {name}")
    file, functions = ElfFile(str(path)), Functions(path.open("rb"), None)
    rows = list(listed(path))
    for table, symbols in ((".symtab", file.static), (".dynsym", file.dynamic)):
        wanted = [row for row in rows if row[0] == table and row[3] in HAVE_ADDRESSES and row[1]]
        places: dict[str, set[tuple[int, int]]] = defaultdict(set)
        for _, address, size, _, known in wanted:
            places[known].add((address, size))
        assert sorted(row[:3] for row in symbols.starting_in(*EVERYTHING)) == sorted(
            (address, size, known) for _, address, size, _, known in wanted
        )
        assert all(symbols.find(known) in placed for known, placed in places.items())
        for _, address, size, kind, known in wanted:
            assert (address, size, known) in symbols.at(address)
            assert not size or (address, size, known) in symbols.around(address + size - 1)
            assert "FUNC" not in kind or functions.find(address) is not None
        local = [(address, size, known) for each, address, size, kind, known in rows if (each, kind) == (table, "TLS")]
        assert symbols.thread_local() == local
    assert any(row[0] == ".dynsym" for row in rows) and file.find("no such symbol") is None
    if name == "built.so":
        inside, outer = file.find("inside"), file.find("around")
        assert inside is not None and outer is not None
        assert [functions.find(one) for one in (inside[0], outer[0], outer[0] + 2)][:2] == ["inside", "around"]
        assert {row[2] for row in file.static.around(inside[0])} == {"inside", "around"}


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return libraries with very many symbols."""
    return [many_symbols(tmp_path_factory.mktemp("many"), COUNT, number) for number in range(FILES)]


def test_memory_of_many_symbols(tmp_path: Path, libraries: list[Path]) -> None:
    """Check that a process that has loaded such libraries costs a few times their size, and not more for each
    symbol."""
    program = compiled(tmp_path, LOADS, "loads", "-ldl")
    peaks = []
    for loaded in ([], libraries):
        with programs.running([str(program), *map(str, loaded)], tmp_path) as target:
            status, said, peak = ended([programs.GDBHEAP, target.pid])
            assert status == 0 and "too little memory is left" not in said, said
            peaks.append(peak)
    assert peaks[1] - peaks[0] < 4 * sum(path.stat().st_size for path in libraries)


def test_many_symbols_are_found(libraries: list[Path]) -> None:
    """Check that each symbol is found by its name and by its address."""
    file, functions = ElfFile(str(libraries[0])), Functions(libraries[0].open("rb"), None)
    for place, letters in enumerate(islice(product(LETTERS, repeat=4), COUNT)):
        name, address = bytes(letters).decode(), (1 << 32) + 4096 * place
        assert file.static.find(name) == (address, 1 + place)
        assert place % 100 or (functions.find(address) == name and file.static.at(address)[0][2] == name)


def test_function_with_long_names() -> None:
    """Check that the many long names of a function cost their time once, and not for each place in the function."""
    start, size = 4096, 20_000
    words = [b"_plain", b"plain"] + [b"_" * 4050 + b"x%d" % number for number in range(512)]
    names, entries = b"\0", b""
    for word in words:
        entries += struct.pack("<IBBHQQ", len(names), 0x12, 0, 1, start, size)
        names += word + b"\0"
    functions = Functions(None, None)
    functions._symbols = SymbolTable([(entries, names)], True)
    began = time.process_time()
    assert {functions.find(address) for address in range(start, start + size)} == {"plain"}
    assert time.process_time() - began < 5


def test_names_that_resemble_each_other() -> None:
    """Check symbols that all have one name, and names that end or begin alike: none is compared with all others."""
    names = b"".join(b"%080d\0" % place for place in range(COUNT))
    alike = b"".join(SYMBOL.pack(81 * place, 0x11, 0, 1, 8 + 8 * place, 8) for place in range(COUNT))
    table = SymbolTable([(alike, names)], False)
    assert all(table.find(f"{place:080}") == (8 + 8 * place, 8) for place in range(COUNT))
    same = b"".join(SYMBOL.pack(81 * place, 0x11, 0, 1, 8, 1 << 40) for place in range(COUNT))
    table = SymbolTable([(same, b"0" * 80 + b"\0" + names[81:])], False)
    assert all(len(table.at(8)) == len(table.around(1 << 30)) == 256 for _ in range(COUNT // 100))
    one = SymbolTable([(same, (b"x" * 80 + b"\0") * COUNT)], False)
    assert all(one.find("x" * 80) == (8, 1 << 40) and one.find("x") is None for _ in range(COUNT))


def test_all_files_have_one_budget(libraries: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that if memory suffices for the symbols of one file, those of the others are not read, and that a
    warning names them."""
    monkeypatch.setattr(elf, "room_for_copy", lambda: elf.SYMBOLS_SHARE * (libraries[0].stat().st_size + KIB))
    files = ElfFiles()
    assert files.room.take(0)
    found = [file for file in (files.get(str(path)) for path in libraries) if file is not None]
    assert [file.find("aaab") is not None for file in found] == [True, False, False]
    assert all(file.find(f"library_{place}") is not None for place, file in enumerate(found))
    (line,) = files.room.warnings()
    assert line.startswith("too little memory is left to read 2 symbol tables")


def test_a_table_for_which_there_is_no_room(tmp_path: Path) -> None:
    """Check that a file that claims and has 2 GiB of symbols is answered for with little memory."""
    program, library = compiled(tmp_path, LOADS, "loads", "-ldl"), many_symbols(tmp_path, 10, size=2 << 30)
    kept = library.rename(library.with_name("libc.so"))
    with programs.running([str(program), str(kept)], tmp_path) as target:
        for noun in ("info", "trim", "owners"):
            done = programs.gdbheap(noun, str(target.pid), preexec_fn=lambda: limit(400 * MEGA))
            assert done.returncode == 0 and done.stdout.count("too little memory is left") == 1, (
                done.stdout,
                done.stderr,
            )


def test_stacks_say_what_was_not_read(tmp_path: Path) -> None:
    """Check that names of functions that are missing in stacks, for want of memory, are reported, for a process and
    a log."""
    log, allocates = tmp_path / "calls.log", [sys.executable, "-c", "kept = bytes(1 << 20)"]
    assert programs.gdbheap("trace", "-o", str(log), "--stacks=1", "--", *allocates).returncode == 0
    grows = subprocess.Popen([sys.executable, "-c", GROWS])
    try:
        for words in ["growth", str(grows.pid), "--count=1"], ["growth", "--", *allocates], ["stacks", str(log)]:
            command = [sys.executable, "-c", NO_ROOM, *words]
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=programs.PATIENCE)
            assert done.returncode == 0, done.stderr
            assert " ".join(done.stdout.split()).count("too little memory is left") == 1, done.stdout
    finally:
        grows.kill()
        grows.wait()


def test_roots_take_what_memory_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a symbol of data becomes a root of the graph, and that fewer do if memory is short."""
    most = roots._Budget().symbols
    monkeypatch.setattr(roots, "room_for_copy", lambda: 100 * KIB)
    assert 100 == roots._Budget().symbols < most


def limit(size: int) -> None:
    """Limit the address space."""
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
