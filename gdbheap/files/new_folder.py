"""Folders: replace a folder as a whole, create missing folders, and make private working folders."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from gdbheap.errors import UsageError, one_line
from gdbheap.files.folders import HeldFolder, folder_mode, hold, random_name
from gdbheap.files.refusing import PRIVATE, name_of_user, no_place, not_written, refused

__all__ = [
    "PrivateFolder",
    "check_folder",
    "check_place",
    "is_shared",
    "make_folder",
    "replacing_folder",
    "temporary_folder",
    "working_folder",
]

WHERE = ("/tmp", "/var/tmp")
OTHERS = stat.S_IWGRP | stat.S_IWOTH


def check_folder(path: str, is_ours: Callable[[str], bool]) -> None:
    """Check that a folder can be written at ``path``, before work that takes long.

    An existing ``path`` must be a folder with only those files for which ``is_ours`` is true. Raises UsageError, or
    NotPermitted if the parent folder is not writable."""
    above, name = os.path.split(_named(path))
    try:
        with hold(path, above or ".") as parent:
            parent.check_writable()
            _check(path, parent, name, is_ours)
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise no_place(path, above, error) from None
    except (OSError, ValueError) as error:
        raise not_written(path, error) from None


def is_shared(folder: str) -> bool:
    """Return whether other users may add names to a folder; True if that is unknown. gdbheap must not replace their
    files.
    """
    try:
        with hold(folder, folder) as held:
            return held.is_shared
    except (OSError, ValueError, UsageError):
        return True


def _named(path: str) -> str:
    """Return a path to the same folder that ends in a name. A path that ends in "/", "." or ".." is made absolute."""
    return path if os.path.basename(path) not in ("", ".", "..") else os.path.abspath(path)


def _check(path: str, parent: HeldFolder, name: str, is_ours: Callable[[str], bool]) -> bool:
    """Return whether an older folder named ``name`` exists in ``parent``.

    Raises UsageError if this folder, or another kind of file there, may not be replaced.
    """
    status = parent.status(name)
    if status is None:
        return False
    if not stat.S_ISDIR(status.st_mode):
        raise refused(path, "it is a link" if stat.S_ISLNK(status.st_mode) else "it is not a folder")
    if parent.is_shared and status.st_uid != os.geteuid():
        raise refused(path, f"it belongs to {name_of_user(status.st_uid)}: choose another name")
    others = [entry for entry in _entries(parent, name) if not is_ours(entry)]
    if others:
        raise UsageError(
            f"{one_line(path)} is not replaced, because it has files that gdbheap did not make, such as "
            f"{one_line(others[0])}"
        )
    return True


def _entries(parent: HeldFolder, name: str) -> list[str]:
    number = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent.number)
    try:
        return os.listdir(number)
    finally:
        os.close(number)


@contextmanager
def replacing_folder(path: str, is_ours: Callable[[str], bool], mode: int = PRIVATE) -> Iterator[str]:
    """Yield a new folder to write files into, which replaces ``path`` when the block ends.

    An older folder at ``path`` is replaced only if it holds nothing but files for which ``is_ours`` is true. Raises
    UsageError; an OSError or ValueError in the block becomes a UsageError too."""
    above, name = os.path.split(_named(path))
    beside, older = random_name(), random_name()
    try:
        with hold(path, above or ".") as parent:
            try:
                with parent.make(beside) as made:
                    yield from _filled(parent, made)
                    _settle(made, mode)
                _exchange(path, parent, name, beside, older, is_ours)
                parent.sync()
            finally:
                if parent.status(older) is not None and parent.status(name) is None:
                    os.rename(older, name, src_dir_fd=parent.number, dst_dir_fd=parent.number)
                parent.remove(beside)
                parent.remove(older)
    except (OSError, ValueError) as error:
        raise not_written(path, error) from None


def _filled(parent: HeldFolder, made: HeldFolder) -> Iterator[str]:
    """Yield the path of the folder to write into.

    Usually this is the new folder ``made``. A temporary folder is used if another user could replace ``made``, because
    SQLite opens its files by name. The files are then copied into ``made``.
    """
    if not parent.is_swappable:
        yield f"/proc/self/fd/{made.number}"
        return
    with temporary_folder() as folder:
        yield folder
        for entry in os.listdir(folder):
            _copy(os.path.join(folder, entry), made, entry)


def _copy(source: str, folder: HeldFolder, name: str) -> None:
    number = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE, dir_fd=folder.number)
    # Imported here, as few runs need it.
    import shutil

    with open(source, "rb") as read, open(number, "wb") as written:
        shutil.copyfileobj(read, written, 1 << 20)


def _settle(folder: HeldFolder, mode: int) -> None:
    """Check that the folder holds only new regular files, set their mode, and sync them and the folder to disk."""
    for entry in folder.names():
        number = os.open(entry, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder.number)
        try:
            status = os.fstat(number)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
                raise PermissionError(errno.EPERM, "the new folder contains a file not made by gdbheap", entry)
            os.fchmod(number, mode)
            os.fsync(number)
        finally:
            os.close(number)
    if mode != PRIVATE:
        os.chmod(f"/proc/self/fd/{folder.number}", folder_mode(mode))
    folder.sync()


def _exchange(
    path: str, parent: HeldFolder, name: str, beside: str, older: str, is_ours: Callable[[str], bool]
) -> None:
    """Rename the new folder ``beside`` to ``name``, where an older folder may be.

    The older folder is then named ``beside`` if names can be swapped, otherwise ``older``. The caller removes it.
    """
    is_there = _check(path, parent, name, is_ours)
    if is_there and parent.exchange(beside, name):
        return
    if is_there:
        os.rename(name, older, src_dir_fd=parent.number, dst_dir_fd=parent.number)
    os.rename(beside, name, src_dir_fd=parent.number, dst_dir_fd=parent.number)


def check_place(folder: str) -> None:
    """Check that files can be written into an existing folder, before work that takes long. Raises UsageError or
    NotPermitted if that is not possible.
    """
    try:
        with hold(folder, folder) as held:
            held.check_writable()
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise no_place(folder, folder, error) from None
    except (OSError, ValueError) as error:
        raise not_written(folder, error) from None


def make_folder(path: str, mode: int = PRIVATE) -> None:
    """Create a folder and its missing parent folders, for files of this mode. Raises UsageError."""
    try:
        hold(path, path, mode).close()
    except (OSError, ValueError) as error:
        raise not_written(path, error) from None


class PrivateFolder:
    """A folder of gdbheap's own files, to which nobody else may write.

    ``inside``: a path through the open descriptor, which stays valid when the folder is renamed."""

    def __init__(self, path: str, is_new: bool) -> None:
        """Create the folder if ``is_new``, else open it. Raises FileExistsError, FileNotFoundError, UsageError,
        OSError, ValueError."""
        above, self._name = os.path.split(path)
        self._parent = hold(path, above or ".")
        try:
            self._held = self._parent.make(self._name) if is_new else self._parent.find(self._name)
            self._check(path)
        except BaseException:
            self._parent.close()
            raise
        self.inside = f"/proc/self/fd/{self._held.number}"

    def _check(self, path: str) -> None:
        status = os.fstat(self._held.number)
        if status.st_uid != os.geteuid() or status.st_mode & OTHERS:
            self._held.close()
            raise refused(path, "other users own this folder or may write to it")

    def close(self) -> None:
        """Close the descriptors; the files stay."""
        self._held.close()
        self._parent.close()

    def remove(self, kept: Collection[str] = ()) -> None:
        """Remove the folder and its files, as far as possible. Files in ``kept`` stay, and so does a folder with such
        files."""
        self._parent.remove(self._name, kept)


@contextmanager
def working_folder(path: str) -> Iterator[str]:
    """Create a private folder inside ``path`` and yield its path. When the block ends, the folder and the files still
    in it are removed. Raises UsageError if the folder cannot be created."""
    try:
        folder = PrivateFolder(os.path.join(path, random_name()), True)
    except (OSError, ValueError) as error:
        raise not_written(path, error) from None
    try:
        yield folder.inside
    finally:
        folder.remove()
        folder.close()


@contextmanager
def temporary_folder() -> Iterator[str]:
    """Create a private temporary folder for files that are opened by name, and yield its path.

    It is created where nobody else can replace it: in TMPDIR if that is safe, else in /tmp or /var/tmp. Raises OSError.
    """
    # Imported here, as few runs need it.
    import tempfile

    with tempfile.TemporaryDirectory(prefix="gdbheap-", dir=_safe_place(tempfile.gettempdir())) as folder:
        yield folder


def _safe_place(preferred: str) -> str:
    for place in (preferred, *WHERE):
        try:
            with hold(place, place) as held:
                if not held.is_swappable:
                    return place
        except (UsageError, OSError, ValueError):
            continue
    raise FileNotFoundError(errno.ENOENT, f"no folder is safe for temporary files, not even {' or '.join(WHERE)}")
