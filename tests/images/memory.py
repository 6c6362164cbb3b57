"""An address space in pieces, and the core file made of it: program headers, notes, then the bytes of each piece."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

PAGE = 4096
PT_LOAD, PT_NOTE = 1, 4
NT_PRSTATUS, NT_AUXV, NT_FILE = 1, 6, 0x46494C45
AT_PAGESZ, AT_RANDOM = 6, 25
NT_ARM_TLS = 0x401
X86_64, AARCH64 = 62, 183
TYPE_SHARED, TYPE_CORE = 3, 4


@dataclass
class Piece:
    """A mapping [start, start + size). A piece without ``data`` was not dumped."""

    start: int
    size: int
    perms: int
    data: bytearray
    path: str = ""
    offset: int = 0

    @property
    def end(self) -> int:
        """Return the end address."""
        return self.start + self.size


@dataclass
class Memory:
    """Mappings, threads as (tid, thread pointer, stack pointer), the address of AT_RANDOM, the page size, and the
    machine by its number in ELF headers.

    ``sparse``: pages of zeros are holes in the core, as the kernel leaves them for pages that did not exist.
    """

    pieces: list[Piece] = field(default_factory=list)
    threads: list[tuple[int, int, int]] = field(default_factory=list)
    random_at: int = 0
    page: int = PAGE
    sparse: bool = False
    machine: int = X86_64

    def map(self, start: int, size: int, path: str = "", offset: int = 0, perms: int = 6) -> None:
        """Add a mapping of zeros; one without permissions is not dumped."""
        assert start % self.page == size % self.page == 0 and size, (hex(start), hex(size))
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
        at = self._round_up(at + len(notes))
        for piece in pieces:
            sizes = (len(piece.data), piece.size, self.page)
            headers.append(struct.pack("<IIQQQQQQ", PT_LOAD, piece.perms, at, piece.start, 0, *sizes))
            at += len(piece.data)
        with path.open("wb") as file:
            file.write(elf_header(TYPE_CORE, len(headers), self.machine) + b"".join(headers) + notes)
            file.seek(self._round_up(file.tell()))
            for piece in pieces:
                self._save_piece(file, piece)
            file.truncate(file.tell())
        return path

    def _save_piece(self, file: BinaryIO, piece: Piece) -> None:
        for at in range(0, len(piece.data), self.page) if self.sparse else ():
            data = piece.data[at : at + self.page]
            if any(data):
                file.write(data)
            else:
                file.seek(len(data), os.SEEK_CUR)
        if not self.sparse:
            file.write(piece.data)

    def resident(self, start: int, end: int) -> int:
        """Return the bytes of [start, end) in resident pages of a sparse core: those that are not all zeros."""
        return sum(
            min(end, at + self.page) - max(start, at)
            for piece in self.pieces
            for at in range(max(piece.start, start // self.page * self.page), min(piece.end, end), self.page)
            if any(piece.data[at - piece.start : at - piece.start + self.page])
        )

    def _round_up(self, size: int) -> int:
        return -(-size // self.page) * self.page

    def _notes(self, pieces: list[Piece]) -> bytes:
        auxv = struct.pack("<6Q", AT_PAGESZ, self.page, AT_RANDOM, self.random_at, 0, 0)
        return b"".join(
            [note for thread in self.threads for note in _of_thread(self.machine, *thread)]
            + [_note(NT_AUXV, auxv), _note(NT_FILE, self._files([piece for piece in pieces if piece.path]))]
        )

    def _files(self, pieces: list[Piece]) -> bytes:
        head = struct.pack("<QQ", len(pieces), self.page)
        rows = b"".join(struct.pack("<QQQ", piece.start, piece.end, piece.offset // self.page) for piece in pieces)
        return head + rows + b"".join(piece.path.encode() + b"\0" for piece in pieces)


def elf_header(kind: int, headers: int, machine: int = X86_64) -> bytes:
    """Return the header of a 64-bit ELF file whose program headers follow at once."""
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    return ident + struct.pack("<HHIQQQIHHHHHH", kind, machine, 1, 0, 64, 0, 0, 64, 56, headers, 0, 0, 0)


def _of_thread(machine: int, tid: int, pointer: int, sp: int) -> list[bytes]:
    """Return the notes of a thread; on aarch64 the thread pointer is in another note than the registers."""
    if machine == AARCH64:
        return [
            _note(NT_PRSTATUS, _status(tid, 34, {31: sp})),
            _note(NT_ARM_TLS, struct.pack("<2Q", pointer, 0), b"LINUX"),
        ]
    return [_note(NT_PRSTATUS, _status(tid, 27, {19: sp, 21: pointer}))]


def _status(tid: int, count: int, known: dict[int, int]) -> bytes:
    registers = [known.get(number, 0) for number in range(count)]
    return (b"\0" * 32 + struct.pack("<I", tid)).ljust(112, b"\0") + struct.pack(f"<{count}Q", *registers) + b"\0" * 8


def _note(kind: int, data: bytes, owner: bytes = b"CORE") -> bytes:
    head = struct.pack("<III", len(owner) + 1, len(data), kind) + owner.ljust(8, b"\0")
    return head + data.ljust(-(-len(data) // 4) * 4, b"\0")
