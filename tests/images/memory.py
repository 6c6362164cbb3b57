"""An address space in pieces, and the core file made of it: program headers, notes, then the bytes of each piece."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path

PAGE = 4096
PT_LOAD, PT_NOTE = 1, 4
NT_PRSTATUS, NT_AUXV, NT_FILE = 1, 6, 0x46494C45
AT_PAGESZ, AT_RANDOM = 6, 25
MACHINE_X86_64 = 62
TYPE_SHARED, TYPE_CORE = 3, 4


@dataclass
class Piece:
    """A mapping: [start, start + size). Without ``data`` it was not dumped."""

    start: int
    size: int
    perms: int
    data: bytearray
    path: str = ""
    offset: int = 0

    @property
    def end(self) -> int:
        """The address behind it."""
        return self.start + self.size


@dataclass
class Memory:
    """Mappings, threads as (tid, thread pointer, stack pointer), and the address of AT_RANDOM."""

    pieces: list[Piece] = field(default_factory=list)
    threads: list[tuple[int, int, int]] = field(default_factory=list)
    random_at: int = 0

    def map(self, start: int, size: int, path: str = "", offset: int = 0, perms: int = 6) -> None:
        """Add a mapping of zeros; one without permissions is not dumped."""
        assert start % PAGE == size % PAGE == 0 and size, (hex(start), hex(size))
        self.pieces.append(Piece(start, size, perms, bytearray(size if perms else 0), path, offset))

    def write(self, address: int, data: bytes) -> None:
        """Write bytes into one mapping."""
        piece = next(piece for piece in self.pieces if piece.start <= address < piece.end)
        offset = address - piece.start
        assert offset + len(data) <= len(piece.data), hex(address)
        piece.data[offset : offset + len(data)] = data

    def put(self, address: int, *words: int) -> None:
        """Write words of 64 bits, one after the other."""
        self.write(address, struct.pack(f"<{len(words)}Q", *words))

    def word(self, address: int) -> int:
        """Read a word."""
        piece = next(piece for piece in self.pieces if piece.start <= address < piece.end)
        return int(struct.unpack_from("<Q", piece.data, address - piece.start)[0])

    def save(self, path: Path) -> Path:
        """Write the core."""
        pieces = sorted(self.pieces, key=lambda piece: piece.start)
        notes = self._notes(pieces)
        at = 64 + 56 * (len(pieces) + 1)
        headers = [struct.pack("<IIQQQQQQ", PT_NOTE, 4, at, 0, 0, len(notes), 0, 4)]
        at = _round_up(at + len(notes))
        for piece in pieces:
            sizes = (len(piece.data), piece.size, PAGE)
            headers.append(struct.pack("<IIQQQQQQ", PT_LOAD, piece.perms, at, piece.start, 0, *sizes))
            at += len(piece.data)
        with path.open("wb") as file:
            file.write(elf_header(TYPE_CORE, len(headers)) + b"".join(headers) + notes)
            file.seek(_round_up(file.tell()))
            for piece in pieces:
                file.write(piece.data)
        return path

    def _notes(self, pieces: list[Piece]) -> bytes:
        auxv = struct.pack("<6Q", AT_PAGESZ, PAGE, AT_RANDOM, self.random_at, 0, 0)
        return b"".join(
            [_note(NT_PRSTATUS, _status(*thread)) for thread in self.threads]
            + [_note(NT_AUXV, auxv), _note(NT_FILE, _files([piece for piece in pieces if piece.path]))]
        )


def elf_header(kind: int, headers: int) -> bytes:
    """Return the header of a 64-bit ELF file for x86 whose program headers follow at once."""
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    return ident + struct.pack("<HHIQQQIHHHHHH", kind, MACHINE_X86_64, 1, 0, 64, 0, 0, 64, 56, headers, 0, 0, 0)


def _status(tid: int, fs_base: int, sp: int) -> bytes:
    registers = [0] * 27
    registers[19], registers[21] = sp, fs_base
    return (b"\0" * 32 + struct.pack("<I", tid)).ljust(112, b"\0") + struct.pack("<27Q", *registers) + b"\0" * 8


def _files(pieces: list[Piece]) -> bytes:
    head = struct.pack("<QQ", len(pieces), PAGE)
    rows = b"".join(struct.pack("<QQQ", piece.start, piece.end, piece.offset // PAGE) for piece in pieces)
    return head + rows + b"".join(piece.path.encode() + b"\0" for piece in pieces)


def _note(kind: int, data: bytes) -> bytes:
    return struct.pack("<III", 5, len(data), kind) + b"CORE\0\0\0\0" + data.ljust(-(-len(data) // 4) * 4, b"\0")


def _round_up(size: int) -> int:
    return -(-size // PAGE) * PAGE
