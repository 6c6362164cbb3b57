"""A core as a target: written by the kernel or by gdb (``gcore``), complete or truncated.

The program headers say which memory is present. The part of a segment beyond its bytes in the file (``p_filesz`` <
``p_memsz``) was not dumped. It is absent, not zero. Code and read-only data that the core leaves out are read from
identical files on this machine (``core_files``). NT_FILE says which file was mapped where; without it, the dynamic
linker's own list does (``link_map``). A packed core is unpacked first (``unpacking``). The kernel leaves holes in the
file for private pages that were not resident. As long as the file is sparse, its holes show residency. Holes that gdb
or a copying program made do not show it. No core says which pages of files and of shared memory were resident. No fact
about the process is read from ``/proc``, because its id may belong to another process by now.
"""

from __future__ import annotations

import io
import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import BinaryIO, NamedTuple

from gdbheap._native import PRESENT, Descriptor, Pages, Space, data_extents
from gdbheap.errors import NoTarget, NotPermitted, Unsupported, UsageError, one_line
from gdbheap.files import find_file, is_folder, open_regular
from gdbheap.host.file_systems import FileSystems
from gdbheap.host.headroom import room_for_copy
from gdbheap.host.procfs import Rss
from gdbheap.machines import image
from gdbheap.machines.image import Segment
from gdbheap.machines.machine import READ_TITLES, Machine, machine_of
from gdbheap.targets.cores import debuginfod
from gdbheap.targets.cores.core_files import CoreFiles, SearchPlaces
from gdbheap.targets.cores.link_map import mapped_files, program_path
from gdbheap.targets.cores.notes import CoreNotes, MappedFile, read_notes
from gdbheap.targets.cores.unpacking import MAGIC_SIZE, Progress, Unpacked, beginning, packed_by, unpack
from gdbheap.targets.elf import ElfFile, ElfFiles, LoadedObject, find_objects, read_at
from gdbheap.targets.held_files import HeldFiles
from gdbheap.targets.mappings import MEMORY_FILES, Mapping, Mappings
from gdbheap.targets.ranges import holds
from gdbheap.targets.target import AT_ENTRY, AT_PAGESZ, AT_PHDR, AT_SYSINFO_EHDR, Damage, Target
from gdbheap.text import plain_word

SEGMENT_LIMIT = 1 << 20
# The memory that gdbheap needs for each segment, in bytes.
SEGMENT_BYTES = 2 << 10
# The most bytes of notes that are read, and the part of the room (``_room``) that they may have. They take several
# times their size in gdbheap's memory.
NOTES_LIMIT, NOTES_SHARE = 512 << 20, 8
NOTES = "notes (threads, names of files)"
EXTENT_LIMIT = 1 << 22
DAMAGE_LIMIT = 100
# The beginning of every log of gdbheap trace, in any version.
LOG = b"gdbheap calls "
ELF_TYPES = {1: "an object file", 2: "a program", 3: "a program or shared library"}


class SegmentRow(NamedTuple):
    """A rule for reading the bytes [start, end) with ``Space.for_core``.

    ``file``: the index of the file that contains them. ``offset``: where they begin in this file.
    """

    start: int
    end: int
    file: int
    offset: int


class CoreSegment(NamedTuple):
    """A PT_LOAD segment whose header was checked: [start, end) in memory.

    ``offset``: where its bytes begin in the file.
    ``stored``: how many of its bytes the file has according to the header.
    ``available``: how many of these the file really has.
    """

    start: int
    end: int
    offset: int
    stored: int
    available: int
    perms: str

    @property
    def is_whole(self) -> bool:
        """Whether the whole segment was dumped, so that holes in the file show residency."""
        return self.stored == self.end - self.start


