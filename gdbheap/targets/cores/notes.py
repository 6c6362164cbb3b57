"""The notes of a core: its threads, the files it had mapped, its auxiliary vector, its name.

Layouts are those of the kernel (include/linux/elfcore.h, fs/binfmt_elf.c) and of gdb, which writes the same; sizes and
offsets are the machine's::

    CORE   NT_PRSTATUS   of each thread: pr_pid, and the registers as words
    CORE   NT_PRPSINFO   pr_pid; pr_fname, 16 bytes; pr_psargs, 80 bytes
    CORE   NT_FILE       count, page size; (start, end, offset in pages) each; then the paths, each with a zero byte
    CORE   NT_SIGINFO    of the first thread, written by the kernel only: si_code, si_pid
    CORE   NT_AUXV       pairs of words
    LINUX  NT_ARM_TLS    after its thread's NT_PRSTATUS, on aarch64: the thread pointer
    GDB    NT_GDB_TDESC  only a core written by gdb (gcore) has it
"""

from __future__ import annotations

import os
from dataclasses import field, replace
from itertools import islice
from typing import NamedTuple

from gdbheap.dataclass import dataclass
from gdbheap.host.headroom import room_for_copy
from gdbheap.host.procfs import parse_auxv
from gdbheap.machines.image import iter_notes
from gdbheap.machines.machine import Machine
from gdbheap.targets.target import Thread

PSARGS_BYTES = 80
NT_PRSTATUS, NT_PRPSINFO, NT_AUXV = 1, 3, 6
NT_FILE, NT_SIGINFO = 0x46494C45, 0x53494749
NT_ARM_TLS = 0x401
NT_GDB_TDESC = 0xFF000000
# The most threads and mapped files that are read. Each thread needs a mapping for its stack, and Linux allows 65,530
# mappings by default.
THREAD_LIMIT, FILE_LIMIT = 1 << 16, 1 << 20
# The memory that gdbheap needs for each thread and for each file, in bytes, and the most notes of a thread.
THREAD_BYTES, FILE_BYTES = 8 << 10, 1 << 10
NOTES_OF_THREAD = 16
# PATH_LIMIT: the bytes of the kernel's longest path with " (deleted)". AUXV_LIMIT: more bytes than any auxiliary vector
# has so far.
PATH_LIMIT, AUXV_LIMIT = 4200, 4 << 10


class MappedFile(NamedTuple):
    """An entry of NT_FILE: [start, end) in memory.

    ``offset``: where this memory begins in the file, in bytes.
    ``path``: the file's path as the process saw it.
    """

    start: int
    end: int
    offset: int
    path: str


@dataclass
class CoreNotes:
    """The contents of a core's notes. A field is empty if its note is missing.

    ``is_cut``: whether there were more threads or files than a process can have, or than fit into memory.
    """

    threads: list[Thread] = field(default_factory=list)
    files: list[MappedFile] = field(default_factory=list)
    auxv: dict[int, int] = field(default_factory=dict)
    pid: int | None = None
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    signal: tuple[int, int] | None = None
    by_gdb: bool = False
    of_kernel: bool = False
    is_cut: bool = False


def read_notes(machine: Machine, data: bytes, align: int = 4, room: int | None = None) -> CoreNotes:
    """Return the contents of a PT_NOTE segment in a core of ``machine``; damaged notes are left out.

    ``room``: the bytes of memory that the result may take.
    """
    found = CoreNotes()
    room = room_for_copy() if room is None else room
    threads, files = min(THREAD_LIMIT, room // THREAD_BYTES), min(FILE_LIMIT, room // FILE_BYTES)
    for note in islice(iter_notes(data, align), NOTES_OF_THREAD * THREAD_LIMIT):
        if note.owner == b"CORE" and note.type == NT_FILE:
            found.files, is_cut = parse_files(machine, note.data, files)
            found.is_cut |= is_cut
        elif note.owner == b"CORE" and note.type == NT_PRSTATUS and len(found.threads) >= threads:
            found.is_cut = True
        elif note.owner == b"CORE":
            _add_core_note(machine, found, note.type, note.data)
        elif note.owner == b"LINUX" and note.type == NT_ARM_TLS and found.threads and len(note.data) >= machine.word:
            found.threads[-1] = replace(found.threads[-1], thread_pointer=machine.word_of(note.data))
        found.by_gdb |= note.owner == b"GDB" and note.type == NT_GDB_TDESC
        found.of_kernel |= note.owner == b"VMCOREINFO"
    if found.pid is None and found.threads:
        found.pid = found.threads[0].tid
    if found.signal and found.threads:
        code, sender = found.signal
        # A fault has a positive code; abort() is a signal that the process sends to itself.
        found.threads[0] = replace(found.threads[0], failed=code > 0 or sender == found.pid)
    return found


def _add_core_note(machine: Machine, found: CoreNotes, kind: int, data: bytes) -> None:
    layout = machine.notes
    if kind == NT_PRSTATUS and len(data) >= layout.prstatus:
        found.threads.append(_thread(machine, data))
    elif kind == NT_PRPSINFO and len(data) >= layout.prpsinfo_name + layout.name_size:
        found.pid = _number(machine, data, layout.prpsinfo_pid)
        found.name = data[layout.prpsinfo_name :][: layout.name_size].split(b"\0")[0].decode("utf-8", "replace")
        words = data[layout.prpsinfo_name + layout.name_size :][:PSARGS_BYTES].split(b"\0")[0]
        # The kernel replaces the zeros between arguments by blanks.
        found.arguments = words.decode("utf-8", "replace").split()
    elif kind == NT_SIGINFO and len(data) >= layout.siginfo_pid + 4:
        places = layout.siginfo_code, layout.siginfo_pid
        found.signal = _number(machine, data, places[0], "i"), _number(machine, data, places[1], "i")
    elif kind == NT_AUXV:
        found.auxv = parse_auxv(machine, data[:AUXV_LIMIT])


def _number(machine: Machine, data: bytes, offset: int, kind: str = "I") -> int:
    """Return the C int at ``offset``: unsigned, or signed if ``kind`` is ``i``."""
    return int(machine.structure(kind).unpack_from(data, offset)[0])


def _thread(machine: Machine, data: bytes) -> Thread:
    layout = machine.notes
    registers = machine.structure(f"{layout.count}P").unpack_from(data, layout.registers)
    return Thread(
        _number(machine, data, layout.tid),
        0 if layout.thread_pointer is None else registers[layout.thread_pointer],
        sp=registers[layout.sp],
        pc=registers[layout.pc],
        registers=registers[: layout.general],
    )


def parse_files(machine: Machine, data: bytes, most: int = FILE_LIMIT) -> tuple[list[MappedFile], bool]:
    """Return the first ``most`` complete entries of NT_FILE, ascending, and whether there are more."""
    head, entry = machine.structure("PP"), machine.structure("PPP")
    if len(data) < head.size:
        return [], False
    count, page_size = head.unpack_from(data)
    count = min(count, (len(data) - head.size) // entry.size)
    names_at = head.size + count * entry.size
    entries = islice(entry.iter_unpack(data[head.size : names_at]), most)
    paths = data[names_at:].split(b"\0", most)
    files = (
        MappedFile(start, end, pages * page_size, os.fsdecode(path[:PATH_LIMIT]))
        for (start, end, pages), path in zip(entries, paths)
    )
    return sorted(file for file in files if file.start < file.end), count > most
