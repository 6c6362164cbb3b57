"""Write and read the file of a snapshot: a zip archive, which other programs can read too (docs/snapshots.md).

Each entry of the archive has a checksum, which reveals damage. Before gdbheap unpacks an entry, it checks the size that
the archive states for the entry. The size must suit the entry's column, be possible for deflate, and fit into the free
memory.
"""

from __future__ import annotations

import json
import os
import threading
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, NamedTuple

from gdbheap import _native
from gdbheap.answers.accounting.records import check_target, from_json, to_json
from gdbheap.documents import NODE_BYTES, is_time, parsed
from gdbheap.errors import UsageError, one_line
from gdbheap.files import PRIVATE, open_to_read, replacing
from gdbheap.host.headroom import copy_fits, room_for_copy
from gdbheap.snapshots.blocks import COLUMNS, HOLDERS, OFFSETS, WIDTHS, columns_of
from gdbheap.snapshots.snapshot import Snapshot, SnapshotWithBlocks, as_written

__all__ = ["is_snapshot", "read", "write"]

ENTRY = "snapshot.json"
FORMAT = "gdbheap snapshot"
# A file with a larger number is refused; a file with a smaller number is still read (``from_older`` of the records).
NUMBER = 2
MAGIC = b"PK\x03\x04"
# A process with 65,536 mappings and as many types needs a few MiB; they are packed to about an eighth.
MAX_DOCUMENT_BYTES, DOCUMENT_SPARE, DOCUMENT_RATIO = 64 << 20, 1 << 20, 32
# Deflate encodes 258 bytes with two codes of one bit each.
DEFLATE_RATIO = 1032
# A snapshot has about twenty entries. The record at the end of a zip is followed by a comment of at most 64 KiB. The
# record of zip64, for archives of more than 4 GiB, comes before this record.
MAX_DIRECTORY_BYTES = 64 << 10
END_RECORD, MAX_END_BYTES = b"PK\x05\x06", 22 + (1 << 16)
LARGE_END_RECORD, LARGE_END_BYTES = b"PK\x06\x07", 20
PIECE = 4 << 20
COMPRESSION_LEVEL, COLUMN_LEVEL = 6, 1
FOLDER = "blocks/"
# Entries that older files lack.
OPTIONAL = (f"{FOLDER}{OFFSETS}",)
# A number that does not fit into its column takes eight bytes elsewhere.
MAX_EXCEPTION_BYTES = 8
# The most blocks that a file may claim: more than any process has.
MAX_BLOCKS = 1 << 31
# How many times the columns are in memory: in parts while they are unpacked, whole, and in the native module.
COPIES = 3


def write(path: str, look: SnapshotWithBlocks, mode: int = PRIVATE) -> int:
    """Write a snapshot, and return the size of its file in bytes. Raises UsageError if the file cannot be written."""
    keys = {"format": FORMAT, "schema": NUMBER, **to_json(look.snapshot)}
    text = json.dumps(keys, default=to_json, separators=(",", ":"))
    with replacing(path, mode) as stream:
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, True, COMPRESSION_LEVEL) as archive:
            archive.writestr(ENTRY, text)
            for name in _columns_in(look.snapshot):
                # Columns are large, and their bytes are alike: a higher level would take three times as long and save
                # only a fifth.
                column = getattr(look.columns, name)
                archive.writestr(f"{FOLDER}{name}", column, zipfile.ZIP_DEFLATED, COLUMN_LEVEL)
        stream.flush()
        size = os.fstat(stream.fileno()).st_size
    return size


def _columns_in(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the names of the columns that the snapshot's file has."""
    if snapshot.blocks is None:
        return ()
    return (*COLUMNS, OFFSETS) if snapshot.blocks.holders is None else (*COLUMNS, OFFSETS, HOLDERS)


def is_snapshot(path: str) -> bool:
    """Return whether a file begins like a snapshot, which is a zip."""
    try:
        with open_to_read(path) as stream:
            return stream.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError, UsageError):
        return False


