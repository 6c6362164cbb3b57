"""Which function of an ELF file is at an address, by ``.symtab``, ``.dynsym``, the small table that Fedora keeps
compressed in ``.gnu_debugdata``, and a separate debug file of the same build-id.

Names are C's as they are, those of C++ and Rust as their programmers wrote them. What the compiler moved out of a
function (``.cold``) has the function's name.
"""

from __future__ import annotations

import lzma
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from io import BytesIO
from typing import BinaryIO, NamedTuple

from gdbheap import _native
from gdbheap.files import open_regular
from gdbheap.targets.elf import SYMBOL, SYMBOL_BYTES_LIMIT, SectionTable, name_at

DEBUG_FILES = "/usr/lib/debug/.build-id/{}/{}.debug"
# STT_FUNC, STT_GNU_IFUNC.
KINDS = (2, 10)
# Tables of symbols pack to a third or so, small ones to a tenth.
UNPACKED_RATIO = 32
# What unpacking may need besides: eight times the dictionary of xz -6, which Fedora's files have.
XZ_MEMORY = 64 << 20
# A function that lies around others, as assembler has them, begins at most so many symbols before.
MAX_AROUND = 8
# A linker that folds equal functions leaves many names for one address: so many before and after one are compared.
MAX_ALIASES = 256
_COLD = re.compile(r"\.cold(\.\d+)?$")


class _Symbol(NamedTuple):
    value: int
    size: int
    table: int
    name: int


class Functions:
    """The functions of one file by the addresses at which they were linked; read when first asked for."""

    def __init__(self, file: BinaryIO | None, build_id: str | None) -> None:
        """``build_id``: hex digits, of the debug file that is looked for."""
        self._names: list[bytes] = []
        self._symbols: list[_Symbol] = []
        self._starts: list[int] = []
        if file is not None:
            self.add(file)
        if build_id:
            with suppress(OSError), open_regular(DEBUG_FILES.format(build_id[:2], build_id[2:])) as stream:
                self.add(stream)

    def add(self, stream: BinaryIO) -> None:
        """Take the symbols of an ELF image; none of one that is damaged."""
        for symbols, names in _tables(stream):
            self._names.append(names)
            self._symbols += _functions(symbols, len(self._names) - 1)
        self._symbols.sort()
        self._starts = [symbol.value for symbol in self._symbols]

    def find(self, address: int) -> str | None:
        """The name of the function at an address as linked; None where none is known to be there."""
        if not self._symbols:
            return None
        last = bisect_right(self._starts, address) - 1
        for place in range(last, max(-1, last - MAX_AROUND), -1):
            symbol = self._symbols[place]
            if address - symbol.value < symbol.size or (symbol.value == address or (not symbol.size and place == last)):
                return self._best(place)
        return None

    def _best(self, place: int) -> str:
        """Of the names for one address the plainest: ``read`` rather than ``__libc_read``."""
        value = self._symbols[place].value
        first = max(bisect_left(self._starts, value), place - MAX_ALIASES)
        end = min(bisect_right(self._starts, value), place + MAX_ALIASES)
        names = [self._name(symbol) for symbol in self._symbols[first:end]]
        return readable(min(names, key=lambda name: (len(name) - len(name.lstrip("_")), len(name), name)))

    def _name(self, symbol: _Symbol) -> str:
        return name_at(self._names[symbol.table], symbol.name)


@lru_cache(maxsize=10_000)
def readable(symbol: str) -> str:
    """A linker's name as people know it."""
    symbol = _COLD.sub("", symbol)
    if not symbol.startswith(("_Z", "_R")):
        return symbol
    stem, dot, rest = symbol.partition(".")
    return _native.demangle(symbol) or f"{_native.demangle(stem) or stem}{dot}{rest}"


def _functions(symbols: bytes, table: int) -> Iterator[_Symbol]:
    whole = len(symbols) - len(symbols) % SYMBOL.size
    for name, info, _other, section, value, size in SYMBOL.iter_unpack(symbols[:whole]):
        if info & 15 in KINDS and section and value:
            yield _Symbol(value, size, table, name)


def _tables(stream: BinaryIO, is_unpacked: bool = False) -> list[tuple[bytes, bytes]]:
    """(symbols, names) of each table of symbols; a file that was packed in another one has no third in it."""
    found: list[tuple[bytes, bytes]] = []
    with suppress(ValueError, OSError, lzma.LZMAError, MemoryError):
        sections = SectionTable(stream)
        found += [(symbols, names) for _name, symbols, names in sections.symbols()]
        small = b"" if is_unpacked else sections.contents(".gnu_debugdata")
        if small:
            found += _tables(BytesIO(_unpacked(small)), is_unpacked=True)
    return found


def _unpacked(packed: bytes) -> bytes:
    """The small file of symbols, as far as it is in proportion. Raises what lzma raises."""
    decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY)
    return decoder.decompress(packed, min(SYMBOL_BYTES_LIMIT, UNPACKED_RATIO * len(packed)))
