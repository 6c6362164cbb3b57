"""The file of a snapshot: a zip with one JSON document, so that other programs can read it (docs/snapshots.md).

Each entry of a zip has a checksum, by which damage is noticed."""

from __future__ import annotations

import json
import zipfile
import zlib
from contextlib import suppress
from typing import Any

from gdbheap import _native
from gdbheap.answers.records import SCHEMA, from_json, to_json
from gdbheap.errors import UsageError, one_line
from gdbheap.files import PRIVATE, open_to_read, replacing
from gdbheap.history.blocks import COLUMNS, HOLDERS, OFFSETS, WIDTHS, columns_of
from gdbheap.history.snapshot import Look, Snapshot

__all__ = ["is_snapshot", "read", "write"]

ENTRY = "snapshot.json"
FORMAT = "gdbheap snapshot"
MAGIC = b"PK\x03\x04"
MAX_DOCUMENT_BYTES = 256 << 20
COMPRESSION_LEVEL, COLUMN_LEVEL = 6, 1
FOLDER = "blocks/"
# Older files do not have them.
OPTIONAL = (f"{FOLDER}{OFFSETS}",)
# Each number that does not fit into its column has eight bytes.
MAX_EXCEPTION_BYTES = 8
# More than any process has; a file that claims as many is read into memory before it is found out.
MAX_BLOCKS = 1 << 31


def write(path: str, look: Look, mode: int = PRIVATE) -> None:
    """Write a snapshot. Raises UsageError where that is not possible."""
    keys = {"format": FORMAT, "schema": SCHEMA, **to_json(look.snapshot)}
    text = json.dumps(keys, default=to_json, separators=(",", ":"))
    with (
        replacing(path, mode) as stream,
        zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, True, COMPRESSION_LEVEL) as archive,
    ):
        archive.writestr(ENTRY, text)
        for name in _columns_in(look.snapshot):
            # The columns are many and their bytes alike: a higher level costs three times as long for a fifth.
            column = getattr(look.columns, name)
            archive.writestr(f"{FOLDER}{name}", column, zipfile.ZIP_DEFLATED, COLUMN_LEVEL)


def _columns_in(snapshot: Snapshot) -> tuple[str, ...]:
    """The entries with columns that its file has."""
    if snapshot.blocks is None:
        return ()
    return (*COLUMNS, OFFSETS) if snapshot.blocks.holders is None else (*COLUMNS, OFFSETS, HOLDERS)


def is_snapshot(path: str) -> bool:
    """Whether a file begins as one."""
    try:
        with open_to_read(path) as stream:
            return stream.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError, UsageError):
        return False


def read(path: str) -> Look:
    """Raises UsageError, with one line, for a file that is missing, damaged, somebody else's, or newer."""
    content = _document(path)
    if content.get("format") != FORMAT:
        raise _refused(path, "it is no snapshot of gdbheap's")
    schema = content.get("schema")
    if not isinstance(schema, int) or schema > SCHEMA:
        raise _refused(path, f"it was written by a newer gdbheap (format {schema}, known is {SCHEMA})")
    try:
        found = from_json(Snapshot, content)
    except UsageError as error:
        raise _refused(path, f"it is damaged: {error}") from None
    return Look(found, _columns(path, found) if found.blocks is not None else None)


def _columns(path: str, snapshot: Snapshot) -> _native.BlockColumns:
    """The blocks, as many as the document says."""
    table = snapshot.blocks
    count = sum(table.counts) if table is not None else 0
    if table is None or min(table.counts, default=0) < 0 or count > MAX_BLOCKS:
        raise _refused(path, "it is damaged: it claims to have more blocks than any process")
    sizes = {name: WIDTHS.get(name, MAX_EXCEPTION_BYTES) * count for name in _columns_in(snapshot)}
    # Imported where it is needed: most snapshots have no blocks.
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor() as pool:
        read = [pool.submit(_entry, path, f"{FOLDER}{name}", most) for name, most in sizes.items()]
        columns = {name: entry.result() for name, entry in zip(sizes, read)}
    try:
        return columns_of(table, [columns.get(name, b"") for name in (*COLUMNS, HOLDERS, OFFSETS)])
    except ValueError as error:
        raise _refused(path, f"it is damaged: {error}") from None


def _document(path: str) -> dict[str, Any]:
    content = None
    with suppress(ValueError):
        content = json.loads(_entry(path, ENTRY, MAX_DOCUMENT_BYTES))
    if not isinstance(content, dict):
        raise _refused(path, "it is no snapshot of gdbheap's")
    return content


def _entry(path: str, name: str, most: int) -> bytes:
    """An entry of at most that many bytes, whatever it claims."""
    try:
        with open_to_read(path) as file, zipfile.ZipFile(file) as archive:
            if name in OPTIONAL and name not in archive.namelist():
                return b""
            entry = archive.getinfo(name)
            if entry.file_size > most:
                raise _refused(path, "it claims to be larger than any snapshot")
            with archive.open(entry) as stream:
                # The checksum is compared where the end is met.
                return stream.read(most + 1)
    except OSError as error:
        raise _refused(path, error.strerror or str(error)) from None
    except KeyError:
        raise _refused(path, "it is no snapshot of gdbheap's") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        raise _refused(path, f"it is damaged, or no snapshot: {error}") from None


def _refused(path: str, reason: str) -> UsageError:
    return UsageError(f"{one_line(path)}: {one_line(reason)}")
