"""Which function of an ELF file is at an address, by ``.symtab``, ``.dynsym``, the small table that Fedora keeps
compressed in ``.gnu_debugdata``, and a separate debug file of the same build-id.

Names are C's as they are, those of C++ and Rust as their programmers wrote them. What the compiler moved out of a
function (``.cold``) has the function's name.
"""

from __future__ import annotations

import lzma
import re
from contextlib import suppress
from functools import lru_cache
from io import BytesIO
from typing import BinaryIO

from gdbheap import _native
from gdbheap.files import open_regular
from gdbheap.targets.elf import DYNSYM, SYMTAB, SectionTable, SymbolRoom

DEBUG_FILES = "/usr/lib/debug/.build-id/{}/{}.debug"
# Tables of symbols pack to a third or so, small ones to a tenth.
UNPACKED_RATIO = 32
# What unpacking may need besides: eight times the dictionary of xz -6, which Fedora's files have.
XZ_MEMORY = 64 << 20
PACKED = ".gnu_debugdata"
_COLD = re.compile(r"\.cold(\.\d+)?$")


class Functions:
    """The functions of one file by the addresses at which they were linked."""

    def __init__(self, file: BinaryIO | None, build_id: str | None, room: SymbolRoom | None = None) -> None:
        """``build_id``: hex digits, of the debug file that is looked for. ``room``: for the symbols of all files of the
        target. Of an ELF image that is damaged there are none."""
        room = room or SymbolRoom()
        tables = _tables(file, room) if file is not None else []
        if build_id:
            with suppress(OSError), open_regular(DEBUG_FILES.format(build_id[:2], build_id[2:])) as stream:
                tables += _tables(stream, room)
        self._symbols = _native.SymbolTable(tables, True)

    def find(self, address: int) -> str | None:
        """The name of the function at an address as linked; None where none is known to be there. Of names for one
        address the plainest: ``read`` rather than ``__libc_read``."""
        names = self._symbols.function(address)
        plain = min(names, key=lambda name: (len(name) - len(name.lstrip("_")), len(name), name), default=None)
        return None if plain is None else readable(plain)


@lru_cache(maxsize=10_000)
def readable(symbol: str) -> str:
    """A linker's name as people know it."""
    symbol = _COLD.sub("", symbol)
    if not symbol.startswith(("_Z", "_R")):
        return symbol
    stem, dot, rest = symbol.partition(".")
    return _native.demangle(symbol) or f"{_native.demangle(stem) or stem}{dot}{rest}"


def _tables(stream: BinaryIO, room: SymbolRoom, is_unpacked: bool = False) -> list[tuple[bytes, bytes]]:
    """(symbols, names) of each table of symbols; a file that was packed in another one has no third in it."""
    found: list[tuple[bytes, bytes]] = []
    with suppress(ValueError, OSError, lzma.LZMAError, MemoryError):
        sections = SectionTable(stream)
        found += sections.symbols(room, SYMTAB, DYNSYM)
        small = b"" if is_unpacked else sections.contents(PACKED, room)
        if small:
            found += _tables(BytesIO(_unpacked(small, room)), room, is_unpacked=True)
    return found


def _unpacked(packed: bytes, room: SymbolRoom) -> bytes:
    """The small file of symbols, as far as it is in proportion. Raises what lzma raises."""
    decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY)
    return decoder.decompress(packed, min(room.left, UNPACKED_RATIO * len(packed)))
