"""ELF objects in memory and ELF files on disk: symbols as pyelftools lists them, build-ids, and damaged files."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import given, settings
from hypothesis import strategies as st
from support import programs
from support.symbols_program import SOURCE, compile_program

from gdbheap._native import Space
from gdbheap.errors import Fault
from gdbheap.machines import image
from gdbheap.machines.machine import X86_64
from gdbheap.targets.core import SegmentRow
from gdbheap.targets.elf import ElfFile, ElfFiles, LoadedObject, find_objects
from gdbheap.targets.mappings import Mapping, Mappings
from gdbheap.targets.process import Process, stopped


@pytest.fixture(params=["-pie", "-no-pie", "-static", "-static-pie"])
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Process, LoadedObject, list[int]]]:
    """Yield the program as a stopped process, its own object, and the addresses that it printed."""
    path = compile_program(tmp_path, request.param)
    with programs.running([str(path)], tmp_path) as running, stopped(running.pid) as process:
        mine = [owner for owner in process.objects if owner.path == str(path)]
        assert len(mine) == 1
        yield process, mine[0], [int(word, 16) for word in running.stderr.split()]


def test_symbols_are_where_the_program_says(program: tuple[Process, LoadedObject, list[int]]) -> None:
    """Check that addresses of global and local symbols equal those that the program printed; thread-local ones have
    none."""
    _, owner, printed = program
    assert [owner.symbol(name) for name in ("in_data", "in_bss", "function", "local_data")] == printed
    assert owner.extent("in_bss") == (printed[1], 800000)
    assert {row[2] for row in owner.symbols_around(printed[1] + 799999)} == {"in_bss"}
    assert (printed[1], 800000, "in_bss") in owner.symbols_in(printed[1], printed[1] + 1, 10)
    assert "function" in owner.names_at(printed[2])
    assert owner.symbol("thread_local") is None and owner.symbol("no such symbol") is None


def test_bss_is_part_of_the_object(program: tuple[Process, LoadedObject, list[int]]) -> None:
    """Check that the last byte of .bss is in a writable range and belongs to the object, and that no range goes
    beyond that page."""
    process, owner, (data, bss, code, _) = program
    last = bss + 800000 - 1
    for address in (data, bss, last):
        assert any(start <= address < end for start, end in owner.writable_ranges())
        assert process.object_of(address) is owner
    assert process.object_of(code) is owner and not any(a <= code < b for a, b in owner.writable_ranges())
    bss_end = owner.bss[-1][1]
    assert last < bss_end <= owner.end
    linked_end = max(owner.bias + s.address + s.memory_size for s in owner.segments if s.type == image.PT_LOAD)
    assert bss_end - linked_end < process.machine.page
    assert process.space.word(bss + 8 * 99999) == 9


def test_symbols_equal_pyelftools() -> None:
    """Check every named symbol with an address of this Python against pyelftools; global names win over local ones."""
    path = str(Path(sys.executable).resolve())
    with open(path, "rb") as stream:
        elf: Any = ELFFile(stream)
        tables = [elf.get_section_by_name(name) for name in (".symtab", ".dynsym")]
        symbols = [symbol for table in tables if table is not None for symbol in table.iter_symbols()]
        wanted = [s for s in symbols if s["st_value"] and s["st_shndx"] not in ("SHN_UNDEF", "SHN_ABS")]
    kinds = {"STT_TLS", "STT_SECTION", "STT_FILE"}
    values: dict[str, set[tuple[int, int]]] = {}
    for symbol in wanted:
        if symbol["st_info"]["type"] not in kinds:
            values.setdefault(symbol.name, set()).add((symbol["st_value"], symbol["st_size"]))
    file = ElfFile(path)
    assert all(file.find(name) in known for name, known in values.items()) and file.find("no such symbol") is None


def test_another_build_id_is_not_trusted(tmp_path: Path) -> None:
    """Check that neither symbols nor bytes are taken from a file that replaced the running one."""
    path = compile_program(tmp_path)
    with programs.running([str(path)], tmp_path) as running:
        path.rename(tmp_path / "moved")
        (tmp_path / "program.c").write_text(SOURCE.replace("100000", "100001"))
        subprocess.run(["cc", "-g", str(tmp_path / "program.c"), "-o", str(path)], check=True)
        other = ElfFile(str(path)).build_id
        with stopped(running.pid) as process:
            mine = [owner for owner in process.objects if owner.path.startswith(str(tmp_path))]
    assert other is not None and all(owner.build_id != other for owner in mine)
    assert ElfFiles().matching([str(path)], mine[0].build_id) is None
    assert ElfFiles().matching([str(tmp_path / "moved")], mine[0].build_id) is not None


def test_a_deleted_program_is_still_known(tmp_path: Path) -> None:
    """Check that the symbols of a running program can be read after its file was deleted, since the kernel keeps it."""
    path = compile_program(tmp_path)
    with programs.running([str(path)], tmp_path) as running:
        path.unlink()
        with stopped(running.pid) as process:
            mine = [owner for owner in process.objects if owner.path == f"{path} (deleted)"]
            assert mine[0].file is not None and mine[0].symbol("in_bss") == int(running.stderr.split()[1], 16)


def test_a_library_read_as_data_is_no_object(tmp_path: Path) -> None:
    """Check that a program that only maps an ELF file to read it has not loaded it."""
    library = programs.build("mappings")
    script = "import mmap,sys,signal\nf=open(sys.argv[1])\nm=mmap.mmap(f.fileno(),0,prot=1,flags=2)\nsignal.pause()"
    with programs.running([sys.executable, "-c", script, str(library)], tmp_path) as running:
        with stopped(running.pid) as process:
            assert any(mapping.path == str(library) for mapping in process.mappings)
            assert all(owner.path != str(library) for owner in process.objects)


def test_files_that_are_none(tmp_path: Path) -> None:
    """Check that text, an empty file, a folder, a FIFO and a device are no ELF files, and that the check does not
    block."""
    (tmp_path / "text").write_text("#!/bin/sh\n")
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "fifo")
    files = ElfFiles()
    for path in (*map(str, (tmp_path / "text", tmp_path / "empty", tmp_path / "fifo", tmp_path)), "/dev/zero", "\0"):
        assert files.get(path) is None


def small_elf() -> bytes:
    """Return the bytes of a program with few symbols."""
    return programs.build("mappings").read_bytes()


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Return ``data`` cut or with some bytes overwritten, often in its headers."""
    changed = bytearray(data[: rng.randrange(len(data))] if rng.random() < 0.2 else data)
    for _ in range(rng.randrange(1, 40)):
        if not changed:
            break
        area = rng.choice((64, 1024, len(changed)))
        at = rng.randrange(min(area, len(changed)))
        changed[at : at + 4] = rng.choice((b"\xff" * 4, bytes(4), rng.randbytes(4)))
    return bytes(changed)


