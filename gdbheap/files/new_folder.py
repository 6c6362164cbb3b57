"""Folders: one that takes another's place as a whole, one that is made on the way, and private ones to work in."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
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
    """Check before something that takes time. Raises UsageError where a folder cannot be put there: there is no room
    for it, or something else than an older one with nothing but files that ``is_ours``."""
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
    """Return whether others may plant names in a folder; also where that cannot be found out."""
    try:
        with hold(folder, folder) as held:
            return held.is_shared
    except (OSError, ValueError, UsageError):
        return True


def _named(path: str) -> str:
    """Return the same folder with a name of its own at its end."""
    return path if os.path.basename(path) not in ("", ".", "..") else os.path.abspath(path)


def _check(path: str, parent: HeldFolder, name: str, is_ours: Callable[[str], bool]) -> bool:
    """Return whether an older folder is there. Raises UsageError where something is that is not replaced."""
    status = parent.status(name)
    if status is None:
        return False
    if not stat.S_ISDIR(status.st_mode):
        raise refused(path, "it is a link" if stat.S_ISLNK(status.st_mode) else "it is no folder")
    if parent.is_shared and status.st_uid != os.geteuid():
        raise refused(path, f"it belongs to {name_of_user(status.st_uid)}: choose another name")
    others = [entry for entry in _entries(parent, name) if not is_ours(entry)]
    if others:
        raise UsageError(f"{one_line(path)} is not replaced: it has other files, as {one_line(others[0])}")
    return True


def _entries(parent: HeldFolder, name: str) -> list[str]:
    number = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent.number)
    try:
        return os.listdir(number)
    finally:
        os.close(number)


@contextmanager
def replacing_folder(path: str, is_ours: Callable[[str], bool], mode: int = PRIVATE) -> Iterator[str]:
    """Make a new folder to write files into in this block, which then takes the place of ``path``, and of an older one
    with nothing but files that ``is_ours``. Raises UsageError for an OSError or a ValueError of the block."""
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
    """Give where to write: the new folder; elsewhere, where another user could put a folder of his in its place. SQLite
    opens its files by their names."""
    if not parent.is_swappable:
        yield f"/proc/self/fd/{made.number}"
        return
    with temporary_folder() as folder:
        yield folder
        for entry in os.listdir(folder):
            _copy(os.path.join(folder, entry), made, entry)


def _copy(source: str, folder: HeldFolder, name: str) -> None:
    number = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE, dir_fd=folder.number)
    with open(source, "rb") as read, open(number, "wb") as written:
        shutil.copyfileobj(read, written, 1 << 20)


def _settle(folder: HeldFolder, mode: int) -> None:
    """Have the disk keep its files, with this mode."""
    for entry in os.listdir(f"/proc/self/fd/{folder.number}"):
        number = os.open(entry, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder.number)
        try:
            status = os.fstat(number)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
                raise PermissionError(errno.EPERM, "a new folder has something else than new files in it", entry)
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
    """Put the new folder into the place of an older one, which is removed afterwards under one of the other names."""
    is_there = _check(path, parent, name, is_ours)
    if is_there and parent.exchange(beside, name):
        return
    if is_there:
        os.rename(name, older, src_dir_fd=parent.number, dst_dir_fd=parent.number)
    os.rename(beside, name, src_dir_fd=parent.number, dst_dir_fd=parent.number)


def check_place(folder: str) -> None:
    """Check a folder, which is there, before something that takes time. Raises UsageError where no files can be written
    into it."""
    try:
        with hold(folder, folder) as held:
            held.check_writable()
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise no_place(folder, folder, error) from None
    except (OSError, ValueError) as error:
        raise not_written(folder, error) from None


def make_folder(path: str, mode: int = PRIVATE) -> None:
    """Make a folder, and those above it that are missing, for files of this mode. Raises UsageError."""
    try:
        hold(path, path, mode).close()
    except (OSError, ValueError) as error:
        raise not_written(path, error) from None


class PrivateFolder:
    """A folder with files of ours, which nobody else may write to. ``inside``: its path for us, by its descriptor,
    whatever becomes of its name."""

    def __init__(self, path: str, is_new: bool) -> None:
        """``is_new``: it is made. Raises FileExistsError, FileNotFoundError, UsageError, OSError, ValueError."""
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
            raise refused(path, "it is a folder that others may write to")

    def close(self) -> None:
        """Let it go; its files stay."""
        self._held.close()
        self._parent.close()

    def remove(self, kept: Collection[str] = ()) -> None:
        """Remove it and its files, as far as that is possible; it stays with files that are ``kept``."""
        self._parent.remove(self._name, kept)


@contextmanager
def working_folder(path: str) -> Iterator[str]:
    """Make a private folder inside ``path`` for this block; its files are gone afterwards, unless they were moved.
    Raises UsageError where that is not possible."""
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
    """Make a private folder for files that are opened by name, where nobody else can put one of his in its place:
    in TMPDIR, if that is such a folder. Raises OSError."""
    with tempfile.TemporaryDirectory(prefix="gdbheap-", dir=_safe_place()) as folder:
        yield folder


def _safe_place() -> str:
    for place in (tempfile.gettempdir(), *WHERE):
        try:
            with hold(place, place) as held:
                if not held.is_swappable:
                    return place
        except (UsageError, OSError, ValueError):
            continue
    raise FileNotFoundError(errno.ENOENT, f"there is no folder for temporary files: none of {', '.join(WHERE)} is safe")
