"""Cores as other dumpers write them: copies of the kernel's core, with its holes, without some parts."""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

PAGE = 4096
PT_LOAD, PT_NOTE = 1, 4
NT_FILE = 0x46494C45
SEGMENT = struct.Struct("<IIQQQQQQ")


def copied(core: Path, copy: Path) -> Path:
    """Return a copy of a core with its holes."""
    subprocess.run(["cp", "--sparse=always", str(core), str(copy)], check=True)
    return copy


def without_first_pages(core: Path, copy: Path) -> Path:
    """Return a copy without the page of each file's ELF header, as for programs that exclude it (MADV_DONTDUMP)."""
    starts = {start for start, _end, offset, _path in files(core) if not offset}

    def change(fields: list[int]) -> None:
        if fields[0] == PT_LOAD and fields[3] in starts and fields[5] == PAGE:
            fields[5] = 0

    return _with_headers(copied(core, copy), change)


def without_last_bytes(core: Path, copy: Path, part: float) -> Path:
    """Return a copy without the last ``part`` of its largest segment."""
    largest = max(fields[5] for fields in program_headers(core) if fields[0] == PT_LOAD)

    def change(fields: list[int]) -> None:
        if fields[0] == PT_LOAD and fields[5] == largest:
            fields[5] = int((1 - part) * fields[5]) // PAGE * PAGE

    return _with_headers(copied(core, copy), change)


def without_files_note(core: Path, copy: Path) -> Path:
    """Return a copy without NT_FILE, as before Linux 3.7: the note has another type."""
    copied(core, copy)
    with copy.open("r+b") as file:
        for place, kind, _data in _notes(core):
            if kind == NT_FILE:
                os.pwrite(file.fileno(), struct.pack("<I", 0x7E57), place + 8)
    return copy


def files(core: Path) -> list[tuple[int, int, int, str]]:
    """Return (start, end, offset in the file, path) of NT_FILE's entries."""
    (data,) = [data for _place, kind, data in _notes(core) if kind == NT_FILE]
    count, size = struct.unpack_from("<QQ", data)
    rows = [struct.unpack_from("<QQQ", data, 16 + 24 * number) for number in range(count)]
    names = data[16 + 24 * count :].split(b"\0")
    return [(start, end, pages * size, os.fsdecode(name)) for (start, end, pages), name in zip(rows, names)]


def program_headers(core: Path) -> list[list[int]]:
    """Return the fields of each program header: type, flags, offset, address, physical address, sizes, alignment."""
    with core.open("rb") as file:
        head = file.read(64)
        offset, (size, count) = struct.unpack_from("<Q", head, 32)[0], struct.unpack_from("<HH", head, 54)
        table = os.pread(file.fileno(), size * count, offset)
    return [list(fields) for fields in SEGMENT.iter_unpack(table)]


def _with_headers(core: Path, change: Callable[[list[int]], None]) -> Path:
    rows = program_headers(core)
    for fields in rows:
        change(fields)
    with core.open("r+b") as file:
        offset = struct.unpack("<Q", os.pread(file.fileno(), 8, 32))[0]
        os.pwrite(file.fileno(), b"".join(SEGMENT.pack(*fields) for fields in rows), offset)
    return core


def _notes(core: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield (place in the file, type, contents) of each note."""
    (segment,) = [fields for fields in program_headers(core) if fields[0] == PT_NOTE]
    with core.open("rb") as file:
        data = os.pread(file.fileno(), segment[5], segment[2])
    at = 0
    while at + 12 <= len(data):
        owner, size, kind = struct.unpack_from("<III", data, at)
        body = at + 12 + (owner + 3) // 4 * 4
        yield segment[2] + at, kind, data[body : body + size]
        at = body + (size + 3) // 4 * 4
