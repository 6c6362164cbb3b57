"""Files of a folder that an export wrote, whose owner may give their names to something else at any moment: each is
opened once, here, and DuckDB opens what we hold."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import BinaryIO

from gdbheap.errors import UsageError, one_line
from gdbheap.export.table_files import PARQUET
from gdbheap.files import find_file, open_folder, open_inside, temporary_folder
from gdbheap.host import open_files

__all__ = ["ExportedFiles"]

# Folders of partitions that are inside of one another, at most.
DEPTH = 32


def data_bytes(descriptor: int) -> int:
    """Return how many bytes of a file are not in holes, which take no room and may be as long as one likes."""
    found = at = 0
    size = os.fstat(descriptor).st_size
    # lseek(2): no data behind the last hole is ENXIO.
    with suppress(OSError):
        while at < size:
            start = os.lseek(descriptor, at, os.SEEK_DATA)
            at = os.lseek(descriptor, start, os.SEEK_HOLE)
            found += at - start
    return found


class ExportedFiles:
    """The files of an exported folder. ``paths`` lead to those that are held open; ``held``: (path in the folder, bytes
    on the disk) of each by what ``hold`` and ``hold_parts`` return."""

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
        """Return whether something in the folder has this name."""
        return find_file(f"/proc/self/fd/{self._number}/{name}", False) is not None

    def open(self, name: str) -> BinaryIO:
        """Open a file. Raises UsageError for a link, and for what is no regular file, OSError."""
        return open_inside(self._number, name, os.path.join(self.folder, name))

    def hold(self, name: str) -> str | None:
        """Return a path that leads to a file from now on; None for a name that is not there. Raises as ``open``."""
        try:
            file = self.open(name)
        except FileNotFoundError:
            return None
        path = self._keep(file)
        self.held[path] = (name, data_bytes(file.fileno()))
        return path

    def hold_parts(self, name: str) -> list[str]:
        """Return such paths for all files of partitions. A link may lead anywhere: none is followed."""
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
                    self.held[link] = (inside, data_bytes(file.fileno()))
                    yield link

    def _keep(self, file: BinaryIO) -> str:
        self._held.enter_context(file)
        # A link to it has the same path once it is resolved, by which DuckDB compares.
        self.paths.append(f"/proc/self/fd/{file.fileno()}")
        return self.paths[-1]

    def _linked(self, inside: str, path: str) -> str:
        """Return a link to a held file, below a private folder as it lies below ours: its path has the partition's
        values."""
        if self._links is None:
            self._links = self._held.enter_context(temporary_folder())
        link = os.path.join(self._links, inside)
        os.makedirs(os.path.dirname(link), exist_ok=True)
        os.symlink(path, link)
        return link
