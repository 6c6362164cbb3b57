"""Cores that the tests write, with chosen notes and loads."""

from __future__ import annotations

import os
import struct
from pathlib import Path

PAGE = 4096
PT_LOAD, PT_NOTE = 1, 4
ET_CORE, EM_X86_64 = 4, 62


def note(owner: bytes, kind: int, data: bytes) -> bytes:
    """Return one note as the kernel writes it."""
    name = owner + b"\0"
    pad = bytes(-len(name) % 4)
    return struct.pack("<III", len(name), len(data), kind) + name + pad + data + bytes(-len(data) % 4)


def prstatus(tid: int, thread_pointer: int = 0, sp: int = 0, pc: int = 0) -> bytes:
    """Return NT_PRSTATUS of one thread."""
    registers = [0] * 27
    registers[16], registers[19], registers[21] = pc, sp, thread_pointer
    data = bytes(32) + struct.pack("<I", tid) + bytes(76) + struct.pack("<27Q", *registers) + bytes(8)
    return note(b"CORE", 1, data)


def make_core(path: Path, notes: bytes, loads: list[tuple[int, int, bytes, int]], machine: int = EM_X86_64) -> Path:
    """Write a core as the kernel does; ``loads`` are (address, size in memory, bytes in the file, flags)."""
    headers, offset = [], 64 + 56 * (len(loads) + 1)
    headers.append(struct.pack("<IIQQQQQQ", PT_NOTE, 0, offset, 0, 0, len(notes), 0, 4))
    offset = (offset + len(notes) + PAGE - 1) // PAGE * PAGE
    for address, size, data, flags in loads:
        headers.append(struct.pack("<IIQQQQQQ", PT_LOAD, flags, offset, address, 0, len(data), size, PAGE))
        offset += len(data)
    extended = len(headers) >= 0xFFFF
    shown = 0xFFFF if extended else len(headers)
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHI", ET_CORE, machine, 1)
    head += struct.pack("<QQQIHHHHHH", 0, 64, offset if extended else 0, 0, 64, 56, shown, 64, extended, 0)
    with path.open("wb") as file:
        file.write(head + b"".join(headers) + notes)
        file.seek(-file.tell() % PAGE, os.SEEK_CUR)
        file.write(b"".join(data for _, _, data, _ in loads))
        if extended:
            file.seek(offset)
            file.write(struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, 0, 0, len(headers), 0, 0))
    return path
