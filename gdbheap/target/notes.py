"""The notes of a core: its threads, the files it had mapped, its auxiliary vector, its name.

Layouts are those of the x86-64 kernel (include/linux/elfcore.h, fs/binfmt_elf.c) and of gdb, which writes the same::

    CORE   NT_PRSTATUS   336 bytes; pr_pid at 32; 27 registers from 112: rip is the 17th, rsp the 20th, fs_base the 22nd
    CORE   NT_PRPSINFO   136 bytes; pr_pid at 24; pr_fname at 40, 16 bytes; pr_psargs at 56, 80 bytes
    CORE   NT_FILE       count, page size; (start, end, offset in pages) each; then the paths, each with a zero byte
    CORE   NT_SIGINFO    128 bytes, only the kernel writes it: si_code at 8, si_pid at 16; of the first thread
    CORE   NT_AUXV       pairs of words
    GDB    NT_GDB_TDESC  only a core written by gdb (gcore) has it
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from gdbheap.target.image import iter_notes
from gdbheap.target.procfs import parse_auxv
from gdbheap.target.target import Thread

NT_PRSTATUS, NT_PRPSINFO, NT_AUXV = 1, 3, 6
NT_FILE, NT_SIGINFO = 0x46494C45, 0x53494749
NT_GDB_TDESC = 0xFF000000
THREAD_LIMIT = 1 << 20
# r15 to rdi; after them come orig_rax, rip and so on.
GENERAL = 15

_PRSTATUS_SIZE = 336
_REGISTERS = struct.Struct("<27Q")
_FILE_HEAD = struct.Struct("<QQ")
_FILE_ENTRY = struct.Struct("<QQQ")


class MappedFile(NamedTuple):
    """An entry of NT_FILE; ``offset`` in bytes, ``path`` as the process saw it."""

    start: int
    end: int
    offset: int
    path: str


@dataclass
class CoreNotes:
    """What the notes say; whatever is missing stays empty."""

    threads: list[Thread] = field(default_factory=list)
    files: list[MappedFile] = field(default_factory=list)
    auxv: dict[int, int] = field(default_factory=dict)
    pid: int | None = None
    name: str = ""
    signal: tuple[int, int] | None = None
    by_gdb: bool = False
    of_kernel: bool = False


def read_notes(data: bytes, align: int = 4) -> CoreNotes:
    """The notes of a core's PT_NOTE segment; damaged ones are left out."""
    found = CoreNotes()
    for note in iter_notes(data, align):
        if note.owner == b"CORE":
            _add_core_note(found, note.type, note.data)
        found.by_gdb |= note.owner == b"GDB" and note.type == NT_GDB_TDESC
        found.of_kernel |= note.owner == b"VMCOREINFO"
    if found.pid is None and found.threads:
        found.pid = found.threads[0].tid
    if found.signal and found.threads:
        code, sender = found.signal
        # A fault has a positive code; abort() is a signal that the process sends to itself.
        found.threads[0] = replace(found.threads[0], failed=code > 0 or sender == found.pid)
    return found


def _add_core_note(found: CoreNotes, kind: int, data: bytes) -> None:
    if kind == NT_PRSTATUS and len(data) >= _PRSTATUS_SIZE and len(found.threads) < THREAD_LIMIT:
        found.threads.append(_thread(data))
    elif kind == NT_PRPSINFO and len(data) >= 56:
        found.pid = int.from_bytes(data[24:28], "little")
        found.name = data[40:56].split(b"\0")[0].decode("utf-8", "replace")
    elif kind == NT_SIGINFO and len(data) >= 20:
        found.signal = struct.unpack_from("<i4xi", data, 8)
    elif kind == NT_AUXV:
        found.auxv = parse_auxv(data)
    elif kind == NT_FILE:
        found.files = parse_files(data)


def _thread(data: bytes) -> Thread:
    registers = _REGISTERS.unpack_from(data, 112)
    tid = int.from_bytes(data[32:36], "little")
    return Thread(tid, registers[21], sp=registers[19], pc=registers[16], registers=registers[:GENERAL])


def parse_files(data: bytes) -> list[MappedFile]:
    """The entries of NT_FILE, ascending; as many as are whole."""
    if len(data) < _FILE_HEAD.size:
        return []
    count, page_size = _FILE_HEAD.unpack_from(data)
    count = min(count, (len(data) - _FILE_HEAD.size) // _FILE_ENTRY.size)
    names_at = _FILE_HEAD.size + count * _FILE_ENTRY.size
    entries = _FILE_ENTRY.iter_unpack(data[_FILE_HEAD.size : names_at])
    paths = data[names_at:].split(b"\0")
    files = (
        MappedFile(start, end, pages * page_size, os.fsdecode(path))
        for (start, end, pages), path in zip(entries, paths)
    )
    return sorted(file for file in files if file.start < file.end)