class _Source(NamedTuple):
    """A file that is kept open.

    ``path``: its name in messages.
    ``opened``: a path that opens this file even if its name now belongs to another file.
    """

    path: str
    opened: str


def read(path: str) -> SnapshotWithBlocks:
    """Read a snapshot.

    Raises UsageError, with one line, for a file that is missing, damaged, not a snapshot, or from a newer release.
    """
    try:
        file = open_to_read(path)
    except OSError as error:
        raise _refused(path, error.strerror or str(error)) from None
    except ValueError as error:
        raise _refused(path, f"the file is not a snapshot: {error}") from None
    with file:
        return _read(_Source(path, f"/proc/self/fd/{file.fileno()}"))


def _read(source: _Source) -> SnapshotWithBlocks:
    path, content = source.path, _document(source)
    if content.get("format") != FORMAT:
        raise _refused(path, "the file is not a gdbheap snapshot")
    schema = content.get("schema")
    if type(schema) is not int:
        raise _refused(path, "the file is damaged: its format is not a number")
    if schema > NUMBER:
        raise _refused(
            path, f"the file was written by a newer gdbheap (format {schema}; this one reads up to {NUMBER})"
        )
    try:
        found = as_written(from_json(Snapshot, content))
        check_target(found.target)
    except UsageError as error:
        raise _refused(path, f"the file is damaged: {error}") from None
    if not is_time(found.time):
        raise _refused(path, f"the file is damaged: its time, {found.time:g} seconds after 1970, is impossible")
    return SnapshotWithBlocks(found, _columns(source, found) if found.blocks is not None else None, is_kept=True)


def _columns(source: _Source, snapshot: Snapshot) -> _native.BlockColumns:
    """Return the columns of the blocks. Raises UsageError if their number of blocks differs from the number in the
    document."""
    path, table = source.path, snapshot.blocks
    count = sum(table.counts) if table is not None else 0
    if table is None or min(table.counts, default=0) < 0 or count > MAX_BLOCKS:
        raise _refused(path, "the file is damaged: it claims more blocks than any process can have")
    if len(table.counts) != len(table.allocators):
        raise _refused(path, "the file is damaged: its numbers of blocks and of allocators do not match")
    names = [f"{FOLDER}{name}" for name in _columns_in(snapshot)]
    try:
        with _archive(source) as archive:
            entries = {name: _entry(path, archive, name) for name in names if not _is_left_out(archive, name)}
        _check_columns(path, entries, count)
        columns = _unpacked(source, entries)
        return columns_of(table, [columns.get(f"{FOLDER}{name}", b"") for name in (*COLUMNS, HOLDERS, OFFSETS)])
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise _refused(path, f"the file is damaged: {error}") from None


@contextmanager
def _archive(source: _Source) -> Iterator[zipfile.ZipFile]:
    """Open the zip of a snapshot, after a check that its directory fits into memory. Raises OSError, BadZipFile,
    UsageError.
    """
    with open_to_read(source.opened) as file:
        _check_directory(source.path, file)
        with zipfile.ZipFile(file) as archive:
            yield archive


def _check_directory(path: str, file: BinaryIO) -> None:
    """Raise UsageError if the zip's directory is larger than that of any snapshot.

    Each entry becomes an object of some hundred bytes. The directory's size is in the record at the end of the zip
    (PKWARE's APPNOTE, 4.3.16).
    """
    size = file.seek(0, os.SEEK_END)
    start = max(0, size - MAX_END_BYTES)
    file.seek(start)
    tail = file.read(MAX_END_BYTES)
    end = tail.rfind(END_RECORD)
    is_large = end >= 0 and int.from_bytes(tail[end + 12 : end + 16], "little") > MAX_DIRECTORY_BYTES
    if is_large or LARGE_END_RECORD in tail[max(0, end - LARGE_END_BYTES) : end]:
        raise _refused(path, "the file is damaged: its zip directory is larger than in any snapshot")
    file.seek(0)


def _is_left_out(archive: zipfile.ZipFile, name: str) -> bool:
    return name in OPTIONAL and name not in archive.namelist()


