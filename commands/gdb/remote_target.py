"""A process behind a server (gdbserver) as a target. The caller passes the functions that read its memory and its
/proc. The answers are the same as for a local process.

A local file replaces a remote one only if both are the same. An ELF file must have the build-id that is in the target's
memory. The local /proc is used only if the server runs on this machine.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from gdbheap._native import PRESENT, SWAPPED, Pages, Space, read_patiently
from gdbheap.commands.gdb.remote_files import RemoteFiles
from gdbheap.errors import GdbheapError, one_line
from gdbheap.host import procfs
from gdbheap.host.identity import BOOT_ID, identify
from gdbheap.host.procfs import Rss
from gdbheap.machines.machine import THIS_MACHINE, Machine
from gdbheap.targets.elf import ElfFile, ElfFiles, find_objects
from gdbheap.targets.mappings import Mapping, Mappings, parse_locked, parse_maps, parse_smaps
from gdbheap.targets.process import Registers, is_readable, thread_of
from gdbheap.targets.target import AT_ENTRY, AT_PAGESZ, Target

if TYPE_CHECKING:
    Read = Callable[[int, int], bytes]
    FileReader = Callable[[str, int], bytes]

__all__ = ["LONG_STATE", "RemoteProcess", "unrestorable"]

PID_NAMESPACE = "/proc/self/ns/pid"
TABLE_LIMIT = 64 << 20
# 65,530 mappings, the most that the kernel allows by default (vm.max_map_count), need 6 MiB in maps and 46 in smaps.
MAPS_LIMIT = 8 << 20
TEXT_LIMIT = 1 << 20
CPU_LIMIT = 16 << 10
ENTRY = 8
FIRST_WITH_AMX = 14
LONG_STATE = "GDBHEAP_LONG_STATE"


class RemoteProcess(Target):
    """A process behind a server.

    ``pid``: its id on the server.
    ``read(address, size)``: returns bytes of its memory, or raises.
    ``files``: reads files of the server.
    ``interrupted``: whether Ctrl-C came during a read. The caller must check this: code that reads memory treats any
    error as absent bytes, Ctrl-C too.
    """

    interrupted = False

    def __init__(
        self,
        pid: int,
        threads: Iterable[Registers],
        read: Read,
        files: RemoteFiles | FileReader,
        machine: Machine = THIS_MACHINE,
    ) -> None:
        super().__init__("process", pid=pid, remote=True, machine=machine)
        self._files = files
        self._read_memory = read
        self._read_mappings()
        with contextlib.suppress(OSError):
            self.auxv = procfs.parse_auxv(self.machine, self._file("auxv", TEXT_LIMIT))
        ranges = [(mapping.start, mapping.end) for mapping in self.mappings]
        self.machine = self.machine.of_program(self.auxv.get(AT_PAGESZ), ranges)
        self._read_pages()
        self._read_rest(threads)
        self.identity = identify(lambda path: self._any_file(path, TEXT_LIMIT), pid)

    def _any_file(self, path: str, limit: int) -> bytes:
        return self._files.read(path, limit) if isinstance(self._files, RemoteFiles) else self._files(path, limit)

    def _file(self, name: str, limit: int) -> bytes:
        return self._any_file(f"/proc/{self.pid}/{name}", limit)

    def _read_mappings(self) -> None:
        # The shorter list first: the packets for a long one take minutes.
        lines = b""
        with contextlib.suppress(OSError):
            lines = self._file("maps", MAPS_LIMIT)
        if len(lines) == MAPS_LIMIT:
            raise GdbheapError("the process has too many mappings to be read from a server: run gdbheap on the server")
        try:
            text = self._file("smaps", TABLE_LIMIT)
            if len(text) == TABLE_LIMIT:
                raise OSError
            self.mappings, self.locked = parse_smaps(text), parse_locked(text)
            self.rss = self._read_rss()
        except OSError:
            self.mappings = parse_maps(lines)
        by_start = sorted(self.mappings, key=lambda mapping: mapping.start)
        if any(before.end > after.start for before, after in zip(by_start, by_start[1:])):
            raise GdbheapError(f"the server's list of the mappings of process {self.pid} is wrong: some overlap")
        if not len(self.mappings):
            raise GdbheapError(f"the server does not let gdbheap read /proc/{self.pid}/maps: run gdbheap on the server")

    def _read_rss(self) -> Rss:
        with contextlib.suppress(OSError):
            found = procfs.parse_rollup(self._file("smaps_rollup", TEXT_LIMIT))
            if found is not None:
                return found
        rss = sum(mapping.rss or 0 for mapping in self.mappings)
        return Rss(rss, sum(mapping.swap or 0 for mapping in self.mappings), "smaps")

    def _read_pages(self) -> None:
        """Read pagemap for the mappings that have resident or swapped pages. All other mappings have none."""
        if not isinstance(self._files, RemoteFiles):
            unknown = "it is unknown which pages are resident or reclaimable"
            self.warnings.append(f"this gdb cannot read parts of a remote file: {unknown}")
            return
        page = self.machine.page
        ranges = [(m.start, m.end) for m in self.mappings if m.rss is None or m.rss or m.swap]
        parts = [(start // page * ENTRY, (end - start) // page * ENTRY) for start, end in ranges]
        path = f"/proc/{self.pid}/pagemap"
        try:
            if _is_here(self._files, self.pid or 0):
                self.pages = Pages.from_pagemap(self.machine, path, ranges)
                return
            if sum(size for _offset, size in parts) > TABLE_LIMIT:
                unknown = "it is unknown which pages are resident"
                self.warnings.append(f"the process reserved so much memory that its pagemap is not read: {unknown}")
                return
            # A server that cannot read the end of the file need not read its beginning.
            self._files.read_ranges(path, [(parts[-1][0], ENTRY)] if parts else [])
            found = self._files.read_ranges(path, parts)
            entries = [(start, data) for (start, _), data in zip(ranges, found)]
            self.pages = Pages.from_entries(self.machine, entries)
        except OSError as error:
            self.warnings.append(
                f"the server's pagemap cannot be read ({one_line(error.strerror or error)}; gdbserver cannot read a "
                "file beyond 2 GiB): it is unknown which pages are resident"
            )

    def _read_rest(self, threads: Iterable[Registers]) -> None:
        readable = [mapping for mapping in self.mappings if is_readable(mapping)]
        ranges = [(m.start, m.end) for m in readable]
        self.space = Space.for_remote(self.machine, ranges, self._reader(Mappings(readable)))
        self.threads = [thread_of(found, self._thread_name(found.tid)) for found in threads]
        self.objects = find_objects(self.machine, self.mappings, self.space, ElfFiles(), lambda mapping: [mapping.path])
        self.exe = self._executable()

    def status(self) -> dict[str, str]:
        """Return the fields of /proc/PID/status; empty if the server cannot read it."""
        with contextlib.suppress(OSError):
            return procfs.parse_status(self._file("status", TEXT_LIMIT))
        return {}

    def unrestorable(self, version: int) -> str:
        """Return why this major version of gdb could not restore the registers after a call; "" if it could."""
        text = None
        with contextlib.suppress(OSError):
            text = self._any_file("/proc/cpuinfo", CPU_LIMIT)
        return unrestorable(version, text, bool(os.environ.get(LONG_STATE)))

    def _executable(self) -> str | None:
        """Return the target of the link /proc/PID/exe.

        If it is unknown, return the path of the object that contains the entry point, which the auxiliary vector names;
        None if that is unknown too.
        """
        if isinstance(self._files, RemoteFiles):
            with contextlib.suppress(OSError):
                return self._files.link(f"/proc/{self.pid}/exe")
        program = self.object_of(self.auxv.get(AT_ENTRY, 0))
        return program.path if program else None

    def _thread_name(self, tid: int) -> str:
        with contextlib.suppress(OSError):
            return one_line(self._file(f"task/{tid}/comm", TEXT_LIMIT).decode("utf-8", "replace"))
        return ""

    def _reader(self, mappings: Mappings) -> Read:
        """Return a function that reads memory but not absent pages, because reading an absent page would make the
        kernel create it."""

        def read(address: int, size: int) -> bytes:
            if self.interrupted:
                return b""
            try:
                mapping = mappings.find(address)
                absent = self._absent_part(mapping) if mapping else None
                if self.pages is None or mapping is None or absent is None:
                    return self._read_memory(address, size)
                return _filled(self.pages, address, min(size, mapping.end - address), self._read_memory, absent)
            except KeyboardInterrupt:
                self.interrupted = True
                raise

        return read

    def _absent_part(self, mapping: Mapping) -> Read | None:
        """Return a function that computes bytes of absent pages of a private mapping; None if they cannot be computed.

        The function returns zeros for anonymous pages. Pages of a file are read from a local file with the same
        build-id.
        """
        if not mapping.private or mapping.path == "[vdso]":
            return None
        if mapping.anonymous:
            return lambda start, size: bytes(size)
        loaded = self.object_of(mapping.start)
        elf = None if loaded is None or loaded.file is None else loaded.elf
        if elf is None:
            return None
        return lambda start, size: _file_part(elf, mapping.offset + start - mapping.start, size)


def unrestorable(version: int, cpuinfo: bytes | None, forced: bool = False) -> str:
    """Return why a major version of gdb cannot restore all registers of the server's CPU; "" if it can.

    ``cpuinfo``: the server's /proc/cpuinfo, None if unknown; ``forced``: assume that the CPU has AMX. Before gdb 14,
    gdb and gdbserver use 2,696 bytes for the vector registers. For AMX the kernel needs more bytes and refuses fewer:
    gdb gives up halfway, and the interrupted system call returns a wrong result.
    """
    if version >= FIRST_WITH_AMX:
        return ""
    lines = (cpuinfo or b"").decode("ascii", "replace").splitlines()
    flags = next((line.split() for line in lines if line.startswith("flags")), None)
    if forced or (flags is not None and any(flag.startswith("amx") for flag in flags)):
        return f"the server's CPU has AMX, whose registers gdb {version} cannot restore"
    if flags is None:
        return f"gdb {version} cannot restore the registers of a CPU with AMX, and the server's CPU is unknown"
    return ""


def _file_part(elf: ElfFile, offset: int, size: int) -> bytes:
    """Return bytes of a file, padded with zeros as the kernel pads the last page of a mapping. Return b"" if the file's
    name now belongs to another file."""
    data = elf.read(offset, size)
    return data.ljust(size, b"\0") if data else b""


def _is_here(files: RemoteFiles, pid: int) -> bool:
    """Return whether the server's /proc is the local one.

    Both then have the same boot id and PID namespace, and the process has the same mappings in both. In that case,
    pagemap can be read locally. gdbserver cannot read it, because its file offsets end at 2 GiB.
    """
    try:
        with open(BOOT_ID, "rb") as own_boot:
            return (
                files.read(BOOT_ID, TEXT_LIMIT) == own_boot.read()
                and files.link(PID_NAMESPACE) == os.readlink(PID_NAMESPACE)
                and files.read(f"/proc/{pid}/maps", TABLE_LIMIT) == read_patiently(f"/proc/{pid}/maps", TABLE_LIMIT)
            )
    except OSError:
        return False


def _filled(pages: Pages, address: int, size: int, read: Read, absent: Read) -> bytes:
    """Return ``size`` bytes of memory. Pages that are present or swapped are read by ``read``. All other pages are
    computed by ``absent``."""
    parts: list[bytes] = []
    at, end = address, address + size
    for run in pages.runs(address, end):
        start, stop = max(run.start, at), min(run.end, end)
        if run.state in (PRESENT, SWAPPED) and start < stop:
            parts += [absent(at, start - at)] if at < start else []
            parts.append(read(start, stop - start))
            at = stop
    parts += [absent(at, end - at)] if at < end else []
    return b"".join(parts)