class Core(Target):
    """A core file as a target.

    ``exe``: the path of the program that wrote the core; another program is not used. If ``exe`` lies in a copy of the
    process's root folder, libraries are searched there too. ``sysroot``: the path of such a copy. ``unpacked``: the
    core's bytes if the file ``path`` is packed. ``progress``: called while the core is unpacked. ``fetch``: a function
    that asks debuginfod for files; without it no server is asked. Raises NoTarget (not a core), Unsupported (another
    architecture), NotPermitted, UsageError (no such ``exe``).
    """

    def __init__(
        self,
        path: str,
        exe: str | None = None,
        sysroot: str | None = None,
        unpacked: Unpacked | None = None,
        progress: Progress | None = None,
        fetch: debuginfod.Fetch | None = None,
    ) -> None:
        super().__init__("core", core=path)
        self._files = ElfFiles(FileSystems(named=(path, exe, sysroot)))
        _check_folder(sysroot)
        unpacked = _unpacked(path, progress) if unpacked is None else unpacked
        self._has_own_holes = unpacked is None
        with open_core(path) if unpacked is None else unpacked.stream as stream:
            # This path leads to the open file, even if another file has taken its name.
            self._own_path = f"/proc/self/fd/{stream.fileno()}"
            status = os.fstat(stream.fileno())
            self._size = status.st_size
            self.modified = status.st_mtime if unpacked is None else unpacked.modified
            header, self.machine = read_core_header(stream, path)
            if unpacked is not None and unpacked.cut is not None:
                self._cut(0, "packed core", "the end of the packed file", unpacked.cut)
            segments = self._read_segments(stream, header)
            self._notes = self._read_notes(stream, segments)
            self._parts = self._check_parts(segments)
            self._check_size()
            own = path if find_file(path) is not None else None
            self._place(SearchPlaces(own, exe, sysroot, fetch=fetch))
            self._read_pages()

    def _read_segments(self, stream: BinaryIO, header: image.Header) -> list[Segment]:
        wanted = _segment_count(stream, header)
        size = min(wanted, SEGMENT_LIMIT, self._room // SEGMENT_BYTES) * image.SEGMENT_SIZE
        found = image.parse_segments(read_at(stream, header.phoff, size))
        if len(found) < wanted:
            self._cut(0, "program headers", f"{wanted} program headers", f"{len(found)}")
        return found

    @cached_property
    def _room(self) -> int:
        """The most bytes of memory for data whose size the core states, such as program headers and notes. A damaged
        core may state any size.
        """
        return room_for_copy()

    def _read_notes(self, stream: BinaryIO, segments: list[Segment]) -> CoreNotes:
        segment = next((segment for segment in segments if segment.type == image.PT_NOTE), None)
        if segment is None:
            self._cut(0, "notes", "a segment of notes", "none")
            return CoreNotes()
        data = read_at(stream, segment.offset, min(segment.file_size, NOTES_LIMIT, self._room // NOTES_SHARE))
        if len(data) < segment.file_size:
            self._cut(0, NOTES, f"{segment.file_size} bytes", f"{len(data)} bytes")
        notes = read_notes(self.machine, data, segment.align, self._room)
        if notes.is_cut:
            self.partial = True
            known = f"{len(notes.threads)} threads and {len(notes.files)} mapped files"
            self.warnings.append(f"the core names more threads or files than gdbheap reads: gdbheap read {known}")
        if notes.of_kernel:
            raise Unsupported(f"{one_line(self.core)} is a dump of the kernel, not of a process: use crash(8) or drgn")
        return notes

    def _check_parts(self, segments: list[Segment]) -> list[CoreSegment]:
        """Return the loaded segments, ascending and disjoint. Segments with impossible addresses are dropped and
        recorded as damage.
        """
        parts: list[CoreSegment] = []
        loads = (segment for segment in segments if segment.type == image.PT_LOAD and segment.memory_size)
        for segment in sorted(loads, key=lambda segment: segment.address):
            before = parts[-1].end if parts else 0
            end = segment.address + segment.memory_size
            # Above the addresses of programs, a core has one page of the kernel's own ([vsyscall]).
            is_larger = segment.address >= self.machine.kernel_start and segment.memory_size > self.machine.page
            if end >= self.machine.address_end or segment.address < before or is_larger:
                limit = self.machine.kernel_start if is_larger else self.machine.address_end
                expected = f"{before:#x} <= start < end < {limit:#x}"
                self._damage(segment.address, "segment", expected, f"{end:#x}")
            else:
                parts.append(self._part(segment, end))
        return self._apart(parts)

    def _apart(self, parts: list[CoreSegment]) -> list[CoreSegment]:
        """Return the segments without overlaps in the file: each segment ends, at the latest, where the next one
        begins.

        The writer of a core writes each byte once, so the segments in total cannot have more bytes than the file.
        """
        places = sorted((part.offset, index) for index, part in enumerate(parts) if part.available)
        for (offset, index), (after, _index) in zip(places, places[1:]):
            part, own = parts[index], after - offset
            if own < part.available:
                parts[index] = part._replace(available=own)
                found = f"bytes of another segment from {after:#x} on"
                self._damage(part.start, "segment", "bytes of its own in the file", found)
                self.partial = True
        return parts

    def _part(self, segment: Segment, end: int) -> CoreSegment:
        stored = segment.file_size
        if stored > segment.memory_size:
            self._damage(segment.address, "segment", f"at most {segment.memory_size} bytes", f"{stored} in the file")
            stored = segment.memory_size
        available = max(0, min(stored, self._size - segment.offset))
        return CoreSegment(segment.address, end, segment.offset, stored, available, segment.perms)

    def _check_size(self) -> None:
        """Record damage, as a cut-off core, if the file ends before its last segment."""
        missing = [part for part in self._parts if part.stored and part.offset + part.stored > self._size]
        if missing:
            expected = max(part.offset + part.stored for part in self._parts)
            first = missing[0].start + missing[0].available
            self._cut(first, "core file", f"{expected} bytes", f"{self._size} bytes", is_absent=True)

    def _cut(self, address: int, what: str, expected: str, found: str, is_absent: bool = False) -> None:
        self._damage(address, what, expected, found, is_absent)
        if not self.partial:
            self.partial = True
            self.warnings.append(
                f"the core is truncated ({what}: {found} of {expected}): answers lack all data after the cut"
            )

    def _damage(self, address: int, what: str, expected: str, found: str, is_absent: bool = False) -> None:
        if len(self.damage) < DAMAGE_LIMIT:
            self.damage.append(Damage(address, what, expected, found, is_absent=is_absent))

    def _place(self, places: SearchPlaces) -> None:
        """Set the data that the segments and notes determine: mappings, memory, threads, program and loaded objects."""
        self.pid, self.threads, self.auxv = self._notes.pid, self._notes.threads, self._notes.auxv
        self._choose_page()
        own = [
            SegmentRow(part.start, part.start + part.available, 0, part.offset)
            for part in self._parts
            if part.available
        ]
        self.missing = [
            (part.start + part.available, part.start + part.stored)
            for part in self._parts
            if part.available < part.stored
        ]
        self.space = Space.for_core(self.machine, own, [self._own_path])
        files = self._notes.files or self._linked_files(places)
        self.mappings = Mappings(join(self.machine, self._parts, files, self.auxv.get(AT_SYSINFO_EHDR)))
        program = self.mappings.find(self.auxv.get(AT_PHDR, 0))
        self.exe = (program.path if program else "") or program_path(self.space, self.auxv) or self._notes.name or None
        self.arguments = self._notes.arguments
        self._find_objects(replace(places, program=self.exe))
        self._add_files(own)
        if places.exe is not None:
            self._check_exe(places.exe)

    def _linked_files(self, places: SearchPlaces) -> list[MappedFile]:
        """Return the mapped files of the program and its libraries, for a core without NT_FILE."""
        path = program_path(self.space, self.auxv)
        places = replace(places, program=path or None)

        def of_path(path: str) -> Iterator[ElfFile]:
            yield from filter(None, map(self._files.get, places.named(path) if path else []))

        found = mapped_files(self.machine, self.space, self.auxv, of_path)
        if found:
            count = len({file.path for file in found})
            rest = f"the dynamic linker's list names {count} of them"
            rest = rest if count > 1 else "gdbheap knows only the file of the program"
            self.warnings.append(f"the core does not say which files were mapped (no NT_FILE): {rest}")
        elif not self.auxv and self.partial:
            self.warnings.append(
                "the core's notes are cut off: mapped files, threads and registers are unknown, even if you name the "
                "files"
            )
        else:
            needed = "name its program (--exe=FILE), or a folder with all of its files (--sysroot=FOLDER)"
            self.warnings.append(f"the core does not say which files were mapped (no NT_FILE): {needed}")
        return found

    def _find_objects(self, places: SearchPlaces) -> None:
        files = CoreFiles(self.machine, self.mappings, self.space, self._files, places, self.auxv.get(AT_ENTRY))
        self.objects = find_objects(
            self.machine, self.mappings, self.space, self._files, files.candidates, files.headerless
        )
        for loaded in self.objects:
            files.identify(loaded)
        self.unseen = files.unseen

    def _choose_page(self) -> None:
        """Use AT_PAGESZ as the page size if every segment consists of whole pages of this size. Otherwise record
        damage.
        """
        usual, size = self.machine, self.auxv.get(AT_PAGESZ)
        self.machine = usual.of_program(size, [(part.start, part.end) for part in self._parts])
        claimed = usual.with_page(size)
        if self.machine.page != claimed.page:
            expected = f"segments of whole pages of {claimed.page} bytes (AT_PAGESZ)"
            self._damage(0, "pages", expected, f"other segments: gdbheap assumes pages of {usual.page} bytes")

    def _add_files(self, rows: list[SegmentRow]) -> None:
        """Add code and read-only data that the core leaves out, from identical files."""
        files, rows = HeldFiles(), list(rows)
        stored = {part.start: part.stored for part in self._parts}
        for owner in self.objects:
            if owner.elf is None or not owner.elf.has_contents or files.is_full:
                continue
            with suppress(OSError):
                file = Descriptor(self._files.systems.descriptor(owner.elf.path))
                size = os.fstat(file.number).st_size
                rows += _left_out(self.machine, owner, stored, 1 + files.add(file), size)
        self.space = Space.for_core(self.machine, sorted(rows), [self._own_path, *files.paths])

    def _check_exe(self, exe: str) -> None:
        file = self._files.get(exe)
        if file is None:
            raise UsageError(
                f"{one_line(exe)} is not a readable {READ_TITLES} ELF file: give the program that wrote the core"
            )
        known = file.build_id is not None and any(file.build_id == owner.build_id for owner in self.objects)
        if not known and all(owner.elf is not file for owner in self.objects):
            cause = f"{one_line(exe)} is not used, because the core does not contain its build-id ({file.build_id})"
            self.warnings.append(f"{cause}: answers lack the symbols and read-only data of that file")

    def _extents(self) -> list[tuple[int, int]]:
        """Return the parts of the file that are not holes; empty if they are unknown, or if another program has locked
        the file.
        """
        with suppress(OSError):
            return data_extents(self._own_path, EXTENT_LIMIT)
        return []

    def _read_pages(self) -> None:
        self.rss = Rss(None, None, "unknown")
        machine = self.machine
        aligned = all(machine.is_paged(part.start, part.end, part.offset) for part in self._parts if part.available)
        is_kernels = self._has_own_holes and not self._notes.by_gdb
        extents = self._extents() if is_kernels and aligned else []
        private = [part for part in self._parts if part.is_whole and _is_private(self.mappings.find(part.start))]
        runs = [run for part in private for run in present_runs(machine, part, extents)]
        if len(extents) < 2:
            cause = "the core does not show which pages were resident (only a sparse core written by the kernel does)"
            self.warnings.append(f"{cause}: sizes are virtual, and reclaimable memory is unknown")
            return
        present = sum(end - start for start, end, _ in runs)
        if present == sum(part.end - part.start for part in private):
            self.warnings.append(
                "a program that copied the core may have filled its holes: all private memory counts as resident"
            )
        self.pages = Pages.from_runs(machine, runs)
        self.rss = Rss(present, 0, "resident private memory, from the core's holes", private=True)


def open_core(path: str) -> BinaryIO:
    """Open a file that may be a core. Raises NoTarget or NotPermitted."""
    name = one_line(path)
    try:
        return open_regular(path, may_be_empty=True)
    except IsADirectoryError:
        raise NoTarget(f"{name} is a directory: give the id of a process or a core") from None
    except PermissionError:
        raise NotPermitted(f"{name} may not be read by uid {os.getuid()}: run gdbheap as its owner or root") from None
    except FileNotFoundError:
        raise NoTarget(f"there is no process and no file {name}: give the id of a process or a core") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a regular file"
        raise NoTarget(f"{name} cannot be read ({reason}): give the id of a process or a core") from None


def check_core(path: str) -> None:
    """Raise the errors of ``Core`` if the file is not a core. If the file is packed, only its beginning is unpacked."""
    with open_core(path) as stream:
        if packed_by(stream.read(MAGIC_SIZE)) is not None:
            read_core_header(io.BytesIO(beginning(stream, image.HEADER_SIZE)), path)
            return
    Core(path)


def check_whole(path: str) -> None:
    """Raise NoTarget if an unpacked core ends before the end of its last segment."""
    with open_core(path) as stream:
        _place, count, segments = read_segment_table(stream, path)
        size = os.fstat(stream.fileno()).st_size
    expected = max((one.offset + one.file_size for one in segments), default=0)
    if len(segments) < count or size < expected:
        raise NoTarget(f"only {size:,} bytes were written: the disk is full, or ulimit -f is too small")


def read_segment_table(stream: BinaryIO, path: str) -> tuple[int, int, list[Segment]]:
    """Return (offset of the program headers, their number according to the core, the headers that are present).

    The core must be unpacked. Fewer headers are present if it is truncated. Raises NoTarget, Unsupported.
    """
    header, _machine = read_core_header(stream, path)
    count = _segment_count(stream, header)
    return header.phoff, count, image.parse_segments(read_at(stream, header.phoff, count * image.SEGMENT_SIZE))


def _check_folder(sysroot: str | None) -> None:
    """Raise UsageError if ``sysroot`` is given and is not a folder."""
    if sysroot is not None and not is_folder(sysroot):
        raise UsageError(
            f"{one_line(sysroot)} is not a folder: --sysroot needs one with the files of the machine that wrote the "
            "core"
        )


def _unpacked(path: str, progress: Progress | None) -> Unpacked | None:
    """Return the unpacked core if the file is packed; None if it is not packed."""
    with open_core(path) as stream:
        try:
            start = stream.read(MAGIC_SIZE)
        except OSError as error:
            raise NoTarget(f"{one_line(path)} is not a core: it cannot be read ({error.strerror})") from None
        if packed_by(start) is None:
            return None
        modified = os.fstat(stream.fileno()).st_mtime
        return replace(unpack(stream, one_line(path), judge(path), progress), modified=modified)


def judge(path: str) -> Callable[[bytes], object]:
    """Return a function that raises an error if the first bytes of an unpacked file are not those of a core."""
    return lambda start: read_core_header(io.BytesIO(start), path)


def read_core_header(stream: BinaryIO, path: str) -> tuple[image.Header, Machine]:
    """Return the ELF header of a core and its machine. Raises NoTarget or Unsupported, with the reason."""
    name, start = one_line(path), stream.read(image.HEADER_SIZE)
    if not start:
        raise NoTarget(
            f"{name} is empty, not a core: was the disk full, or ulimit -c too small, when the core was written?"
        )
    header = image.parse_header(start)
    if header is None:
        what = "a trace, not a core" if start.startswith(LOG) else "not a core"
        raise NoTarget(f"{name} is {what}: {_instead(start, name)}")
    if header.type != image.TYPE_CORE:
        kind = ELF_TYPES.get(header.type, f"an ELF file of type {header.type}")
        raise NoTarget(f"{name} is {kind}, not a core: give the id of a process or a core")
    machine = machine_of(header)
    if machine is None:
        what = f"a core of a {header.bits} {header.machine_name} program"
        raise Unsupported(f"{name} is {what}, and gdbheap reads {READ_TITLES} only: use gdb on it")
    return header, machine


def _instead(start: bytes, name: str) -> str:
    if start.startswith(LOG):
        return f"'gdbheap calls {plain_word(name, 'TRACE')}' summarizes it"
    if start.startswith(image.MAGIC):
        return "its ELF header is truncated"
    return "give the id of a process or an ELF core"


def _segment_count(stream: BinaryIO, header: image.Header) -> int:
    """Return the number of program headers, even if it does not fit into 16 bits.

    The kernel stores such a large number in a section header at the end of the file. A truncated core lacks that
    header. In that case the offset of the notes shows the number, because the notes directly follow the program
    headers.
    """
    if header.phnum != image.PN_XNUM:
        return header.phnum
    section = read_at(stream, header.shoff, image.SECTION_SIZE) if header.shoff else b""
    count = image.extended_segment_count(section)
    if count is not None:
        return count
    first = image.parse_segments(read_at(stream, header.phoff, image.SEGMENT_SIZE))
    if first and first[0].type == image.PT_NOTE and first[0].offset > header.phoff:
        return (first[0].offset - header.phoff) // image.SEGMENT_SIZE
    return header.phnum


def join(
    machine: Machine, parts: list[CoreSegment], files: list[MappedFile], vdso: int | None = None
) -> Iterator[Mapping]:
    """Yield the mappings of a core: its segments, with paths from NT_FILE, then files that it leaves out completely.

    Two facts are known about the files that the core leaves out: they were readable, and the process had not changed
    them. ``vdso``: the address of the kernel's own code, which is not a file and is always dumped.
    """
    starts = [file.start for file in files]
    for part in parts:
        index = bisect_right(starts, part.start) - 1
        file = files[index] if index >= 0 and part.start < files[index].end else None
        path = "[vdso]" if part.start == vdso else file.path if file else ""
        offset = file.offset + part.start - file.start if file else 0
        shared = "s" if path.startswith(MEMORY_FILES) else "p"
        yield Mapping(part.start, part.end, part.perms[:3] + shared, offset, "00:00", 0, path)
    yield from _left_out_files(machine, parts, files)


def _left_out_files(machine: Machine, parts: list[CoreSegment], files: list[MappedFile]) -> Iterator[Mapping]:
    ends, end = [part.end for part in parts], 0
    for file in files:
        after = bisect_right(ends, file.start)
        covered = after < len(parts) and parts[after].start < file.end
        if not covered and file.start >= end and file.end <= machine.address_end:
            end = file.end
            yield Mapping(file.start, file.end, "r--p", file.offset, "00:00", 0, file.path)


def _left_out(
    machine: Machine, owner: LoadedObject, stored: dict[int, int], index: int, size: int
) -> Iterator[SegmentRow]:
    """Yield rows for ``Space.for_core`` about memory that the core lacks and the file has. The program cannot have
    changed this memory.
    """
    data = owner.data_ranges(machine)
    for mapping in owner.mappings:
        start = mapping.start + stored.get(mapping.start, 0)
        offset = mapping.offset + start - mapping.start
        end = min(mapping.end, start + max(0, size - offset))
        if start < end and not mapping.writable and not holds(data, start):
            yield SegmentRow(start, end, index, offset)


def _is_private(mapping: Mapping | None) -> bool:
    return mapping is not None and mapping.private and mapping.path != "[vdso]"


def present_runs(machine: Machine, part: CoreSegment, extents: list[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Yield (start, end, PRESENT) for the pages of a segment that have data in the file."""
    shift, stop = part.start - part.offset, part.offset + part.available
    index = bisect_left(extents, (part.offset + 1,)) - 1
    for start, end in islice(extents, max(index, 0), None):
        if start >= stop:
            return
        first, last = max(start, part.offset), min(end, stop)
        if first < last:
            yield machine.page_down(first) + shift, machine.page_up(last) + shift, PRESENT
