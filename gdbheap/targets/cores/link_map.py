"""The files that a process had mapped, from the dynamic linker's own list: for cores without NT_FILE.

The kernel writes NT_FILE since Linux 3.7, and some dumpers and tools leave it out. The auxiliary vector says where the
program's headers are (AT_PHDR). The program's dynamic section says where the dynamic linker keeps its list (DT_DEBUG).
Each object in the list has its bias, its name and its dynamic section::

    struct r_debug   { int version; struct link_map *map; … }
    struct link_map  { ElfW(Addr) l_addr; char *l_name; ElfW(Dyn) *l_ld; struct link_map *l_next, *l_prev; … }

Source: glibc's elf/link.h, from SVR4. If the core lacks an object's headers, the headers of its file are used. The
file's dynamic section must then be at the same address. The data in memory later shows whether it is the same file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING

from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault
from gdbheap.machines import image
from gdbheap.machines.image import Segment
from gdbheap.machines.machine import Machine
from gdbheap.targets.cores.agreement import DT_DEBUG, entries_of
from gdbheap.targets.cores.notes import MappedFile
from gdbheap.targets.elf import ElfFile, load_bias, read_segments

if TYPE_CHECKING:
    from gdbheap._native import Space

AT_PHDR, AT_PHNUM, AT_ENTRY, AT_EXECFN, AT_SYSINFO_EHDR = 3, 5, 9, 31, 33
HEADERS_LIMIT = 1024
OBJECT_LIMIT, ROW_LIMIT = 1 << 14, 1 << 18
DYNAMIC_LIMIT = 64 << 10
PATH_LIMIT = 4 << 10

FindFiles = Callable[[str], Iterator[ElfFile]]
"""A function of a path in the process. It yields the files on this machine that may be the file at that path."""


@dataclass(frozen=True)
class _LoadedFile:
    """An object: its path, bias and program headers.

    ``elf``: the file from which the program headers were read; None if they were read from memory.
    """

    path: str
    bias: int
    segments: list[Segment]
    elf: ElfFile | None = None


def mapped_files(machine: Machine, space: Space, auxv: dict[int, int], files: FindFiles) -> list[MappedFile]:
    """Return the entries that NT_FILE would have for the program and its libraries, ascending.

    The result is empty if the program's headers are not found. The result has only the program if the core lacks the
    dynamic linker's list.
    """
    program = _program(machine, space, auxv, files)
    if program is None:
        return []
    found = chain([program], _libraries(machine, space, auxv, program, files))
    rows = (row for loaded in found for row in _rows(machine, loaded))
    disjoint: list[MappedFile] = []
    for row in sorted(set(islice(rows, ROW_LIMIT))):
        if not disjoint or disjoint[-1].end <= row.start:
            disjoint.append(row)
    return disjoint


def program_path(space: Space, auxv: dict[int, int]) -> str:
    """Return the path with which the program was started (AT_EXECFN); "" if unknown."""
    try:
        return _absolute(space.cstring(auxv[AT_EXECFN], PATH_LIMIT)) if AT_EXECFN in auxv else ""
    except Fault:
        return ""


def _absolute(raw: bytes) -> str:
    """Return a path as text. A relative path gets a slash in front, because the program's working folder is unknown."""
    path = raw.decode("utf-8", "surrogateescape")
    return path if path.startswith("/") or not path else "/" + path.removeprefix("./")


def _program(machine: Machine, space: Space, auxv: dict[int, int], files: FindFiles) -> _LoadedFile | None:
    address, count = auxv.get(AT_PHDR, 0), min(auxv.get(AT_PHNUM, 0), HEADERS_LIMIT)
    if not address or not count:
        return None
    path = program_path(space, auxv)
    size = count * image.SEGMENT_SIZE
    segments = image.parse_segments(space.read_available(address, size))
    if len(segments) == count:
        bias = _program_bias(machine, segments, address)
        return None if bias is None else _LoadedFile(path, bias, segments)
    for elf in files(path):
        bias = _program_bias(machine, elf.segments, address)
        if bias is not None and elf.phnum == count and bias + elf.entry == auxv.get(AT_ENTRY, 0):
            return _LoadedFile(path, bias, elf.segments, elf)
    return None


