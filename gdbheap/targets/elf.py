"""The ELF objects of a target: their addresses, their build-ids in memory, and their files on this machine.

The symbols and bytes of a file are used only if its build-id equals the one in the target's memory. A path alone may
name another version, a file of another container, or a package that was upgraded since. All reads from the target are
bounded. An ELF header is ignored if its segments do not fit the mappings around it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import field
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO

from gdbheap._native import LineBudget, SymbolTable
from gdbheap.dataclass import dataclass
from gdbheap.host.file_systems import FileSystems
from gdbheap.host.headroom import room_for_copy
from gdbheap.machines import image
from gdbheap.machines.machine import READ_TITLES, Machine, machine_of
from gdbheap.targets.mappings import Mapping, Mappings
from gdbheap.targets.ranges import Ranges, holds, intersect, joined
from gdbheap.text import CUT, named

if TYPE_CHECKING:
    from gdbheap._native import Space

# The most segments of one object, and of all objects together, in memory or in opened files. Linkers write about
# fifteen.
SEGMENT_LIMIT, ALL_SEGMENTS = 128, 1 << 18
# The most paths of files that are looked up for one target. The kernel lists some 60,000 mappings at most.
MAX_PATHS = 50_000
SECTION_LIMIT = 64 << 10
# The most bytes and notes of all note segments of an object. Programs have about four notes.
NOTE_LIMIT, MAX_NOTES = 64 << 10, 32
# The symbols of all files of a target may take this many bytes, and at most this part of the free memory. Indexes take
# at most twice the bytes of their symbols.
SYMBOL_BYTES_LIMIT, SYMBOLS_SHARE = 512 << 20, 4
# The bytes that Python needs for a section, in addition to the bytes of its header.
SECTION_BYTES = 256
# The most bytes of all writable segments of a file together.
DATA_LIMIT = 64 << 20
NAME_LIMIT = 4 << 10
NAMES_RATIO = 2
# The most lines, and bytes of names and paths, that are found in the debug information of all files of a target; the
# most characters of such a path.
MAX_SOURCE_LINES, MAX_SOURCE_BYTES, MAX_SOURCE_PATH = 200_000, 32 << 20, 300
# The most mappings of one file that begin no object. Without a limit, each would be compared with all mappings after
# it.
MAX_REFUSED = 16
HEADERS_LIMIT = 4 << 20
# A library is loaded once into each namespace, of which glibc has 16 (dlfcn.h, DL_NNS).
MAX_COPIES = 16

SYMTAB, DYNSYM = ".symtab", ".dynsym"
DYNAMIC_LINKERS = ("ld-linux", "ld.so", "ld-2", "ld64")

Row = tuple[int, int, str]
"""A symbol: its address, its size and its name."""


class SourceTexts:
    """The names and paths in debug information, each stored once. Their bytes, and the number of source lines, are
    limited.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, str] = {}
        self._bytes, self._lines = MAX_SOURCE_BYTES, MAX_SOURCE_LINES

    @property
    def has_room(self) -> bool:
        """Whether the limit allows more source lines."""
        return self._bytes > 0 and self._lines > 0

    def count(self, lines: int) -> None:
        self._lines -= lines

    def name(self, raw: bytes) -> str:
        """Return a function's name as text. A new name counts towards the limit."""
        return self._known.get(raw) or self._keep(raw, os.fsdecode(raw))

    def path(self, raw: bytes) -> str:
        """Return a path as text. Only the end of a path of more than MAX_SOURCE_PATH characters is kept, after "…"."""
        found = self._known.get(raw)
        if found is not None:
            return found
        text = os.fsdecode(raw)
        return self._keep(raw, text if len(text) <= MAX_SOURCE_PATH else CUT + text[1 - MAX_SOURCE_PATH :])

    def _keep(self, raw: bytes, text: str) -> str:
        self._bytes -= len(raw)
        self._known[raw] = text
        return text


