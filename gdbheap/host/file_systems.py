"""File systems behind a process's mappings, and a safe way to open files by paths that a target names.

The owner of a FUSE file system, or of an overlay above one, can make a read wait without end.
"""

from __future__ import annotations

import fcntl
import os
import re
import struct
from collections.abc import Iterable, Iterator
from collections.abc import Mapping as Map
from contextlib import suppress
from typing import BinaryIO

from gdbheap._native import HeldFile, open_patiently, read_patiently, walk_to_file
from gdbheap.errors import one_line
from gdbheap.files import hold_file, open_regular, regular_descriptor
from gdbheap.host.mounts import Mount, at_and_above, device_name, parse_mounts
from gdbheap.host.procfs import PROC, ProcessFolder
from gdbheap.text import named

__all__ = ["FileSystems", "device_of_memory", "find_answering", "is_trusted", "mounter_of", "own_mounts"]

FUSE, USER = "fuse", "user_id="
OVERLAY = "overlay"
KERNELS = "proc"
# The name, in the folder that /proc has for a process, of the link to the process's root folder.
ROOT_FOLDER = "root"
# Options that name the folders below an overlay; each "lowerdir+" and "datadir+" names one folder.
LAYERS = ("lowerdir", "lowerdir+", "datadir+", "upperdir")
_ESCAPE = re.compile(r"\\([0-7]{3})")
# Matches a path into the root folder of a process.
_ROOT = re.compile(r"(/proc/[^/]+(?:/task/[^/]+)?)/root(?:/|\Z)")
_SEPARATOR = re.compile(r"(?<!\\):")
# The most bytes of a list of mounts that are read. File systems after these bytes count as unknown.
MOST_BYTES = 4 << 20
# The user of a FUSE mount whose options name no user.
NOBODY = -1
# ioctl_ns(2): get the user namespace that owns a namespace, and the user who created it.
NS_GET_USERNS, NS_GET_OWNER_UID = 0xB701, 0xB704


class FileSystems:
    """Finds out which user serves reads of mappings, and opens files by a target's paths without an endless wait.

    A path is never followed into a mount that another user's program serves. A path is not followed into process
    folders in /proc either. Exceptions are the target's own ``folder``, and the root folders of processes that the user
    has ``named`` in a path (``/proc/PID/root/…``).
    """

    def __init__(self, folder: ProcessFolder | None = None, named: Iterable[str | None] = ()) -> None:
        # The folder is kept, because its path is valid only while it is held.
        self._folder = folder
        self._own = folder.path("").rstrip("/") if folder is not None else None
        self._roots = {match[1] for path in named if path is not None and (match := _ROOT.match(path))}
        self._mounts: Map[str, int | None] | None = None
        self._mounter: int | None = None
        self._served: set[str] = set()
        self._lengths: set[int] = set()
        self._ground: set[int] = set()
        self._memory = device_of_memory()
        self._late: list[str] = []

    @property
    def warnings(self) -> list[str]:
        """A warning about files that were left out because their file system did not answer; an empty list if there are
        none.
        """
        if not self._late:
            return []
        rest = f" and {len(self._late) - 1} more files" if len(self._late) > 1 else ""
        return [f"the file system of {named(one_line(self._late[0]))}{rest} does not respond: the contents are missing"]

    def hold(self, path: str) -> HeldFile:
        """Open with O_PATH the file at a path that comes from the target; the caller closes its descriptor.

        Raises ValueError, OSError. The errno is EXDEV if the path enters a mount that must not be followed. The error
        is a TimeoutError if a file system does not answer.
        """
        path = os.path.join("" if path.startswith("/") else os.getcwd(), path)
        self._read()
        try:
            for root in self._roots:
                folder = os.path.join(root, ROOT_FOLDER)
                if path.startswith(f"{folder}/"):
                    return walk_to_file(folder, path[len(folder) :], self._ground, False)
            if self._own is None or not path.startswith(f"{self._own}/"):
                return walk_to_file("/", path, self._ground, False)
            folder = os.path.join(self._own, ROOT_FOLDER)
            if path.startswith(f"{folder}/"):
                return walk_to_file(folder, path[len(folder) :], self._ground, True)
            return hold_file(path)
        except TimeoutError:
            self._late.append(path)
            raise

    def find(self, path: str) -> HeldFile | None:
        """Return the file at a path that comes from the target, with its path without links; its descriptor is closed.

        Return None if there is no file, or if the path must not be followed.
        """
        try:
            held = self.hold(path)
        except (OSError, ValueError):
            return None
        os.close(held.descriptor)
        return held

    def open(self, path: str) -> BinaryIO:
        """Open a regular file at a path from the target. Raises the errors of ``hold``, and ValueError for other
        files."""
        return open_regular(path, hold=self.hold)

    def descriptor(self, path: str) -> int:
        """Return a descriptor for reading a regular file at a path from the target. Raises the errors of ``open``."""
        return regular_descriptor(path, hold=self.hold)

    def is_answered(self, device: str) -> bool | None:
        """Return whether the kernel, root or our own user serves reads of a device ("08:01").

        Return False if another user serves them. Return None if the target's and our lists of mounts lack the device.
        """
        if device == self._memory or device.partition(":")[0].strip("0"):
            # Kernel memory, or a disk.
            return True
        mounts = self._read()
        if device not in mounts:
            # Another user may have mounted and unmounted the device.
            return None if is_trusted(self._mounter) else False
        return is_trusted(mounts[device])

    def is_reached(self, path: str) -> bool:
        """Return whether only the kernel, root and our own user serve a path.

        A mount of another user's program (FUSE) on the path makes this False. The target's mounts and ours are checked.
        """
        self._read()
        # The cost depends on how many different lengths mount points have, not on the depth of the path.
        lengths = (length for length in self._lengths if path[length : length + 1] in ("", "/"))
        return not any(path[:length] in self._served for length in lengths)

    def _read(self) -> Map[str, int | None]:
        """Return {device: the user who serves it, None for the kernel} for the mounts of the target and of gdbheap.

        The lists of mounts are read only once.
        """
        if self._mounts is None:
            own = own_mounts()
            mounts, users = list(parse_mounts(own)), find_answering(own)
            for place in [*self._roots, *([] if self._own is None else [self._own])]:
                self._mounter = mounter_of(f"{place}/ns/mnt")
                with suppress(OSError):
                    text = read_patiently(f"{place}/mountinfo", MOST_BYTES)
                    users.update(find_answering(text, own, self._mounter))
                    mounts += parse_mounts(text)
            self._mounts = users
            answered = {mount.number: is_trusted(users[device_name(mount.device)]) for mount in mounts}
            self._served = {mount.point.rstrip("/") for mount in mounts if not answered[mount.number]}
            self._lengths = {len(point) for point in self._served}
            self._ground = {mount.number for mount in mounts if answered[mount.number] and mount.kind != KERNELS}
        return self._mounts


