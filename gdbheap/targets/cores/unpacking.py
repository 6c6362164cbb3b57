"""Unpack cores that systemd-coredump (zstd, lz4, xz), Ubuntu's apport or people (gzip, bzip2) have packed.

Cores are unpacked as a stream into a file without a name, which disappears when gdbheap ends in any way. Blocks of
zeros become holes of this file, so the file takes no more disk space than the core did. These holes are not the
kernel's, and do not show residency. Memory is bounded, even if a packed file states huge sizes. The core is checked
while it is unpacked. The header is checked as soon as it is complete. Nothing is written after the end that the program
headers state.
"""

from __future__ import annotations

import bz2
import lzma
import os
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, BinaryIO

from gdbheap import _native
from gdbheap.dataclass import dataclass
from gdbheap.environment import trusted
from gdbheap.errors import EXHAUSTED, GdbheapError, NoTarget, one_line
from gdbheap.host.headroom import disk_left
from gdbheap.machines import image

PIECE = 1 << 20
FIRST = 1 << 10
HOLE = 4 << 10
XZ_MEMORY = 256 << 20
CHECKED_EVERY = 64 << 20
MEGA = 1 << 20
# Program headers follow the header of every core; there are at most 2**20.
MAX_TABLE_END = 64 << 20
# Room after the segments for section headers and their names, whose size is unknown.
SECTIONS = 1 << 20
FOLDERS = ("/var/tmp", "/tmp")
ZEROS = bytes(HOLE)
NATIVE = {b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "lz4"}
DECODERS: dict[bytes, tuple[str, Callable[[], Any]]] = {
    b"\x1f\x8b": ("gzip", lambda: zlib.decompressobj(zlib.MAX_WBITS | 16)),
    b"BZh": ("bzip2", bz2.BZ2Decompressor),
    b"\xfd7zXZ\0": ("xz", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY)),
}
MAGIC_SIZE = 6
DAMAGED = (ValueError, zlib.error, lzma.LZMAError, OSError, EOFError)

Progress = Callable[[int, int], object]
"""A function that is called with the number of bytes read from the packed file, and its size (0: unknown)."""

Judge = Callable[[bytes], object]
"""A function that raises an error if an unpacked file is not a core. It is called with the file's first
image.HEADER_SIZE bytes, or with all of a shorter file.
"""


@dataclass
class Unpacked:
    """An unpacked core, in a file without a name.

    ``cut``: why the end of the core is missing; None if it is complete.
    ``modified``: when the packed file was last written, in seconds since 1970, None if unknown.
    """

    stream: BinaryIO
    cut: str | None
    modified: float | None = None


def packed_by(start: bytes) -> str | None:
    """Return the name of the format of a packed file whose first bytes are ``start``; None for an unknown format."""
    named = {**NATIVE, **{magic: name for magic, (name, _make) in DECODERS.items()}}
    return next((name for magic, name in named.items() if start.startswith(magic)), None)


def beginning(stream: BinaryIO, size: int) -> bytes:
    """Return the first bytes of the core in a packed file, at most ``size``; empty if the file is damaged."""
    start = _start(stream)
    stream.seek(0)
    with suppress(*DAMAGED):
        for piece, _done in _pieces_of(stream, start):
            return piece[:size]
    return b""


def unpack(stream: BinaryIO, name: str, judge: Judge, progress: Progress | None = None) -> Unpacked:
    """Return the core in a packed file.

    Raises the errors of ``judge``. Raises NoTarget if nothing can be unpacked, and GdbheapError if there is no room.
    """
    size = os.fstat(stream.fileno()).st_size
    start = _start(stream)
    stream.seek(0)
    return keep(_reported(_pieces_of(stream, start), size, progress), name, f"{packed_by(start)} file", judge)