class SymbolRoom:
    """The bytes of symbols and sections that may still be read from all files of a target.

    The limit is a share of the free memory, measured at the first read and again at later reads. Tables that did not
    fit are counted, for a warning.
    """

    def __init__(self) -> None:
        self._left: int | None = None
        # The bytes that are known to fit. Measuring free memory again takes longer than reading a library's symbols.
        self._sure = 0
        self._tables = self._bytes = 0
        # The budget for decoding debug information, and the texts found in it. All files of the target share both.
        self.lines = LineBudget()
        self.sources = SourceTexts()

    @property
    def left(self) -> int:
        """The largest size in bytes that a further table may have. It shrinks with the free memory."""
        return min(SYMBOL_BYTES_LIMIT if self._left is None else self._left, room_for_copy() // SYMBOLS_SHARE)

    def take(self, size: int) -> bool:
        """Return whether a table of ``size`` bytes may be read; if so, count these bytes as used."""
        if self._left is None:
            self._left = self._sure = self.left
        elif size > self._sure:
            self._sure = self.left
        if size > self._sure:
            self._tables, self._bytes = self._tables + 1, self._bytes + size
            return False
        self._left, self._sure = self._left - size, self._sure - size
        return True

    def warnings(self) -> list[str]:
        """Return a line about the tables that were not read; empty if there are none."""
        if not self._tables:
            return []
        tables = f"{self._tables:,} symbol tables" if self._tables > 1 else "a symbol table"
        return [
            f"too little memory is left to read {tables} ({self._bytes:,} bytes in the target's files): variables and"
            " functions may lack their names"
        ]


class ElfFile:
    """An ELF file on this machine, opened once. Its symbols are read on first use.

    ``systems``: opens its path safely, because the path comes from the target.
    """

    def __init__(self, path: str, systems: FileSystems | None = None, room: SymbolRoom | None = None) -> None:
        """Open the file. ``room``: limits the symbols of all files of the target.

        Raises OSError if ``path`` cannot be opened. Raises ValueError if it is not a supported ELF file.
        """
        self.path = path
        self._systems = FileSystems() if systems is None else systems
        self.room = room or SymbolRoom()
        with self.open() as stream:
            header = image.parse_header(stream.read(image.HEADER_SIZE))
            if header is None or machine_of(header) is None:
                raise ValueError(f"{named(path)} is not an ELF file for {READ_TITLES}")
            self.entry, self.phnum = header.entry, header.phnum
            size = min(header.phnum, SEGMENT_LIMIT) * image.SEGMENT_SIZE
            self.segments = image.parse_segments(read_at(stream, header.phoff, size))
            sections = read_at(stream, header.shoff, min(header.shnum, SECTION_LIMIT) * image.SECTION_SIZE)
            # A separate debug file has the same headers and build-id, but none of the bytes.
            self.has_contents = image.has_code(sections)
            self.build_id = self._read_build_id(stream)

    def open(self) -> BinaryIO:
        """Open the file that the path names now. Raises OSError, ValueError."""
        return self._systems.open(self.path)

    def _read_build_id(self, stream: BinaryIO) -> str | None:
        return image.build_id(notes_of(self.segments, lambda one, size: read_at(stream, one.offset, size)))

    def read(self, offset: int, size: int) -> bytes:
        """Return at most ``size`` bytes of the file at ``offset``; empty if the file is gone."""
        try:
            with self.open() as stream:
                return read_at(stream, offset, size)
        except OSError:
            return b""

    def bytes_at(self, address: int, size: int) -> bytes:
        """Return at most ``size`` bytes at a linked address, from the segment in the file that contains it."""
        for load in self.segments:
            if load.type == image.PT_LOAD and 0 <= address - load.address < load.file_size:
                offset = address - load.address
                return self.read(load.offset + offset, max(0, min(size, load.file_size - offset)))
        return b""

    def initial_data(self) -> list[tuple[int, bytes]]:
        """Return (linked address, bytes in the file) of the writable segments, at most DATA_LIMIT bytes in all.

        The list is empty if the file is gone.
        """
        if not self.has_contents:
            return []
        found, left = [], DATA_LIMIT
        with suppress(OSError), self.open() as stream:
            for load in self.segments:
                if load.type == image.PT_LOAD and load.flags & image.PF_W and left:
                    found.append((load.address, read_at(stream, load.offset, min(load.file_size, left))))
                    left -= len(found[-1][1])
        return found

    @cached_property
    def sections(self) -> list[tuple[str, int, int]]:
        """The (name, linked address, size in bytes) of the mapped sections, without thread-local data.

        There are none if the table is damaged or truncated, or if the file is gone.
        """
        try:
            with self.open() as stream:
                return read_sections(stream, self.room)
        except OSError:
            return []

    @cached_property
    def dynamic(self) -> SymbolTable:
        """The symbols of ``.dynsym``, which a stripped file still has.

        There are none if the table is damaged, if there is too little memory, or if the file is gone.
        """
        return self._symbols(DYNSYM)

    @cached_property
    def static(self) -> SymbolTable:
        """The symbols of ``.symtab``. There are none under the same conditions as for ``dynamic``."""
        return self._symbols(SYMTAB)

    def _symbols(self, name: str) -> SymbolTable:
        tables: list[tuple[bytes, bytes]] = []
        with suppress(ValueError, OSError), self.open() as stream:
            tables = SectionTable(stream).symbols(self.room, name)
        return SymbolTable(tables, False)

    def load_symbols(self) -> None:
        """Read all symbols and index them by name now, so that this takes no time while a process is stopped."""
        for table in (self.dynamic, self.static):
            table.find("")

    def find(self, name: str) -> tuple[int, int] | None:
        """Return the linked address and the size of the symbol with that name; None if there is none. Exported symbols
        come first.
        """
        return self.dynamic.find(name) or self.static.find(name)


class ElfFiles:
    """The ELF files opened for one target, each once. Made before a process is stopped.

    ``systems``: opens their paths safely; ``room``: limits the symbols of all these files.
    """

    def __init__(self, systems: FileSystems | None = None) -> None:
        self.systems = FileSystems() if systems is None else systems
        self.room = SymbolRoom()
        self._files: dict[str, ElfFile | None] = {}
        self._by_inode: dict[tuple[int, int], ElfFile | None] = {}
        self._left = ALL_SEGMENTS

    def get(self, path: str) -> ElfFile | None:
        """Return the file at ``path``; None if it cannot be opened or is not an ELF file for this machine.

        A file to which a target gives many names (hard links) is read once. After MAX_PATHS paths, the result for
        further paths is None.
        """
        if path not in self._files and len(self._files) >= MAX_PATHS:
            return None
        if path not in self._files:
            held = self.systems.find(path)
            if held is None:
                self._files[path] = None
                return None
            inode = held.device, held.inode
            if inode not in self._by_inode:
                found = _elf_file(path, self.systems, self.room) if self._left > 0 else None
                self._left -= len(found.segments) if found is not None else 0
                self._by_inode[inode] = found
            self._files[path] = self._by_inode[inode]
        return self._files[path]

    def matching(self, paths: Iterable[str], build_id: str | None) -> ElfFile | None:
        """Return the first file of ``paths`` that has this build-id. Return None if there is no such file, or if
        ``build_id`` is None.
        """
        if build_id is None:
            return None
        files = (self.get(path) for path in paths)
        return next((file for file in files if file is not None and file.build_id == build_id), None)


def _elf_file(path: str, systems: FileSystems, room: SymbolRoom) -> ElfFile | None:
    try:
        return ElfFile(path, systems, room)
    except (OSError, ValueError, OverflowError):
        return None


@dataclass(eq=False)
class LoadedObject:
    """An ELF object in an address space.

    ``path``: its path in the target. ``base``: the address of its first mapping; ``bias``: the number to add to its
    linked addresses. ``build_id``: hex digits, from the target's memory. ``mappings``: its mappings of the file;
    ``bss``: the anonymous memory after them, [start, end). ``elf``: the same file on this machine. ``agreed``: if
    memory lacks the object's headers and build-id, the number of its data words that equal those of ``elf``; otherwise
    0.
    """

    path: str
    base: int
    bias: int
    build_id: str | None
    mappings: list[Mapping]
    segments: list[image.Segment] = field(repr=False)
    bss: list[tuple[int, int]] = field(default_factory=list)
    elf: ElfFile | None = field(default=None, repr=False)
    agreed: int = 0

    @property
    def file(self) -> str | None:
        """The path of the object's file on this machine; None if it was not found."""
        return self.elf.path if self.elf else None

    @property
    def is_dynamic_linker(self) -> bool:
        """Whether the object is glibc's dynamic linker. False for musl's dynamic linker, because it is also the C
        library.
        """
        return os.path.basename(self.path).startswith(DYNAMIC_LINKERS)

    @property
    def end(self) -> int:
        """The highest end of the object's file mappings and its .bss."""
        return max([self.mappings[-1].end] + [end for _, end in self.bss])

    def contains(self, address: int) -> bool:
        """Return whether one of the object's file mappings, or its .bss, contains ``address``."""
        return holds(self._ranges, address)

    @cached_property
    def _ranges(self) -> Ranges:
        return joined(sorted([(mapping.start, mapping.end) for mapping in self.mappings] + self.bss))

    def data_ranges(self, machine: Machine) -> Ranges:
        """Return the pages that are data according to the program headers, even if they were made read-only after
        relocation.
        """
        data = [one for one in self.segments if one.type == image.PT_LOAD and one.flags & image.PF_W]
        places = ((self.bias + one.address, self.bias + one.address + one.memory_size) for one in data)
        return joined(sorted((machine.page_down(start), end) for start, end in places))

    def writable_ranges(self) -> list[tuple[int, int]]:
        """Return (start, end) of the object's writable file mappings and of .bss, ascending; adjacent ones are
        joined.
        """
        ranges = [(mapping.start, mapping.end) for mapping in self.mappings if mapping.writable] + self.bss
        return joined(sorted(ranges))

    def initial_data(self) -> list[tuple[int, bytes]]:
        """Return (address, bytes) of the object's writable segments, from the file; empty without a file on this
        machine.
        """
        stored = self.elf.initial_data() if self.elf else []
        placed = [(self.bias + address, data) for address, data in stored]
        # The bias comes from the target and may be any number.
        return [(address, data) for address, data in placed if self.contains(address)]

    def symbol(self, name: str) -> int | None:
        """Return a symbol's address in the target; None if the file was not found or does not have the symbol."""
        found = self.extent(name)
        return None if found is None else found[0]

    def extent(self, name: str) -> tuple[int, int] | None:
        """Return a symbol's address in the target, and its size; None under the same conditions as ``symbol``."""
        found = self.elf.find(name) if self.elf else None
        return None if found is None else (self.bias + found[0], found[1])

    def exported(self, name: str) -> bool:
        """Return whether ``name`` is in ``.dynsym``, which a stripped file still has."""
        return self.elf is not None and self.elf.dynamic.find(name) is not None

    def exported_gap(self, low: int, high: int) -> tuple[int | None, int | None]:
        """Return the bounds of the gap between exported symbols that contains the addresses ``low`` and ``high``.

        They are the end of the last symbol up to ``low``, and the start of the first one at or after ``high``. A bound
        is None if there is no such symbol.
        """
        if self.elf is None:
            return None, None
        end, start = self.elf.dynamic.gap(low - self.bias, high - self.bias)
        return None if end is None else self.bias + end, None if start is None else self.bias + start

    def names_at(self, address: int) -> list[str]:
        """Return the names of the symbols that begin at an address in the target."""
        return [name for table in self._tables() for _, _, name in table.at(address - self.bias)]

    def symbols_around(self, address: int) -> list[Row]:
        """Return the symbols whose bytes contain an address in the target."""
        return self._placed(row for table in self._tables() for row in table.around(address - self.bias))

    def symbols_in(self, low: int, high: int, most: int, least: int = 1) -> list[Row]:
        """Return symbols of at least ``least`` bytes that begin in [low, high), at most ``most`` in all."""
        found: list[Row] = []
        low, high = max(low - self.bias, 0), high - self.bias
        if low < high:
            for table in self._tables():
                found += table.starting_in(low, high, least, most - len(found))
        return self._placed(found)

    def thread_local(self) -> list[Row]:
        """Return (offset, size in bytes, name) of the thread-local variables. Offsets are bytes from the thread-local
        segment's start.
        """
        return [row for table in self._tables() for row in table.thread_local()]

    def _tables(self) -> list[SymbolTable]:
        return [self.elf.static, self.elf.dynamic] if self.elf else []

    def _placed(self, rows: Iterable[Row]) -> list[Row]:
        return [(self.bias + value, size, name) for value, size, name in rows]

    def sections(self) -> list[tuple[str, int, int]]:
        """Return (name, start, end) of the mapped sections, according to the file."""
        found = self.elf.sections if self.elf else []
        return [(name, self.bias + address, self.bias + address + size) for name, address, size in found]


def find_objects(
    machine: Machine,
    mappings: Mappings,
    space: Space,
    files: ElfFiles,
    candidates: Callable[[Mapping], list[str]],
    otherwise: Callable[[int], LoadedObject | None] | None = None,
) -> list[LoadedObject]:
    """Return the ELF objects among ``mappings``, ascending by base.

    ``candidates``: a function of an object's first mapping. It returns the paths of the files on this machine that may
    be the object's file. ``otherwise``: a function of the index of a mapping without an ELF header in memory. It
    returns the object that begins at the mapping, or None.
    """
    objects: list[LoadedObject] = []
    claimed: set[int] = set()
    refused: Counter[tuple[str, int, str]] = Counter()
    copies: Counter[ElfFile] = Counter()
    left = ALL_SEGMENTS
    for index, mapping in enumerate(mappings):
        file = mapping.device, mapping.inode, mapping.path
        if refused[file] >= MAX_REFUSED or left <= 0:
            continue
        if mapping.private and not mapping.offset and mapping.path.startswith("/") and mapping.start not in claimed:
            found = _read_object(machine, mappings, index, space)
            if found is not None:
                found.elf = files.matching(candidates(mapping), found.build_id)
            elif otherwise is not None:
                found = otherwise(index)
            if found is None:
                refused[file] += 1
                continue
            if found.elf is not None:
                copies[found.elf] += 1
                found.elf = found.elf if copies[found.elf] <= MAX_COPIES else None
            left -= len(found.segments)
            claimed.update(member.start for member in found.mappings)
            objects.append(found)
    return objects


def _read_object(machine: Machine, mappings: Mappings, index: int, space: Space) -> LoadedObject | None:
    found = placed_object(machine, mappings, index, read_segments(machine, space, mappings[index].start))
    if found is not None:
        found.build_id = read_build_id(machine, space, found.segments, found.bias)
    return found


def placed_object(
    machine: Machine, mappings: Mappings, index: int, segments: list[image.Segment], whole: bool = False
) -> LoadedObject | None:
    """Return the object with these program headers whose first mapping has this index. The object's build-id is not
    read.

    Return None if the object's mappings do not fit the headers. If ``whole`` is true, all mappings of the object must
    fit, otherwise only those of its data.
    """
    first = mappings[index]
    bias = load_bias(machine, segments, first.start)
    if bias is None:
        return None
    loads = [segment for segment in segments if segment.type == image.PT_LOAD]
    extent = min(bias + max(load.address + load.memory_size for load in loads), machine.address_end)
    members, others = _members(mappings, index, extent)
    if not _is_loaded(loads, bias, members, whole):
        return None
    bss = _bss(machine, loads, bias, others)
    return LoadedObject(first.path, first.start, bias, None, members, segments, bss)


def read_segments(machine: Machine, space: Space, address: int) -> list[image.Segment]:
    """Return the program headers of the ELF image at ``address`` in the target; empty if there is none."""
    header = image.parse_header(space.read_available(address, image.HEADER_SIZE))
    if header is None or not machine.is_of(header) or header.phentsize != image.SEGMENT_SIZE:
        return []
    if header.phoff > HEADERS_LIMIT or address + header.phoff >= machine.address_end:
        return []
    size = min(header.phnum, SEGMENT_LIMIT) * image.SEGMENT_SIZE
    return image.parse_segments(space.read_available(address + header.phoff, size))


def load_bias(machine: Machine, segments: list[image.Segment], base: int) -> int | None:
    """Return the bias of an object whose file begins at ``base``; None if no segment contains the file's beginning."""
    for segment in segments:
        if segment.type == image.PT_LOAD and segment.offset < machine.page and segment.memory_size:
            bias = base - (segment.address - segment.offset)
            return bias if abs(bias) < machine.address_end else None
    return None


def read_build_id(machine: Machine, space: Space, segments: list[image.Segment], bias: int) -> str | None:
    """Return the build-id that the target's memory contains; None if there is none, or if its page is absent."""
    return image.build_id(notes_in(space, segments, bias, machine.address_end))


def notes_in(space: Space, segments: list[image.Segment], bias: int, end: int) -> Iterator[image.Note]:
    """Yield the notes of an object, at most MAX_NOTES, from the target's memory below ``end``."""

    def read(segment: image.Segment, size: int) -> bytes:
        address = bias + segment.address
        return space.read_available(address, size) if 0 <= address < end else b""

    return notes_of(segments, read)


def notes_of(segments: list[image.Segment], read: Callable[[image.Segment, int], bytes]) -> Iterator[image.Note]:
    """Yield the notes of an object, at most MAX_NOTES.

    ``read``: a function of a segment and a size, which returns the segment's first bytes.
    """
    return islice(_all_notes(segments, read), MAX_NOTES)


def _all_notes(segments: list[image.Segment], read: Callable[[image.Segment, int], bytes]) -> Iterator[image.Note]:
    left = NOTE_LIMIT
    for segment in segments:
        if segment.type == image.PT_NOTE and left:
            data = read(segment, min(segment.file_size, left))
            left -= len(data)
            yield from image.iter_notes(data, segment.align)


def _members(mappings: Mappings, index: int, extent: int) -> tuple[list[Mapping], list[Mapping]]:
    """Return the mappings of a file, and the anonymous mappings between and after them.

    ``index``: the number of the file's first mapping. Only mappings that begin below ``extent`` are returned.
    """
    first = mappings[index]
    members, anonymous = [first], []
    for position in range(index + 1, len(mappings)):
        mapping = mappings[position]
        if mapping.start >= extent:
            break
        if _same_file(mapping, first):
            members.append(mapping)
        elif mapping.anonymous:
            anonymous.append(mapping)
        else:
            break
    return members, anonymous


def _same_file(mapping: Mapping, other: Mapping) -> bool:
    return (mapping.path, mapping.device, mapping.inode) == (other.path, other.device, other.inode)


def _is_loaded(loads: list[image.Segment], bias: int, members: list[Mapping], whole: bool) -> bool:
    """Return whether the object's segments are mapped as the headers say. They are not if the file is only read as
    data.

    ``whole``: compare all segments. Otherwise only writable segments are compared, if there are any: some programs move
    their own code to anonymous huge pages.
    """
    stored = [load for load in loads if load.file_size]
    writable = [load for load in stored if load.flags & image.PF_W]
    wanted = stored if whole else writable or stored
    placed = Mappings(members)
    return all(_is_mapped(load, bias + load.address, placed) for load in wanted)


def _is_mapped(load: image.Segment, start: int, members: Mappings) -> bool:
    member = members.find(start)
    return member is not None and member.offset + start - member.start == load.offset


def _bss(machine: Machine, loads: list[image.Segment], bias: int, anonymous: list[Mapping]) -> list[tuple[int, int]]:
    """Return the ranges of .bss: the parts of writable segments that have no bytes in the file.

    The kernel merges neighbouring mappings. The anonymous mapping that begins with .bss may therefore continue with
    other memory.
    """
    claims: Ranges = []
    for load in loads:
        start = machine.page_up(bias + load.address + load.file_size)
        end = machine.page_up(bias + load.address + load.memory_size)
        if load.flags & image.PF_W and load.memory_size > load.file_size and start < end:
            claims.append((start, end))
    return intersect(joined(sorted(claims)), [(mapping.start, mapping.end) for mapping in anonymous])


def read_at(stream: BinaryIO, offset: int, size: int) -> bytes:
    """Return at most ``size`` bytes of a file at ``offset``; fewer at its end.

    Nothing is read beyond the end, because seeking too far would fail.
    """
    rest = stream.seek(0, os.SEEK_END) - offset
    if rest <= 0:
        return b""
    stream.seek(offset)
    return stream.read(min(size, rest))


def read_sections(stream: BinaryIO, room: SymbolRoom) -> list[tuple[str, int, int]]:
    """Return (name, linked address, size in bytes) of the mapped sections of an ELF file that are not thread-local."""
    found: list[tuple[str, int, int]] = []
    with suppress(ValueError, OSError):
        for name, section in SectionTable(stream).named(room):
            if section.flags & image.SHF_ALLOC and not section.flags & image.SHF_TLS and section.size:
                found.append((name, section.address, section.size))
    return found


class StringTable:
    """The names in a string table, each decoded once.

    Linkers let a name share the end of another name, so the names may have more bytes than the table. No linker can
    have written a table with more than NAMES_RATIO times as many. ``at`` then raises ValueError.
    """

    def __init__(self, table: bytes) -> None:
        self._table, self._left = table, NAMES_RATIO * len(table)
        self._known: dict[int, str] = {}

    def at(self, offset: int) -> str:
        """Return the name that begins at ``offset``. Raises ValueError if the total length of all names has become too
        large.
        """
        name = self._known.get(offset)
        if name is None:
            name = self._known[offset] = name_at(self._table, offset)
            self._left -= len(name)
            if self._left < 0:
                raise ValueError("the names are larger than their table")
        return name


def name_at(names: bytes, offset: int) -> str:
    """Return the name that begins at ``offset`` of a string table, at most NAME_LIMIT bytes."""
    return names[offset : offset + NAME_LIMIT].partition(b"\0")[0].decode("utf-8", "replace")


class SectionTable:
    """The section headers of an ELF file, at most SECTION_LIMIT."""

    def __init__(self, stream: BinaryIO) -> None:
        """Read the table.

        Raises OSError. Raises ValueError if the file is not ELF, or if its section headers are too many or truncated.
        """
        self._stream = stream
        header = image.parse_header(read_at(stream, 0, image.HEADER_SIZE))
        if header is None or not header.shoff:
            raise ValueError("not an ELF file, or an ELF file without sections")
        first = image.parse_sections(read_at(stream, header.shoff, image.SECTION_SIZE))
        # Numbers that do not fit into 16 bits are in the first section header.
        count = header.shnum or sum(section.size for section in first)
        names = sum(section.link for section in first) if header.names == image.SHN_XINDEX else header.names
        if count > SECTION_LIMIT:
            raise ValueError("too many sections")
        self._sections = image.parse_sections(read_at(stream, header.shoff, count * image.SECTION_SIZE))
        if len(self._sections) < count:
            raise ValueError("the section table is cut off")
        place = self._sections[names] if names < count else None
        self._names = read_at(stream, place.offset, min(self._size_of(place), HEADERS_LIMIT)) if place else b""

    def named(self, room: SymbolRoom) -> Iterator[tuple[str, image.SectionHeader]]:
        """Return (name, section) of each section; empty if the limit for symbols is too small for them.

        Raises ValueError if all names together become too long.
        """
        names = StringTable(self._names)
        sections = self._sections if room.take(SECTION_BYTES * len(self._sections) + len(self._names)) else []
        return ((names.at(section.name), section) for section in sections)

    def symbols(self, room: SymbolRoom, *wanted: str) -> list[tuple[bytes, bytes]]:
        """Return (entries, names of the symbols) of each symbol table, as bytes.

        ``wanted``: the names of the tables' sections. Tables that exceed the limit ``room`` are left out.
        """
        found = []
        for section in filter(None, map(self._find, wanted)):
            names = self._sections[section.link] if section.link < len(self._sections) else None
            if room.take(sum(map(self._size_of, filter(None, (section, names))))):
                found.append((self._bytes_of(section), self._bytes_of(names) if names else b""))
        return found

    def contents(self, name: str, room: SymbolRoom) -> bytes:
        """Return the bytes of a section; empty if it is missing or the limit for symbols is too small for it.

        Empty also if the file has no bytes for it (a separate debug file).
        """
        section = self._find(name)
        return self._bytes_of(section) if section is not None and room.take(self._size_of(section)) else b""

    def has_bytes(self, name: str) -> bool:
        """Return whether a section exists and has bytes in the file. A separate debug file has no bytes for some
        sections.
        """
        section = self._find(name)
        return section is not None and self._size_of(section) > 0

    def flags(self, name: str) -> int:
        """Return the flags of a section; 0 if it is missing."""
        section = self._find(name)
        return 0 if section is None else section.flags

    def _find(self, name: str) -> image.SectionHeader | None:
        wanted = name.encode() + b"\0"
        return next((one for one in self._sections if self._names.startswith(wanted, one.name)), None)

    def _size_of(self, section: image.SectionHeader) -> int:
        if section.type == image.SHT_NOBITS:
            return 0
        return max(0, min(section.size, self._stream.seek(0, os.SEEK_END) - section.offset))

    def _bytes_of(self, section: image.SectionHeader) -> bytes:
        return read_at(self._stream, section.offset, self._size_of(section))
