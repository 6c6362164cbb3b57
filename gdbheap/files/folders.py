"""A folder that is held by a descriptor: whatever becomes of the names on its path, files go into this one."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection
from contextlib import suppress
from types import TracebackType

from gdbheap.files.refusing import name_of_user, refused
from gdbheap.files.trust import OWN, SWAPPABLE, is_trusted, kind_of_folder, why_unsafe

__all__ = ["HeldFolder", "folder_mode", "hold", "random_name"]

STEP = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
MAX_LINKS = 40
RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2


def _renamed(source: int, one: str, target: int, other: str, flags: int) -> int:
    """Rename by renameat2(2); return the error's number, 0 without one."""
    # Imported where it is needed: a command's start is mostly imports.
    import ctypes

    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return errno.ENOSYS
    done = rename(source, os.fsencode(one), target, os.fsencode(other), ctypes.c_uint(flags))
    return 0 if done == 0 else ctypes.get_errno()


class HeldFolder:
    """``path``: how it was named; ``number``: its descriptor, which only leads to names in it (O_PATH)."""

    def __init__(self, path: str, number: int) -> None:
        self.path, self.number = path, number
        self._kind = kind_of_folder(number, os.fstat(number))

    def __enter__(self) -> HeldFolder:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Let it go; harmless a second time."""
        number, self.number = self.number, -1
        if number >= 0:
            os.close(number)

    @property
    def is_shared(self) -> bool:
        """Whether others may add names, so that one that is not ours is left alone."""
        return self._kind != OWN

    @property
    def is_swappable(self) -> bool:
        """Whether another user may rename what we put there."""
        return self._kind == SWAPPABLE

    def check_writable(self) -> None:
        """Raise PermissionError where we may not put names into it, of EROFS where nobody may."""
        if not os.access(".", os.W_OK | os.X_OK, dir_fd=self.number):
            is_read_only = os.fstatvfs(self.number).f_flag & os.ST_RDONLY
            raise PermissionError(errno.EROFS if is_read_only else errno.EACCES, "it is not writable")

    def check(self, path: str) -> None:
        """Raise UsageError where others may plant names; ``path``: the file that is to be written there."""
        if self._kind is None:
            raise refused(path, why_unsafe(os.readlink(f"/proc/self/fd/{self.number}"), os.fstat(self.number)))

    def status(self, name: str) -> os.stat_result | None:
        """Return what a name stands for, itself where it is a link; None where nothing has it."""
        try:
            return os.stat(name, dir_fd=self.number, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def make(self, name: str, mode: int = 0o700) -> HeldFolder:
        """Make a folder in it, of exactly this mode, and hold that. Raises OSError."""
        os.mkdir(name, 0o700, dir_fd=self.number)
        made = self.find(name)
        # Sudo's user may swap the new folder for one of his own.
        if self.is_swappable and os.fstat(made.number).st_uid != os.geteuid():
            made.close()
            raise PermissionError(errno.EPERM, "another user put a folder in the place of a new one", name)
        if mode != 0o700:
            os.chmod(f"/proc/self/fd/{made.number}", mode)
        return made

    def find(self, name: str) -> HeldFolder:
        """Hold a folder in it, which is no link. Raises OSError."""
        return HeldFolder(os.path.join(self.path, name), _step(self.number, name))

    def exchange(self, one: str, other: str) -> bool:
        """Let two names change places at once; False where the kernel or the file system cannot do that."""
        return _renamed(self.number, one, self.number, other, RENAME_EXCHANGE) == 0

    def take_new(self, source: int, one: str, name: str) -> bool:
        """Rename a file of the open folder ``source`` into this one at once, never over another; False where the kernel
        or the file system cannot do that. Raises FileExistsError."""
        error = _renamed(source, one, self.number, name, RENAME_NOREPLACE)
        if error == errno.EEXIST:
            raise FileExistsError(error, os.strerror(error), name)
        return error == 0

    def remove(self, name: str, kept: Collection[str] = ()) -> None:
        """Remove a folder with nothing but files in it, as far as that is possible, without those that are ``kept``."""
        with suppress(OSError):
            number = _step(self.number, name)
            try:
                for entry in set(os.listdir(f"/proc/self/fd/{number}")).difference(kept):
                    os.unlink(entry, dir_fd=number)
            finally:
                os.close(number)
            os.rmdir(name, dir_fd=self.number)

    def sync(self) -> None:
        """Have the disk know its names, where the file system and our rights allow it."""
        with suppress(OSError):
            number = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.number)
            try:
                os.fsync(number)
            finally:
                os.close(number)


def random_name() -> str:
    """Return a name that nobody guesses, hidden from a plain ``ls``."""
    return f".gdbheap-{os.urandom(8).hex()}.part"


def hold(path: str, folder: str, make: int | None = None) -> HeldFolder:
    """Hold ``folder``, into which ``path`` is to be written. ``make``: folders on the way that are missing are made,
    for files of that mode. Raises UsageError where a link on the way is another user's, or where others may plant names
    in the folder; OSError."""
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
    """One component after the other, each by the descriptor of the one before. ``number``: where it is."""

    def __init__(self, path: str, folder: str, make: int | None) -> None:
        self._path, self._make = path, make
        self._links, self._is_foreign = 0, False
        self.number = os.open("/" if folder.startswith("/") else ".", STEP)
        self._left = _parts(folder)

    def run(self) -> None:
        """Go to the end. Raises UsageError, OSError."""
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
            self._check_link(name, status)
            self._take(name, os.readlink("", dir_fd=link), status.st_dev == os.stat("/proc").st_dev)
        finally:
            os.close(link)

    def _check_link(self, name: str, status: os.stat_result) -> None:
        """Raise for a link that others may have planted, as the kernel's fs.protected_symlinks does in /tmp."""
        self._links += 1
        if self._links > MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if self._is_foreign:
            raise refused(self._path, f"{name} is a link in another process's file system: name where it leads")
        is_own = kind_of_folder(self.number, os.fstat(self.number)) == OWN
        if not is_own and not (is_trusted(status.st_uid) and status.st_nlink == 1):
            owner = name_of_user(status.st_uid)
            raise refused(self._path, f"{name} is a link that belongs to {owner}: name the folder that it leads to")

    def _take(self, name: str, target: str, is_proc: bool) -> None:
        if (is_proc and target.startswith("/")) or not self._leads_to(name, target):
            # The kernel's own links, such as /proc/PID/root, lead where their text need not: into another tree.
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


def _parts(path: str) -> list[str]:
    """Return the components, the first one last."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def folder_mode(mode: int) -> int:
    """Return the mode of a folder for files of this mode: who may read these may look them up."""
    return mode | (mode & 0o444) >> 2
