"""Write a recording to files of limited size and age. Older files are compressed, and the oldest are removed.

The rows are similar, so gzip compresses them well. If gdbheap was killed before it compressed a file, the uncompressed
file can be read as well.
"""

from __future__ import annotations

import dataclasses
import errno
import gzip
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from gdbheap.dataclass import dataclass
from gdbheap.errors import UsageError
from gdbheap.files import PRIVATE, HeldFolder, hold_folder_of, not_written, refused, replacing
from gdbheap.sampling.sample import Sample, Series, SeriesEvent
from gdbheap.sampling.series import STANDARD_OUTPUT, SeriesFile

__all__ = ["Rotation", "SeriesFiles"]


@dataclass(frozen=True)
class Rotation:
    """When to begin a new file.

    ``size``: the most bytes of a file, None for no limit.
    ``seconds``: the most seconds since the file's first row, None for no limit.
    ``keep``: how many older files to keep, None for all.
    """

    size: int | None = None
    seconds: float | None = None
    keep: int | None = None


class SeriesFiles:
    """The file to which rows are appended, and older files next to it. An older file is named after the time of its
    first row.

    All files are in the folder that ``path`` named at the beginning, even if a folder in the path is renamed. Raises
    the errors of SeriesFile.
    ``firsts``: a function that returns the rows with which each file begins, so that it can be read without the others.
    """

    def __init__(
        self,
        path: str,
        series: Series,
        rotation: Rotation,
        firsts: Callable[[], Iterable[SeriesEvent]],
        replace: bool = False,
        csv_safe: bool = False,
        mode: int = PRIVATE,
    ) -> None:
        self.path, self._series, self._rotation, self._firsts = path, series, rotation, firsts
        self._csv_safe, self._mode = csv_safe, mode
        self._rows, self._workers = 0, list[threading.Thread]()
        self._folder: HeldFolder | None = None
        if path != STANDARD_OUTPUT:
            self._folder, self._name = _hold(path)
        try:
            self._file = SeriesFile(path, series, csv_safe, mode, replace, self._folder)
        except BaseException:
            self._let_go()
            raise

    @property
    def rows(self) -> int:
        """The number of samples that were written."""
        return self._rows + self._file.rows

    @property
    def size(self) -> int:
        """The size in bytes of the file that is being written."""
        return self._file.size

    def add(self, row: Sample | SeriesEvent) -> None:
        """Write a sample or an event as the next row, if necessary in a new file. Raises GdbheapError."""
        if self._folder is not None and self._is_full:
            self._rotate(row, self._folder)
        self._file.add(row)

    def close(self) -> None:
        """Close the file, and wait until older files are compressed."""
        self._file.close()
        for worker in self._workers:
            worker.join()
        self._let_go()

    def _let_go(self) -> None:
        if self._folder is not None:
            self._folder.close()

    @property
    def _is_full(self) -> bool:
        size, seconds = self._rotation.size, self._rotation.seconds
        is_old = seconds is not None and time.time() - self._file.began >= seconds
        return is_old or (size is not None and self._file.size >= size)

    def _rotate(self, row: Sample | SeriesEvent, folder: HeldFolder) -> None:
        """Rename the file, begin a new one with the time of this row, and compress the old one in a thread."""
        older, source = self._set_aside(folder), os.dup(self._file.descriptor)
        self._rows += self._file.rows
        self._file.close()
        worker = threading.Thread(target=self._tidy, args=(folder, older, source))
        try:
            series = dataclasses.replace(self._series, time=row.time)
            self._file = SeriesFile(self.path, series, self._csv_safe, self._mode, folder=folder)
            self._file.base = row.offset
            for first in self._firsts():
                self._file.add(dataclasses.replace(first, time=row.time, offset=row.offset))
        finally:
            self._workers = [*(one for one in self._workers if one.is_alive()), worker]
            worker.start()

    def _set_aside(self, folder: HeldFolder) -> str:
        """Rename the file after the time of its first row, without replacing another file. Return its new name. Raises
        UsageError."""
        try:
            status = folder.status(self._name)
            if status is None or not os.path.samestat(status, os.fstat(self._file.descriptor)):
                raise refused(self.path, "another program has moved or replaced it")
            for number in range(1, 1000):
                older = _older_name(self._name, self._file.began, number)
                if folder.status(older) is None and folder.status(f"{older}.gz") is None:
                    # Some file systems cannot rename without replacing; the name was free a moment ago.
                    if not folder.take_new(folder.number, self._name, older):
                        os.rename(self._name, older, src_dir_fd=folder.number, dst_dir_fd=folder.number)
                    return older
            raise FileExistsError(errno.EEXIST, "all names for an older file are taken")
        except (OSError, ValueError) as error:
            raise not_written(self.path, error) from None

    def _tidy(self, folder: HeldFolder, older: str, descriptor: int) -> None:
        """Compress the file ``older``, which is open as ``descriptor``. Then remove the oldest files."""
        # If there is no room for the compressed file, the other one stays.
        with os.fdopen(descriptor, "rb") as source, suppress(OSError, UsageError):
            source.seek(0)
            with replacing(f"{older}.gz", self._mode, folder) as target:
                with gzip.GzipFile(filename="", mode="wb", fileobj=target) as packed:
                    shutil.copyfileobj(source, packed)
            status = folder.status(older)
            if status is not None and os.path.samestat(status, os.fstat(descriptor)):
                os.unlink(older, dir_fd=folder.number)
        if self._rotation.keep is not None:
            remove_oldest(folder, self._name, self._rotation.keep)


def _hold(path: str) -> tuple[HeldFolder, str]:
    try:
        return hold_folder_of(path)
    except (OSError, ValueError) as error:
        raise not_written(path, error) from None


def remove_oldest(folder: HeldFolder, name: str, keep: int) -> None:
    """Remove the older files of the series in the file ``name``, except the ``keep`` newest. Other users' files stay,
    and are not counted."""
    stem, ending = os.path.splitext(name)
    pattern = re.compile(rf"{re.escape(stem)}\.(\d{{8}}T\d{{6}}Z)(?:-(\d+))?{re.escape(ending)}(?:\.gz)?")
    with suppress(OSError):
        matches = (
            found for entry in folder.names() if (found := pattern.fullmatch(entry)) and folder.has_own_file(entry)
        )
        # While a file is compressed by another thread, it is there under two names.
        names: dict[tuple[str, int], list[str]] = {}
        for found in matches:
            names.setdefault((found[1], int(found[2] or 1)), []).append(found[0])
        for moment in sorted(names)[: max(0, len(names) - keep)]:
            for entry in names[moment]:
                os.unlink(entry, dir_fd=folder.number)


def _older_name(name: str, began: float, number: int) -> str:
    stem, ending = os.path.splitext(name)
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(began))
    return f"{stem}.{moment}{f'-{number}' if number > 1 else ''}{ending}"