def test_damaged_files(tmp_path: Path, rng: random.Random) -> None:
    """Check that a damaged ELF file is refused or has fewer symbols, without other errors."""
    whole, path = small_elf(), tmp_path / "damaged"
    for _ in range(300):
        path.write_bytes(damaged(whole, rng))
        try:
            file = ElfFile(str(path))
        except (ValueError, OSError, OverflowError):
            continue
        for table in (file.static, file.dynamic):
            rows = table.starting_in(0, 2**64 - 1, 0, 2**20)
            assert all(table.around(value) for value, size, _ in rows if size) and len(table.thread_local()) < 2**14
            assert all(table.find(name) for _, _, name in rows if "\ufffd" not in name)
            start = table.function(rows[0][0] if rows else 0)
            assert start is None or table.plainest(start) is not None


@settings(max_examples=300)
@given(st.binary(max_size=200), st.integers(0, 64))
def test_headers_of_any_bytes(noise: bytes, at: int) -> None:
    """Check that any bytes give a header or none, segments or none, and notes within them."""
    start = small_elf()[:1024]
    data = start[:at] + noise + start[at + len(noise) :]
    image.parse_header(data)
    image.parse_segments(data[64:])
    for align in (4, 8):
        assert sum(len(note.data) for note in image.iter_notes(data, align)) <= len(data)
        image.build_id(image.iter_notes(data, align))


def test_hostile_images_in_memory(tmp_path: Path, rng: random.Random) -> None:
    """Check that a damaged image in a target yields objects within its mappings, or none."""
    whole, path = small_elf(), tmp_path / "image"
    base, size = 0x7F0000000000, (len(whole) + 4095) // 4096 * 4096
    for _ in range(300):
        path.write_bytes(damaged(whole, rng).ljust(size, b"\0"))
        space = Space.for_core(X86_64, [SegmentRow(base, base + size, 0, 0)], [str(path)])
        cuts = sorted({0, size, *(rng.randrange(0, size, 4096) for _ in range(3))})
        perms = [rng.choice(("r--p", "rw-p")) for _ in cuts[1:]]
        pieces = [Mapping(base + a, base + b, p, a, "00:00", 1, "/x") for a, b, p in zip(cuts, cuts[1:], perms)]
        bss = Mapping(base + size, base + size + 65536, "rw-p", 0, "00:00", 0, "")
        for owner in find_objects(X86_64, Mappings([*pieces, bss]), space, ElfFiles(), lambda first: [str(path)]):
            assert all(base <= start < end <= bss.end for start, end in owner.writable_ranges())
            assert owner.contains(base) and owner.end <= bss.end


def test_an_absent_image_is_a_fault() -> None:
    """Check that a space without segments has no bytes and names the address."""
    space = Space.for_core(X86_64, [], [])
    with pytest.raises(Fault) as fault:
        space.read(4096, 8)
    assert fault.value.args[0] == 4096
    absent = Mappings([Mapping(0, 4096, "r--p", 0, "00:00", 1, "/x")])
    assert find_objects(X86_64, absent, space, ElfFiles(), lambda first: []) == []