def _pieces_of(stream: BinaryIO, start: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield (unpacked bytes of the core, bytes read of the packed file). Raises one of DAMAGED at the first damage."""
    kind = packed_by(start)
    return _native_pieces(stream, kind) if kind in NATIVE.values() else _pieces(stream, start)


def _reported(pieces: Iterator[tuple[bytes, int]], size: int, progress: Progress | None) -> Iterator[bytes]:
    for piece, done in pieces:
        yield piece
        if progress is not None:
            progress(done, size)


def _start(stream: BinaryIO) -> bytes:
    stream.seek(0)
    return stream.read(MAGIC_SIZE)


def keep(pieces: Iterator[bytes], name: str, what: str, judge: Judge) -> Unpacked:
    """Write the pieces of a core into a file without a name; ``pieces`` may raise one of DAMAGED.

    Raises the errors of ``judge``. Raises NoTarget if there are no pieces, and GdbheapError if there is no room.
    """
    kept = _SparseFile(name)
    try:
        cut = _keep_all(kept, pieces, what, judge)
        if not kept.size:
            raise NoTarget(f"{name} cannot be unpacked: {cut or f'the {what} is empty'}")
        return Unpacked(kept.finish(), cut)
    except BaseException:
        kept.stream.close()
        raise


def _keep_all(kept: _SparseFile, pieces: Iterator[bytes], what: str, judge: Judge) -> str | None:
    """Write the pieces up to the end of the core. Return None, or why the end was not reached.

    ``what``: the packed file's name in that reason.
    """
    end: int | None = None
    start = b""
    while True:
        try:
            piece = next(pieces, None)
        except DAMAGED as error:
            return f"the {what} is cut off or damaged: {one_line(error, 120)}"
        if len(start) < image.HEADER_SIZE and (piece or start):
            start += (piece or b"")[: image.HEADER_SIZE - len(start)]
            if piece is None or len(start) == image.HEADER_SIZE:
                judge(start)
        if piece is None:
            return None
        kept.write(piece)
        end = kept.end_of_core() if end is None else end
        if end is not None and kept.size > end:
            return f"the {what} continues after the end of the core that its program headers state"


def _native_pieces(stream: BinaryIO, kind: str | None) -> Iterator[tuple[bytes, int]]:
    unpacker = _native.Unpacker(f"/proc/self/fd/{stream.fileno()}", str(kind))
    while True:
        piece = unpacker.read(PIECE)
        if not piece:
            return
        yield piece, unpacker.position


def _pieces(stream: BinaryIO, start: bytes) -> Iterator[tuple[bytes, int]]:
    """Unpack a file with Python's library: yield (unpacked bytes of the core, bytes read of the packed file).

    The file may consist of several streams.
    """
    make = next(make for magic, (_name, make) in DECODERS.items() if start.startswith(magic))
    decoder, portions = make(), _Portions(stream)
    while True:
        if decoder.eof:
            portions.put_back(decoder.unused_data)
            if not portions.has_stream():
                return
            decoder = make()
        packed = b"" if _has_more(decoder) else portions.take()
        if not packed and not _has_more(decoder):
            raise EOFError("the data ends early")
        piece, unused = _decoded(decoder, packed)
        if not decoder.eof:
            # At the end zlib's decoder has the bytes after the stream in both attributes.
            portions.put_back(unused)
        if piece:
            yield piece, stream.tell()


class _Portions:
    """Reads a packed file in portions, which are small at the beginning of each stream.

    A decoder copies all input after the end of its stream. If portions were always large, a file of many small streams
    would be copied again and again.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._bytes = b""
        self._at, self._size = 0, FIRST

    def take(self) -> bytes:
        """Return the next portion of the packed file; empty at its end."""
        self._fill()
        portion = self._bytes[self._at : self._at + self._size]
        self._at += len(portion)
        self._size = min(2 * self._size, PIECE)
        return portion

    def put_back(self, unused: bytes) -> None:
        """Return the bytes that a decoder took last but did not use; the next ``take`` begins with them."""
        self._at -= len(unused)

    def has_stream(self) -> bool:
        """Return whether another stream follows. Zeros up to the end of the file are only padding."""
        self._fill()
        self._size = FIRST
        is_padded = self._bytes.startswith(b"\0", self._at)
        return self._at < len(self._bytes) and not (is_padded and not self._bytes[self._at :].strip(b"\0"))

    def _fill(self) -> None:
        if self._at == len(self._bytes):
            self._bytes, self._at = self._stream.read(PIECE), 0


def _has_more(decoder: Any) -> bool:
    """Return whether a decoder keeps input that it has not decoded yet. zlib's decoder returns it instead."""
    return not getattr(decoder, "needs_input", True)


def _decoded(decoder: Any, packed: bytes) -> tuple[bytes, bytes]:
    """Decode a part of the input. Return (decoded bytes, input that the decoder returned undecoded)."""
    piece = decoder.decompress(packed, PIECE)
    return piece, getattr(decoder, "unconsumed_tail", b"")


class _SparseFile:
    """A sparse file without a name, on the file system with the most free space. It disappears when gdbheap ends."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.folder, self.stream = _open_nameless()
        self.size = 0
        self._checked = -CHECKED_EVERY

    def write(self, piece: bytes) -> None:
        """Append bytes, with blocks of zeros as holes. Raises GdbheapError if the disk is full."""
        try:
            if self.size - self._checked >= CHECKED_EVERY:
                self._check_room()
            for start, end in _filled(piece):
                os.pwrite(self.stream.fileno(), memoryview(piece)[start:end], self.size + start)
        except OSError as error:
            raise self._no_room(os.strerror(error.errno or 0)) from None
        self.size += len(piece)

    def finish(self) -> BinaryIO:
        """Return the file, extended by the hole at its end. Raises GdbheapError if the file system refuses that."""
        try:
            os.ftruncate(self.stream.fileno(), self.size)
        except OSError as error:
            raise self._no_room(os.strerror(error.errno or 0)) from None
        return self.stream

    def end_of_core(self) -> int | None:
        """Return the offset of the core's end. Return None if the core has no ELF header, or as long as its program
        headers are incomplete.

        Raises NoTarget if the program headers lie further from the start than in any real core.
        """
        header = image.parse_header(self._at(0, image.HEADER_SIZE))
        if header is None:
            return None
        sections = header.shoff + max(1, header.shnum) * image.SECTION_SIZE
        if header.phnum == image.PN_XNUM:
            # The number of program headers is in a section header, which the kernel writes last.
            return sections + SECTIONS
        table_end = header.phoff + header.phnum * image.SEGMENT_SIZE
        if table_end > MAX_TABLE_END:
            raise NoTarget(f"{self._name} is not a core: its program headers end at byte {table_end:,}")
        if self.size < table_end:
            return None
        segments = image.parse_segments(self._at(header.phoff, table_end - header.phoff))
        ends = [segment.offset + segment.file_size for segment in segments]
        return max([table_end, sections, *ends]) + SECTIONS

    def _at(self, offset: int, size: int) -> bytes:
        """Return the bytes that were written at an offset, with zeros for a hole at the end."""
        size = max(0, min(size, self.size - offset))
        return os.pread(self.stream.fileno(), size, offset).ljust(size, b"\0")

    def _check_room(self) -> None:
        self._checked = self.size
        if not disk_left(self.stream.fileno()):
            raise self._no_room("gdbheap leaves the remaining disk space to other programs")

    def _no_room(self, cause: str) -> GdbheapError:
        done = f"{self.size // MEGA} MiB were unpacked"
        where = f"in {one_line(self.folder)} there is no room to unpack {self._name} ({cause}; {done})"
        return GdbheapError(f"{where}: set TMPDIR to a folder with more room")


def _filled(piece: bytes) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of the parts of a piece that are not blocks of zeros."""
    begun: int | None = None
    for start in range(0, len(piece), HOLE):
        if piece.startswith(ZEROS, start):
            if begun is not None:
                yield begun, start
            begun = None
        elif begun is None:
            begun = start
    if begun is not None:
        yield begun, len(piece)


def _open_nameless() -> tuple[str, BinaryIO]:
    """Return a folder, and a new file in it without a name. Raises GdbheapError."""
    chosen = trusted("TMPDIR")
    folders: Sequence[str] = [chosen] if chosen else sorted(FOLDERS, key=_room, reverse=True)
    cause = "no permission"
    for folder in folders:
        try:
            return folder, tempfile.TemporaryFile(dir=folder)
        except OSError as error:
            if error.errno in EXHAUSTED:
                cause = os.strerror(error.errno or 0)
    where = " and ".join(one_line(folder) for folder in folders)
    raise GdbheapError(f"no file can be created in {where} ({cause}): set TMPDIR to a folder with room")


def _room(folder: str) -> int:
    with suppress(OSError):
        room = os.statvfs(folder)
        return room.f_bavail * room.f_frsize
    return 0
