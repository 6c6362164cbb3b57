"""New files. Each file is written under a random name. It gets its final name once the file or its first part is
complete.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import BinaryIO

from gdbheap.files.folders import HeldFolder, hold, random_name
from gdbheap.files.refusing import PRIVATE, name_of_user, no_place, not_written, refused
from gdbheap.files.special import duplicate, is_special, open_special, own_descriptor, why_not_special

__all__ = ["NewFile", "check_writable", "hold_folder_of", "replacing", "settle", "write_bytes", "write_text"]

NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# How often to try again if another user keeps creating and removing a file with the wanted name.
ROUNDS = 100


class NewFile:
    """A file that is written through ``descriptor`` under a random name; ``put`` renames it to ``path``.

    If ``path`` is one of gdbheap's own descriptors, a device or a pipe, the data is written directly to it. ``folder``:
    the folder of the file, if it is already held. Raises OSError, ValueError, and UsageError if ``path`` may not be
    written.
    """

    def __init__(self, path: str, mode: int = PRIVATE, folder: HeldFolder | None = None) -> None:
        self.path = path
        self._mode, self._beside = mode, ""
        number = own_descriptor(path) if folder is None else None
        self._folder: HeldFolder | None = None
        if number is not None:
            self.descriptor = duplicate(path, number)
            return
        self._folder, self._name = hold_folder_of(path) if folder is None else (folder.again(), os.path.basename(path))
        try:
            self.descriptor = self._opened(self._folder)
        except BaseException:
            self._folder.close()
            raise

    def _opened(self, folder: HeldFolder) -> int:
        status = _checked(self.path, folder, self._name)
        if status is not None and is_special(status):
            return open_special(self.path, folder, self._name, status)
        beside = random_name()
        number = os.open(beside, NEW, PRIVATE, dir_fd=folder.number)
        self._beside = beside
        return number

    def __enter__(self) -> NewFile:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def put(self) -> None:
        """Sync the file and rename it to ``path``. Raises UsageError, OSError."""
        if self._folder is not None and self._beside:
            os.fsync(self.descriptor)
            _place(self.path, self._beside, self._folder.number, self._folder, self._name)
            self._beside = ""
            _open_to_others(self.descriptor, self._mode)
            self._folder.sync()

    def close(self) -> None:
        """Close the file, and remove it if ``put`` did not rename it. A second call does nothing."""
        number, self.descriptor = self.descriptor, -1
        if number >= 0:
            os.close(number)
        if self._folder is not None and self._folder.number >= 0:
            with suppress(OSError):
                if self._beside:
                    os.unlink(self._beside, dir_fd=self._folder.number)
            self._folder.close()


def hold_folder_of(path: str) -> tuple[HeldFolder, str]:
    """Hold the folder of a file, and return (folder, the file's name in it).

    Raises UsageError if ``path`` names a folder. Raises the errors of ``hold``.
    """
    folder, name = os.path.split(path)
    if name in ("", ".", ".."):
        raise refused(path, "it is a folder" if path else "the path is empty")
    return hold(path, folder or "."), name


def _open_to_others(number: int, mode: int) -> None:
    if mode != PRIVATE:
        os.fchmod(number, mode)


def _checked(path: str, folder: HeldFolder, name: str) -> os.stat_result | None:
    """Return the status of the file ``name`` in ``folder``; None if there is none.

    Raises UsageError if the file may not be replaced or written.
    """
    status = folder.status(name)
    reason = None if status is None else _why_not(folder, status)
    if reason:
        raise refused(path, reason)
    return status


def _why_not(folder: HeldFolder, status: os.stat_result) -> str | None:
    if stat.S_ISDIR(status.st_mode):
        return "it is a folder"
    if is_special(status):
        return why_not_special(status)
    if stat.S_ISLNK(status.st_mode) and status.st_uid != os.geteuid():
        return f"it is a link that belongs to {name_of_user(status.st_uid)}: choose another name"
    if stat.S_ISLNK(status.st_mode):
        return "it is a link: name the file that the link leads to, or remove the link"
    if folder.is_shared and status.st_uid != os.geteuid():
        return f"it belongs to {name_of_user(status.st_uid)}: choose another name"
    if folder.is_shared and status.st_nlink != 1:
        return "it has another name elsewhere (a hard link): choose another name"
    return None


def _place(path: str, beside: str, source: int, folder: HeldFolder, name: str, is_new: bool = False) -> None:
    """Rename the file ``beside`` to ``name``. In a shared folder, a file that another user has put there meanwhile is
    not replaced.

    Raises UsageError if ``name`` may not be replaced. ``is_new``: replace no file, and raise FileExistsError instead.
    """
    if is_new:
        return _link(beside, source, folder, name)
    for _ in range(ROUNDS):
        status = _checked(path, folder, name)
        if status is not None and is_special(status):
            raise refused(path, "a device or a pipe has replaced it meanwhile")
        if status is None and folder.is_shared:
            try:
                _link(beside, source, folder, name)
            except FileExistsError:
                continue
        else:
            os.rename(beside, name, src_dir_fd=source, dst_dir_fd=folder.number)
        return
    raise refused(path, "another program keeps creating files of that name")


def _link(beside: str, source: int, folder: HeldFolder, name: str) -> None:
    """Rename the file ``beside`` to ``name``, but never over another file. Raises FileExistsError, OSError."""
    if folder.take_new(source, beside, name):
        return
    try:
        # If gdbheap is killed before the unlink below, the file has both names.
        os.link(beside, name, src_dir_fd=source, dst_dir_fd=folder.number, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:
        # Some file systems have no hard links.
        os.rename(beside, name, src_dir_fd=source, dst_dir_fd=folder.number)
        return
    os.unlink(beside, dir_fd=source)


def check_writable(path: str) -> None:
    """Raise UsageError or NotPermitted if ``path`` cannot be written. It shows this before work that takes long."""
    try:
        number = own_descriptor(path)
        if number is not None:
            os.close(duplicate(path, number))
            return
        folder, name = hold_folder_of(path)
        with folder:
            status = _checked(path, folder, name)
            if status is None or not is_special(status):
                folder.check_writable()
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise no_place(path, os.path.dirname(path), error) from None
    except (OSError, ValueError) as error:
        raise not_written(path, error) from None


@contextmanager
def replacing(path: str, mode: int = PRIVATE, folder: HeldFolder | None = None) -> Iterator[BinaryIO]:
    """Yield a binary stream whose content replaces ``path`` when the block ends.

    ``folder``: the folder of the file, if it is already held.
    Raises UsageError if ``path`` may not be written; an OSError or ValueError in the block becomes a UsageError too."""
    try:
        with NewFile(path, mode, folder) as new:
            with open(new.descriptor, "wb", closefd=False) as stream:
                yield stream
            new.put()
    except (OSError, ValueError) as error:
        raise not_written(path, error) from None


def settle(source: str, path: str, mode: int = PRIVATE, make: bool = False, is_new: bool = False) -> None:
    """Move the file ``source`` to ``path`` under the rules for a new file. The folder of ``source`` must be one to
    which only gdbheap writes.

    ``make``: create missing folders of the path. Raises UsageError. ``is_new``: replace no file, and raise
    FileExistsError instead."""
    name = os.path.basename(path)
    try:
        number = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        inside = os.open(os.path.dirname(source), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fchmod(number, mode)
            os.fsync(number)
            with hold(path, os.path.dirname(path) or ".", mode if make else None) as folder:
                _place(path, os.path.basename(source), inside, folder, name, is_new)
                folder.sync()
        finally:
            os.close(number)
            os.close(inside)
    except FileExistsError:
        raise
    except (OSError, ValueError) as error:
        raise not_written(path, error) from None


def write_bytes(path: str, data: bytes, mode: int = PRIVATE) -> None:
    """Write a file completely or not at all. Raises UsageError if that is not possible."""
    with replacing(path, mode) as stream:
        stream.write(data)


def write_text(path: str, text: str, mode: int = PRIVATE) -> None:
    """Write a text in UTF-8, completely or not at all. Raises UsageError if that is not possible."""
    write_bytes(path, text.encode("utf-8"), mode)
