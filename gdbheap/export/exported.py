"""Open the files of an export folder. Another user may own them and replace them at any time, so each file is opened
only once, and DuckDB reads the open descriptors.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import BinaryIO

from gdbheap import _native
from gdbheap.errors import UsageError, one_line
from gdbheap.export.declaration import PARQUET
from gdbheap.files import find_file, open_folder, open_inside, temporary_folder
from gdbheap.host import open_files

__all__ = ["ExportedFiles"]

# Partition folders that are nested more deeply are not read.
DEPTH = 32
# The most ranges of data of a file between which holes are skipped.
MOST_RANGES = 1 << 16


def data_ranges(descriptor: int, path: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of each range of a file that contains data, ascending. Holes are skipped: they take no disk
    space, and may be of any size. Behind MOST_RANGES ranges, the rest of the file is one range.

    A child process asks the kernel for the holes, because the kernel may wait without end for the lock of a file that
    another user's program holds. ``path``: the file's name for messages. Raises UsageError.
    """
    try:
        found = _native.data_extents(f"/proc/self/fd/{descriptor}", MOST_RANGES)
    except OSError as error:
        is_locked = isinstance(error, TimeoutError)
        reason = "another program holds the file's lock" if is_locked else one_line(error.strerror or error)
        raise UsageError(f"{one_line(path)}: {reason}") from None
    yield from found
    if len(found) == MOST_RANGES:
        yield found[-1][1], os.fstat(descriptor).st_size


class ExportedFiles:
    """The files of an export folder, kept open.

    ``paths``: the paths of the open descriptors.
    ``held``: for each path that ``hold`` or ``hold_parts`` returned, two facts about the file: its path in the folder,
    and its size on the disk in bytes.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.paths: list[str] = []
        self.held: dict[str, tuple[str, int]] = {}
        self._held = ExitStack()
        self._links: str | None = None
        try:
            self._number = open_folder(folder)
        except OSError as error:
            raise UsageError(f"{one_line(folder)}: {one_line(error.strerror or error)}") from None
        self._held.callback(os.close, self._number)

    def __enter__(self) -> ExportedFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def has(self, name: str) -> bool:
        """Return whether the folder has a file, folder or link of this name."""
        return find_file(f"/proc/self/fd/{self._number}/{name}", False) is not None

    def open(self, name: str) -> BinaryIO:
        """Open a file of the folder. Raises OSError, and UsageError if the file is a link or not a regular file."""
        return open_inside(self._number, name, os.path.join(self.folder, name))

    def hold(self, name: str) -> str | None:
        """Open a file and keep it open. Return a path that names the open descriptor; None if the folder has no file
        ``name``. Raises OSError, and UsageError if the file is a link or not a regular file."""
        try:
            file = self.open(name)
        except FileNotFoundError:
            return None
        path = self._keep(file)
        self.held[path] = (name, self._data_bytes(file, name))
        return path

    def hold_parts(self, name: str) -> list[str]:
        """Open all files of a table's partitions and keep them open. Return the paths of links to the open descriptors.

        Links in the export folder are not followed, because they may point anywhere."""
        open_files.allow_many()
        return list(self._parts(self._number, name, name, 0))

    def _parts(self, above: int, name: str, place: str, depth: int) -> Iterator[str]:
        with ExitStack() as opened, suppress(NotADirectoryError, FileNotFoundError, PermissionError):
            folder = open_folder(name, above)
            opened.callback(os.close, folder)
            entries = sorted(opened.enter_context(os.scandir(folder)), key=lambda entry: entry.name)
            for entry in entries:
                inside = f"{place}/{entry.name}"
                if entry.is_dir(follow_symlinks=False) and depth < DEPTH:
                    yield from self._parts(folder, entry.name, inside, depth + 1)
                elif entry.name.endswith(f".{PARQUET}") and entry.is_file(follow_symlinks=False):
                    file = open_inside(folder, entry.name, os.path.join(self.folder, inside))
                    link = self._linked(inside, self._keep(file))
                    self.held[link] = (inside, self._data_bytes(file, inside))
                    yield link

    def _keep(self, file: BinaryIO) -> str:
        self._held.enter_context(file)
        # DuckDB compares resolved paths, and a link to the open file resolves to this path.
        self.paths.append(f"/proc/self/fd/{file.fileno()}")
        return self.paths[-1]

    def _linked(self, inside: str, path: str) -> str:
        """Make a link to an open file and return its path. The link has the relative path ``inside`` in a private
        folder. The relative path is kept because it contains the values of the partition.
        """
        if self._links is None:
            self._links = self._held.enter_context(temporary_folder())
        link = os.path.join(self._links, inside)
        os.makedirs(os.path.dirname(link), exist_ok=True)
        os.symlink(path, link)
        return link

    def _data_bytes(self, file: BinaryIO, name: str) -> int:
        ranges = data_ranges(file.fileno(), os.path.join(self.folder, name))
        return sum(end - start for start, end in ranges)