def is_trusted(user: int | None) -> bool:
    """Return whether a user who serves a mount is trusted to answer: the kernel (None), root or our own user."""
    return user in (None, 0, os.geteuid())


def own_mounts() -> bytes:
    """Return gdbheap's own ``mountinfo``; ``b""`` if it cannot be read."""
    try:
        with open(f"{PROC}/self/mountinfo", "rb") as stream:
            return stream.read(MOST_BYTES)
    except OSError:
        return b""


def mounter_of(namespace: str) -> int | None:
    """Return the user who may mount in a mount namespace (a path such as ``/proc/PID/ns/mnt``).

    Return None if the namespace belongs to our own user namespace, where only root may mount. Otherwise return the user
    who created its user namespace. Return NOBODY if this user is unknown, or is root: root may have given that
    namespace to others.
    """
    try:
        number = open_patiently(namespace, False)
        try:
            users = fcntl.ioctl(number, NS_GET_USERNS)
        finally:
            os.close(number)
        try:
            if os.path.samestat(os.fstat(users), os.stat(f"{PROC}/self/ns/user")):
                return None
            (owner,) = struct.unpack("I", fcntl.ioctl(users, NS_GET_OWNER_UID, bytes(4)))
            return int(owner) or NOBODY
        finally:
            os.close(users)
    except OSError:
        return NOBODY


def find_answering(text: bytes, own: bytes = b"", mounter: int | None = None) -> dict[str, int | None]:
    """Return the devices in a ``mountinfo``, each with the user whose program serves it, or None for the kernel.

    ``own``: our own ``mountinfo``. ``mounter``: the user who may have made the mounts that are only in ``text``. An
    overlay is served by the users of its layers.
    """
    found: dict[str, int | None] = {}
    ours, theirs = ({mount.point.rstrip("/"): mount for mount in parse_mounts(part)} for part in (own, text))
    known = {mount.device for mount in ours.values()}
    for mount in parse_mounts(text):
        if mounter is not None and mount.device not in known and mount.kind.startswith((OVERLAY, FUSE)):
            # User 0 of another user namespace may be any user here.
            user: int | None = mounter
        else:
            user = _least_trusted(_users(mount, ours if mount.device in known else theirs))
        device = device_name(mount.device)
        # A device may be mounted in several places.
        found[device] = user if user is not None else found.get(device)
    return found


def _users(mount: Mount, mounts: Map[str, Mount]) -> Iterator[int]:
    """Yield the users whose FUSE programs serve a mount or, for an overlay, its layers.

    ``mounts``: the mounts by mount point. Layers that lie on none of these mounts are skipped.
    """
    waiting, seen = [mount], set()
    while waiting:
        one = waiting.pop()
        if one.kind.startswith(FUSE):
            yield _user(one.options)
        elif one.kind == OVERLAY and one.device not in seen:
            seen.add(one.device)
            waiting += (below for layer in _layers(one.options) for below in _mount_at(layer, mounts))


def _least_trusted(users: Iterable[int]) -> int | None:
    """Return the user on whom an answer depends: if possible, one who is neither root nor our own user. None if
    ``users`` is empty.
    """
    return max(users, key=lambda user: not is_trusted(user), default=None)


def _layers(options: str) -> Iterator[str]:
    """Yield the folders of an overlay's layers, from its options."""
    for option in options.split(","):
        name, _sign, value = option.partition("=")
        if name in LAYERS:
            whole = _ESCAPE.sub(lambda code: chr(int(code[1], 8)), value)
            layers = _SEPARATOR.split(whole) if name == LAYERS[0] else [whole]
            yield from (layer.replace("\\:", ":") for layer in layers if layer)


def _mount_at(path: str, mounts: Map[str, Mount]) -> Iterator[Mount]:
    """Yield the innermost mount that contains a path. Yield nothing for a relative path."""
    places = at_and_above(path) if path.startswith("/") else ()
    yield from [mounts[place] for place in places if place in mounts][:1]


def _user(options: str) -> int:
    users = [option[len(USER) :] for option in options.split(",") if option.startswith(USER)]
    return int(users[0]) if len(users) == 1 and users[0].isdigit() else NOBODY


def device_of_memory() -> str:
    """Return the device of files that exist only in memory: memfd, System V, shared anonymous memory."""
    number = os.memfd_create("gdbheap", os.MFD_CLOEXEC)
    try:
        device = os.fstat(number).st_dev
    finally:
        os.close(number)
    return device_name(device)
