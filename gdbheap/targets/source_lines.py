"""Find the source lines of machine code in the debug information (DWARF) of an ELF file."""

from __future__ import annotations

import os
import struct
import zlib
from contextlib import suppress
from typing import BinaryIO, NamedTuple

from gdbheap import _native
from gdbheap.machines.image import SHF_COMPRESSED
from gdbheap.targets.elf import SectionTable, SymbolRoom

__all__ = ["SourceLine", "SourceLines"]

NEEDED = (".debug_info", ".debug_abbrev", ".debug_line")
OTHERS = (".debug_str", ".debug_line_str", ".debug_str_offsets", ".debug_addr", ".debug_ranges", ".debug_rnglists")
# A table of abbreviations takes many times its bytes when it is decoded.
MAX_ABBREVIATIONS = 8 << 20
# Elf64_Chdr: type (1 is zlib), size.
COMPRESSION, ZLIB = struct.Struct("<I4xQ8x"), 1


class SourceLine(NamedTuple):
    """A line of source code.

    ``function``: the symbol or name of an inlined function; None for the function that owns the machine code.
    ``file``: the path of the source where it was compiled. Only the end of a path of more than 300 characters is kept.
    """

    function: str | None
    file: str
    line: int


class SourceLines:
    """The source lines of one file, by linked address. Nothing is read before the first search."""

    def __init__(self, file: BinaryIO, room: SymbolRoom) -> None:
        self._file, self._room = file, room
        self._lines: _native.SourceLines | None = None
        self._found: dict[int, tuple[SourceLine, ...]] = {}

    @classmethod
    def of(cls, stream: BinaryIO, sections: SectionTable, room: SymbolRoom) -> SourceLines | None:
        """Return the lines of an open file, which the caller may close; None if it has no debug information.

        ``room``: limits the bytes and the work of all files of the target.
        """
        if all(map(sections.has_bytes, NEEDED)):
            with suppress(OSError):
                return cls(os.fdopen(os.dup(stream.fileno()), "rb"), room)
        return None

    def find(self, address: int) -> tuple[SourceLine, ...]:
        """Return the lines to which the code at a linked address belongs, innermost first.

        Lines in inlined functions come first, then the line of the function that owns the code. Empty if they are
        unknown, or if there was too much debug information.
        """
        if address not in self._found:
            if not self._room.sources.has_room:
                return ()
            self._found[address] = found = self._read(address)
            self._room.sources.count(1 + len(found))
        return self._found[address]

    def _read(self, address: int) -> tuple[SourceLine, ...]:
        if self._lines is None:
            contents: dict[str, bytes] = {}
            with suppress(OSError, ValueError, MemoryError, struct.error, zlib.error), self._file as file:
                table = SectionTable(file)
                contents = {name: _contents(table, name, self._room) for name in (*NEEDED, *OTHERS)}
            self._lines = _native.SourceLines(contents, self._room.lines)
        texts = self._room.sources
        return tuple(
            [
                SourceLine(None if name is None else texts.name(name), texts.path(file), line)
                for name, file, line in self._lines.find(address)
            ]
        )


def _contents(table: SectionTable, name: str, room: SymbolRoom) -> bytes:
    """Return the bytes of a section, unpacked; empty if it is missing or too large.

    Raises ValueError, struct.error and zlib.error for a damaged section.
    """
    contents = table.contents(name, room)
    if contents and table.flags(name) & SHF_COMPRESSED:
        kind, size = COMPRESSION.unpack_from(contents)
        if kind != ZLIB or not room.take(size):
            return b""
        contents = zlib.decompressobj().decompress(contents[COMPRESSION.size :], max(1, size))
    return b"" if name == ".debug_abbrev" and len(contents) > MAX_ABBREVIATIONS else contents
