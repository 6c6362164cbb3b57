"""Find the function of an ELF file at an address, and its source lines.

Sources are ``.symtab``, ``.dynsym``, and the small compressed table that Fedora keeps in ``.gnu_debugdata``. Another
source is a separate debug file with the same build-id: the system's, or the one in the cache of debuginfod's client. C
names are unchanged; C++ and Rust names are demangled. Code that the compiler moved out of a function (``.cold``) has
the function's name. Source lines come from the debug information of the file, or of its separate debug file.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import lru_cache
from io import BytesIO
from typing import BinaryIO

from gdbheap import _native
from gdbheap.files import is_file, open_regular
from gdbheap.targets.elf import DYNSYM, SYMTAB, SectionTable, SymbolRoom
from gdbheap.targets.source_lines import SourceLine, SourceLines

DEBUG_FILES = "/usr/lib/debug/.build-id/{}/{}.debug"
# How many times a packed table may grow. Symbol tables are packed to about a third of their size, small ones to a
# tenth.
UNPACKED_RATIO = 32
# The memory limit of the decoder: eight times the dictionary of xz -6, which Fedora's files use.
XZ_MEMORY = 64 << 20
PACKED = ".gnu_debugdata"
_COLD = re.compile(r"\.cold(\.\d+)?$")


class Functions:
    """The functions and source lines of one file, by linked address."""

    def __init__(self, file: BinaryIO | None, build_id: str | None, room: SymbolRoom | None = None) -> None:
        """Read the tables. A damaged ELF image has no functions.

        ``build_id``: hex digits, to find a separate debug file. ``room``: limits the symbols of all files of the
        target.
        """
        room = room or SymbolRoom()
        self._lines: list[SourceLines] = []
        tables = self._read(file, room) if file is not None else []
        for path in _debug_files(build_id) if build_id else ():
            with suppress(OSError), open_regular(path) as stream:
                tables += self._read(stream, room)
        self._symbols = _native.SymbolTable(tables, True)
        # The names by the starts of their functions. A function may have hundreds of long names, and a stack thousands
        # of places in one function.
        self._names: dict[int, str | None] = {}

    def _read(self, stream: BinaryIO, room: SymbolRoom, is_unpacked: bool = False) -> list[tuple[bytes, bytes]]:
        """Return (entries, names of the symbols) of each symbol table, as bytes, and keep the file's source lines.

        ``is_unpacked``: the file comes from a packed table (.gnu_debugdata), so none is searched for in it.
        """
        found: list[tuple[bytes, bytes]] = []
        with suppress(ValueError, OSError, MemoryError):
            sections = SectionTable(stream)
            found += sections.symbols(room, SYMTAB, DYNSYM)
            self._lines += filter(None, [SourceLines.of(stream, sections, room)])
            small = b"" if is_unpacked else sections.contents(PACKED, room)
            if small:
                found += self._read(BytesIO(_unpacked(small, room)), room, is_unpacked=True)
        return found

    def find(self, address: int) -> str | None:
        """Return the name of the function at a linked address; None if none is known.

        If an address has several names, the plainest is returned: ``read``, not ``__libc_read``.
        """
        start = self._symbols.function(address)
        if start is None:
            return None
        if start not in self._names:
            plain = self._symbols.plainest(start)
            self._names[start] = None if plain is None else readable(plain)
        return self._names[start]

    def lines(self, address: int) -> tuple[SourceLine, ...]:
        """Return the source lines to which the code at a linked address belongs, innermost first.

        Lines in inlined functions come first, then the line of the function that owns the code. Empty if they are
        unknown.
        """
        return next(filter(None, (lines.find(address) for lines in self._lines)), ())


def _debug_files(build_id: str) -> list[str]:
    """Return the paths where a separate debug file may be: the system's, and the one in the cache of debuginfod's
    client."""
    # Imported on use: few programs have stacks.
    from gdbheap.targets.cores.debuginfod import cached

    system = DEBUG_FILES.format(build_id[:2], build_id[2:])
    return [system] if is_file(system) else cached(build_id, ["debuginfo"])


@lru_cache(maxsize=10_000)
def readable(symbol: str) -> str:
    """Return a linker's symbol name in readable form: without ``.cold``, and demangled if it is of C++ or Rust."""
    symbol = _COLD.sub("", symbol)
    if not symbol.startswith(("_Z", "_R")):
        return symbol
    stem, dot, rest = symbol.partition(".")
    return _native.demangle(symbol) or f"{_native.demangle(stem) or stem}{dot}{rest}"


def _unpacked(packed: bytes, room: SymbolRoom) -> bytes:
    """Return the content of a packed symbol file, at most UNPACKED_RATIO times its size.

    Return no bytes if the limit ``room`` is too small for it. Raises ValueError if it is damaged.
    """
    # Imported on use: few files have such a table.
    import lzma

    decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY)
    try:
        found = decoder.decompress(packed, min(room.left, UNPACKED_RATIO * len(packed)))
    except lzma.LZMAError as error:
        raise ValueError(str(error)) from None
    return found if room.take(len(found)) else b""