def _program_bias(machine: Machine, segments: list[Segment], address: int) -> int | None:
    """Return the load bias of the program; None if it is unknown. ``address``: the address of the program headers.

    The bias follows from PT_PHDR. Without PT_PHDR the program headers are assumed to follow the ELF header.
    """
    own = next((segment.address for segment in segments if segment.type == image.PT_PHDR), None)
    return load_bias(machine, segments, machine.page_down(address)) if own is None else address - own


def _libraries(
    machine: Machine, space: Space, auxv: dict[int, int], program: _LoadedFile, files: FindFiles
) -> Iterator[_LoadedFile]:
    """Yield the objects in the dynamic linker's list, without the program itself and the kernel's vDSO."""
    seen = {program.bias}
    for bias, name, dynamic in _entries(machine, space, program):
        if name and bias not in seen and not _is_kernels(machine, auxv, dynamic):
            seen.add(bias)
            path = _absolute(name)
            segments = _segments(machine, space, bias, dynamic, path, files)
            if segments:
                yield _LoadedFile(path, bias, segments)


def _is_kernels(machine: Machine, auxv: dict[int, int], address: int) -> bool:
    return machine.page_down(address) == auxv.get(AT_SYSINFO_EHDR)


def _entries(machine: Machine, space: Space, program: _LoadedFile) -> Iterator[tuple[int, bytes, int]]:
    """Yield (bias, name, address of the dynamic section) of each entry in the dynamic linker's list.

    The iteration stops at an unreadable entry, or if the list is a loop.
    """
    seen: set[int] = set()
    try:
        at = _first_entry(machine, space, program)
        while at and at not in seen and len(seen) < OBJECT_LIMIT:
            seen.add(at)
            bias, name, dynamic, at, _before = machine.words_of(space.read(at, 5 * machine.word))
            yield bias, _name(space, program, name), dynamic
    except Fault:
        return


def _name(space: Space, program: _LoadedFile, address: int) -> bytes:
    """Return the object name at ``address``, to which an entry of the dynamic linker's list points.

    The dynamic linker's own name lies in the program; if the core lacks that memory, it is read from the program's
    file.
    """
    try:
        return space.cstring(address, PATH_LIMIT) if address else b""
    except Fault:
        raw = program.elf.bytes_at(address - program.bias, PATH_LIMIT) if program.elf is not None else b""
        return raw.split(b"\0")[0]


def _first_entry(machine: Machine, space: Space, program: _LoadedFile) -> int:
    """Return the address of the first entry in the dynamic linker's list; 0 for a program without a dynamic linker.
    Raises Fault.
    """
    segment = next((segment for segment in program.segments if segment.type == image.PT_DYNAMIC), None)
    if segment is None:
        return 0
    address = (program.bias + segment.address) % machine.address_end
    raw = space.read_available(address, min(segment.memory_size, DYNAMIC_LIMIT))
    debug = dict(entries_of(machine, raw)).get(DT_DEBUG, 0)
    return space.word(debug + machine.word) if debug else 0


def _segments(machine: Machine, space: Space, bias: int, dynamic: int, path: str, files: FindFiles) -> list[Segment]:
    """Return an object's program headers from memory, or from a file with the dynamic section at the same address."""
    segments = read_segments(machine, space, bias)
    if segments:
        return segments
    for elf in files(path):
        if any(one.type == image.PT_DYNAMIC and bias + one.address == dynamic for one in elf.segments):
            return elf.segments
    return []


def _rows(machine: Machine, loaded: _LoadedFile) -> Iterator[MappedFile]:
    for segment in loaded.segments:
        start = machine.page_down(loaded.bias + segment.address)
        end = machine.page_up(loaded.bias + segment.address + segment.file_size)
        if segment.type == image.PT_LOAD and 0 <= start < end <= machine.address_end and loaded.path:
            yield MappedFile(start, end, machine.page_down(segment.offset), loaded.path)
