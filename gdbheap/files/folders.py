"""A folder held by a descriptor: files are written into this folder even if a name on its path changes meanwhile."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection
from contextlib import suppress
from functools import partial
from types import TracebackType

from gdbheap.files.refusing import name_of_user, refused
from gdbheap.files.trust import OWN, SWAPPABLE, is_trusted, kind_of_folder, why_unsafe

__all__ = ["HeldFolder", "folder_mode", "hold", "random_name"]

STEP = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
MAX_LINKS = 40
RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2


def _renamed(source: int, one: str, target: int, other: str, flags: int) -> int:
    """Rename a file with renameat2(2). Return 0, or the errno: ENOSYS if the C library lacks the function."""
    # Imported on use: imports take most of a command's start-up time.
    import ctypes

    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return errno.ENOSYS
    done = rename(source, os.fsencode(one), target, os.fsencode(other), ctypes.c_uint(flags))
    return 0 if done == 0 else ctypes.get_errno()


class HeldFolder:
    """A folder held by an O_PATH descriptor.

    ``path``: the path by which it was opened; ``number``: the descriptor, which only serves to look up names in it."""

    def __init__(self, path: str, number: int) -> None:
        self.path, self.number = path, number
        self._kind = kind_of_folder(number, os.fstat(number))

    def __enter__(self) -> HeldFolder:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def again(self) -> HeldFolder:
        """Return the same folder, held by a second descriptor, so that each of the two can be closed on its own."""
        return HeldFolder(self.path, os.dup(self.number))

    def close(self) -> None:
        """Close the descriptor. A second call does nothing."""
        number, self.number = self.number, -1
        if number >= 0:
            os.close(number)

    @property
    def is_shared(self) -> bool:
        """Whether other users may add names to the folder, so that gdbheap must not replace their files there."""
        return self._kind != OWN

    @property
    def is_swappable(self) -> bool:
        """Whether another user may rename the files that gdbheap writes into the folder."""
        return self._kind == SWAPPABLE

    def check_writable(self) -> None:
        """Raise PermissionError if gdbheap may not create files in the folder (errno EROFS on a read-only file
        system)."""
        if not os.access(".", os.W_OK | os.X_OK, dir_fd=self.number):
            is_read_only = os.fstatvfs(self.number).f_flag & os.ST_RDONLY
            raise PermissionError(errno.EROFS if is_read_only else errno.EACCES, "it is not writable")

    def check(self, path: str) -> None:
        """Raise UsageError if untrusted users may put names into the folder. ``path``: the file to write, for the
        message."""
        if self._kind is None:
            raise refused(path, why_unsafe(os.readlink(f"/proc/self/fd/{self.number}"), os.fstat(self.number)))

    def status(self, name: str) -> os.stat_result | None:
        """Return the status of the entry ``name`` (for a link, the status of the link itself); None if there is
        none."""
        try:
            return os.stat(name, dir_fd=self.number, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def has_own_file(self, name: str) -> bool:
        """Return whether the entry ``name`` is a regular file that belongs to the user. Raises OSError."""
        status = self.status(name)
        return status is not None and stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()

    def names(self) -> list[str]:
        """Return the names of the folder's entries. Raises OSError."""
        return os.listdir(f"/proc/self/fd/{self.number}")

    def make(self, name: str, mode: int = 0o700) -> HeldFolder:
        """Create a subfolder with exactly this mode and return it, held open. Raises OSError."""
        os.mkdir(name, 0o700, dir_fd=self.number)
        made = self.find(name)
        # The user for whom sudo runs may replace the new folder by one of his own.
        if self.is_swappable and os.fstat(made.number).st_uid != os.geteuid():
            made.close()
            raise PermissionError(errno.EPERM, "another user replaced the folder that gdbheap had just made", name)
        if mode != 0o700:
            os.chmod(f"/proc/self/fd/{made.number}", mode)
        return made

    def find(self, name: str) -> HeldFolder:
        """Open an existing subfolder and return it, held open; a link is refused. Raises OSError."""
        return HeldFolder(os.path.join(self.path, name), _step(self.number, name))

    def exchange(self, one: str, other: str) -> bool:
        """Swap two names atomically; return False if the kernel or the file system cannot do that."""
        return _renamed(self.number, one, self.number, other, RENAME_EXCHANGE) == 0

    def take_new(self, source: int, one: str, name: str) -> bool:
        """Move the file ``one`` of the open folder ``source`` to ``name`` in this folder, atomically and without
        replacing a file. Return False if the kernel or the file system cannot do that. Raises FileExistsError."""
        error = _renamed(source, one, self.number, name, RENAME_NOREPLACE)
        if error == errno.EEXIST:
            raise FileExistsError(error, os.strerror(error), name)
        return error == 0

    def remove(self, name: str, kept: Collection[str] = ()) -> None:
        """Remove the subfolder ``name`` and its files, except those in ``kept``.

        Files that cannot be removed stay, without an error."""
        with suppress(OSError):
            number = _step(self.number, name)
            try:
                for entry in set(os.listdir(f"/proc/self/fd/{number}")).difference(kept):
                    os.unlink(entry, dir_fd=number)
            finally:
                os.close(number)
            os.rmdir(name, dir_fd=self.number)

    def sync(self) -> None:
        """Write the folder's entries to disk (fsync). Errors are ignored: some file systems forbid it."""
        with suppress(OSError):
            number = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.number)
            try:
                os.fsync(number)
            finally:
                os.close(number)