def _check_columns(path: str, entries: Mapping[str, zipfile.ZipInfo], count: int) -> None:
    """Raise UsageError for columns whose size does not fit ``count`` blocks, or that do not fit into memory."""
    for name, entry in entries.items():
        width = WIDTHS.get(name[len(FOLDER) :])
        is_wrong = entry.file_size > MAX_EXCEPTION_BYTES * count if width is None else entry.file_size != width * count
        if is_wrong:
            raise _refused(path, f"the file is damaged: {name} has the wrong size for {count:,} blocks")
    _check_room(path, COPIES * sum(entry.file_size for entry in entries.values()))


def _unpacked(source: _Source, entries: Mapping[str, zipfile.ZipInfo]) -> dict[str, bytes]:
    # Imported here, because most snapshots have no blocks.
    from concurrent.futures import ThreadPoolExecutor

    is_over = threading.Event()
    with ThreadPoolExecutor() as pool:
        try:
            reading = {name: pool.submit(_contents, source, entry, is_over) for name, entry in entries.items()}
            return {name: content.result() for name, content in reading.items()}
        finally:
            # The pool waits for its threads, so they must end after Ctrl-C, or after a thread failed.
            is_over.set()


def _document(source: _Source) -> dict[str, Any]:
    path, content = source.path, None
    try:
        with _archive(source) as archive:
            entry = _entry(path, archive, ENTRY)
    except OSError as error:
        raise _refused(path, error.strerror or str(error)) from None
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise _refused(path, f"the file is damaged, or not a snapshot: {error}") from None
    if entry.file_size > min(MAX_DOCUMENT_BYTES, DOCUMENT_SPARE + DOCUMENT_RATIO * entry.compress_size):
        raise _refused(path, f"the file claims to be larger than any snapshot: {ENTRY} has {entry.file_size:,} bytes")
    text = _contents(source, entry, threading.Event())
    # Each value in the JSON text, except the first one, follows one of these characters.
    _check_room(path, len(text) + NODE_BYTES * sum(map(text.count, (b",", b":", b"[", b"{"))))
    with suppress(ValueError):
        content = parsed(text)
    if not isinstance(content, dict):
        raise _refused(path, "the file is not a gdbheap snapshot")
    return content


def _check_room(path: str, size: int) -> None:
    if not copy_fits(size):
        room = f"only {room_for_copy() >> 20:,} MiB of memory may be used"
        raise _refused(path, f"unpacked it takes {size >> 20:,} MiB, and {room}: read it on a machine with more memory")


def _entry(path: str, archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    """Return an entry's record in the zip's directory. Raises UsageError if its size or compression is impossible."""
    try:
        entry = archive.getinfo(name)
    except KeyError:
        raise _refused(path, "the file is not a gdbheap snapshot") from None
    # Other methods need memory of their own: lzma's dictionary has the size that the entry states, up to 4 GiB.
    if entry.compress_type not in (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED):
        raise _refused(path, f"the file is damaged: {name} is packed by a method that no snapshot uses")
    if entry.file_size > DEFLATE_RATIO * entry.compress_size:
        raise _refused(path, f"the file is damaged: {name} claims to be larger than possible")
    return entry


def _contents(source: _Source, entry: zipfile.ZipInfo, is_over: threading.Event) -> bytes:
    """Return the bytes of an entry; stop early once ``is_over`` is set."""
    path, content = source.path, bytearray()
    try:
        with _archive(source) as archive, archive.open(entry) as stream:
            # zipfile compares the checksum at the end of the entry.
            while not is_over.is_set() and (piece := stream.read(PIECE)):
                content += piece
    except OSError as error:
        raise _refused(path, error.strerror or str(error)) from None
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        raise _refused(path, f"the file is damaged, or not a snapshot: {error}") from None
    return bytes(content)


def _refused(path: str, reason: str) -> UsageError:
    return UsageError(f"{one_line(path)}: {one_line(reason)}", [])