def random_name() -> str:
    """Return an unguessable file name, which a plain ``ls`` does not list."""
    return f".gdbheap-{os.urandom(8).hex()}.part"


def hold(path: str, folder: str, make: int | None = None) -> HeldFolder:
    """Open and return the folder into which the file ``path`` will be written.

    ``make``: the mode of the file; missing folders of the path are then created with a mode that suits it. Without
    ``make``, no folder is created. Raises OSError. Raises UsageError if a link in the path belongs to another user.
    Raises UsageError also if untrusted users may put names into the folder.
    """
    walk = _Walk(path, folder, make)
    try:
        walk.run()
        held = HeldFolder(folder, walk.number)
        held.check(path)
    except BaseException:
        os.close(walk.number)
        raise
    return held


def _step(number: int, name: str) -> int:
    return os.open(name, STEP | os.O_NOFOLLOW, dir_fd=number)


class _Walk:
    """A walk along a path. Each component is opened relative to the descriptor of the component before it.

    ``number``: the descriptor of the folder reached so far."""

    def __init__(self, path: str, folder: str, make: int | None) -> None:
        self._path, self._make = path, make
        self._links, self._is_foreign = 0, False
        self.number = os.open("/" if folder.startswith("/") else ".", STEP)
        self._left = _parts(folder)

    def run(self) -> None:
        """Open the folders of the path one after another, up to the last one. Raises UsageError, OSError."""
        while self._left:
            name = self._left.pop()
            try:
                self._go(_step(self.number, name))
            except FileNotFoundError:
                if self._make is None:
                    raise
                self._go(self._made(name, self._make))
            except NotADirectoryError:
                self._follow(name)

    def _go(self, number: int) -> None:
        os.close(self.number)
        self.number = number

    def _made(self, name: str, mode: int) -> int:
        here = HeldFolder(self._path, os.dup(self.number))
        with here:
            here.check(self._path)
            with suppress(FileExistsError):
                here.make(name, folder_mode(mode)).close()
        return _step(self.number, name)

    def _follow(self, name: str) -> None:
        link = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.number)
        try:
            status = os.fstat(link)
            if not stat.S_ISLNK(status.st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            is_proc = status.st_dev == os.stat("/proc").st_dev
            self._check_link(name, status, is_proc)
            self._take(name, os.readlink("", dir_fd=link), is_proc)
        finally:
            os.close(link)

    def _check_link(self, name: str, status: os.stat_result, is_proc: bool) -> None:
        """Raise UsageError for a link that another user may have put there, as the kernel's fs.protected_symlinks does
        in /tmp."""
        self._links += 1
        if self._links > MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if self._is_foreign:
            raise refused(self._path, f"{name} is a link in another process's file system: name the path behind it")
        if is_proc:
            self._check_process(name)
        is_own = kind_of_folder(self.number, os.fstat(self.number)) == OWN
        if not is_own and not (is_trusted(status.st_uid) and status.st_nlink == 1):
            owner = name_of_user(status.st_uid)
            raise refused(self._path, f"{name} is a link that belongs to {owner}: name the folder behind the link")

    def _check_process(self, name: str) -> None:
        """Raise UsageError for a link of another user's process. The process chooses its root and its current folder.
        The link's owner is no evidence: root owns the links of a process that is not dumpable."""
        for uid in _process_users(self.number):
            if not is_trusted(uid):
                owner = name_of_user(uid)
                raise refused(self._path, f"{name} is a link of a process of {owner}: name the folder behind the link")

    def _take(self, name: str, target: str, is_proc: bool) -> None:
        if (is_proc and target.startswith("/")) or not self._leads_to(name, target):
            # The kernel's own links, such as /proc/PID/root, may point into another tree of folders, not to the path in
            # their text.
            self._is_foreign = True
            self._go(os.open(name, STEP, dir_fd=self.number))
            return
        if target.startswith("/"):
            self._go(os.open("/", STEP))
        self._left += _parts(target)

    def _leads_to(self, name: str, target: str) -> bool:
        try:
            followed = os.stat(name, dir_fd=self.number)
        except FileNotFoundError:
            return True
        with suppress(OSError):
            return os.path.samestat(followed, os.stat(target, dir_fd=self.number))
        return False


def _process_users(folder: int) -> list[int]:
    """Return the user ids (real, effective, saved, file system) of the process whose folder in /proc is ``folder`` or
    contains it (``fd``); an empty list if there is no such process.
    """
    in_folder = partial(os.open, dir_fd=folder)
    for place in ("status", "../status"):
        with suppress(OSError), open(place, "rb", opener=in_folder) as file:
            line = next((line for line in file if line.startswith(b"Uid:")), b"")
            return [int(uid) for uid in line.split()[1:]]
    return []


def _parts(path: str) -> list[str]:
    """Return the components of a path, the last one first, so that the next one can be popped from the end."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def folder_mode(mode: int) -> int:
    """Return the mode of a folder for files of this mode. Users who may read the files may also list and enter the
    folder.
    """
    return mode | (mode & 0o444) >> 2
