"""File systems behind a process's mappings, and those whose owner may leave a read waiting for ever (FUSE, and overlays
above it); and the one door to files by paths that a target names."""

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
# Folders below an overlay; "lowerdir+" and "datadir+" have one each.
LAYERS = ("lowerdir", "lowerdir+", "datadir+", "upperdir")
_ESCAPE = re.compile(r"\\([0-7]{3})")
# What leads to the files of a process.
_ROOT = re.compile(r"(/proc/[^/]+(?:/task/[^/]+)?)/root(?:/|\Z)")
_SEPARATOR = re.compile(r"(?<!\\):")
# Beyond this length of the list of mounts, file systems count as unknown.
MOST_BYTES = 4 << 20
# The user of a mount that names none.
NOBODY = -1
# ioctl_ns(2): the user namespace that a namespace belongs to, and who made that.
NS_GET_USERNS, NS_GET_OWNER_UID = 0xB701, 0xB704


class FileSystems:
    """Tells by the devices of mappings who answers when their pages are read, and opens files by paths that a target
    names, without waiting for ever: no path is followed into a mount for which another user answers, nor into the
    folders of processes in /proc, but for those of the target's own ``folder`` and below the root folders of processes
    that the user has ``named`` in a path (``/proc/PID/root/…``)."""

    def __init__(self, folder: ProcessFolder | None = None, named: Iterable[str | None] = ()) -> None:
        # Its path leads there while it is held.
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
        """Return a line of the files that were left out because nobody answers for them, if there are any."""
        if not self._late:
            return []
        rest = f" and {len(self._late) - 1} more files" if len(self._late) > 1 else ""
        return [f"nobody answers for {named(one_line(self._late[0]))}{rest}: what they hold is missing"]

    def hold(self, path: str) -> HeldFile:
        """Hold the file with a path that the target names by O_PATH; its descriptor is the caller's to close. Raises
        OSError (EXDEV where the path leads to where nobody goes, TimeoutError where nobody answers), ValueError."""
        path = os.path.join("" if path.startswith("/") else os.getcwd(), path)
        self._read()
        try:
            for root in self._roots:
                if path.startswith(f"{root}/root/"):
                    return walk_to_file(f"{root}/root", path[len(f"{root}/root") :], self._ground, False)
            if self._own is None or not path.startswith(f"{self._own}/"):
                return walk_to_file("/", path, self._ground, False)
            if path.startswith(f"{self._own}/root/"):
                return walk_to_file(f"{self._own}/root", path[len(f"{self._own}/root") :], self._ground, True)
            return hold_file(path)
        except TimeoutError:
            self._late.append(path)
            raise

    def find(self, path: str) -> HeldFile | None:
        """Return what is at such a path, with its path without links; None where there is nothing, or nobody goes. Its
        descriptor is closed."""
        try:
            held = self.hold(path)
        except (OSError, ValueError):
            return None
        os.close(held.descriptor)
        return held

    def open(self, path: str) -> BinaryIO:
        """Open a regular file at such a path. Raises OSError as ``hold``, ValueError."""
        return open_regular(path, hold=self.hold)

    def descriptor(self, path: str) -> int:
        """Return a descriptor that reads such a file. Raises as ``open``."""
        return regular_descriptor(path, hold=self.hold)

    def is_answered(self, device: str) -> bool | None:
        """Return whether the kernel itself, root or our own user answers reads of a device ("08:01"); False where
        another user does, None where the process has no such mount (any more)."""
        if device == self._memory or device.partition(":")[0].strip("0"):
            # Memory of the kernel's, or a disk.
            return True
        mounts = self._read()
        if device not in mounts:
            # Another user may have mounted it and taken the mount away.
            return None if is_trusted(self._mounter) else False
        return is_trusted(mounts[device])

    def is_reached(self, path: str) -> bool:
        """Return whether a path leads, for the process and for us, through no mount that another user answers for."""
        self._read()
        # As deep as a path may be: the cost is that of the mounts.
        lengths = (length for length in self._lengths if path[length : length + 1] in ("", "/"))
        return not any(path[:length] in self._served for length in lengths)

    def _read(self) -> Map[str, int | None]:
        """Read who answers for the mounts of the process and for ours, and which are others', once."""
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
    """Return whether who answers is the kernel (None), root or our own user."""
    return user in (None, 0, os.geteuid())


def own_mounts() -> bytes:
    """Return our own ``mountinfo``; nothing where it cannot be read."""
    try:
        with open(f"{PROC}/self/mountinfo", "rb") as stream:
            return stream.read(MOST_BYTES)
    except OSError:
        return b""


def mounter_of(namespace: str) -> int | None:
    """Return who may mount in a mount namespace (a path, ``/proc/PID/ns/mnt``): None where that takes the rights of
    root in our own user namespace, else the user who made its user namespace; NOBODY where that is unknown, or root,
    who gave it to others."""
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
    """Return the devices of a ``mountinfo``, with the user whose program answers, None where that is the kernel.
    ``own``: our own ``mountinfo``; ``mounter``: who may mount what is in ``text`` alone.

    An overlay is answered by who answers for its layers, and these are named by whoever mounted it, as he saw them; so
    are users by who mounts a FUSE file system."""
    found: dict[str, int | None] = {}
    ours, theirs = ({mount.point.rstrip("/"): mount for mount in parse_mounts(part)} for part in (own, text))
    known = {mount.device for mount in ours.values()}
    for mount in parse_mounts(text):
        if mounter is not None and mount.device not in known and mount.kind.startswith((OVERLAY, FUSE)):
            # User 0 of a mount in another user namespace may be anybody.
            user: int | None = mounter
        else:
            user = _least_trusted(_users(mount, ours if mount.device in known else theirs))
        device = device_name(mount.device)
        # One device may be mounted in several places.
        found[device] = user if user is not None else found.get(device)
    return found


def _users(mount: Mount, mounts: Map[str, Mount]) -> Iterator[int]:
    """Yield whose programs answer for a mount, and for what lies below it where it is an overlay. ``mounts``: by their
    points; what is mounted elsewhere is left out."""
    waiting, seen = [mount], set()
    while waiting:
        one = waiting.pop()
        if one.kind.startswith(FUSE):
            yield _user(one.options)
        elif one.kind == OVERLAY and one.device not in seen:
            seen.add(one.device)
            waiting += (below for layer in _layers(one.options) for below in _mount_at(layer, mounts))


def _least_trusted(users: Iterable[int]) -> int | None:
    """Return one who is neither root nor we, where one is among them; None without any."""
    return max(users, key=lambda user: not is_trusted(user), default=None)


def _layers(options: str) -> Iterator[str]:
    """Yield the folders below an overlay that its options name."""
    for option in options.split(","):
        name, _sign, value = option.partition("=")
        if name in LAYERS:
            whole = _ESCAPE.sub(lambda code: chr(int(code[1], 8)), value)
            layers = _SEPARATOR.split(whole) if name == LAYERS[0] else [whole]
            yield from (layer.replace("\\:", ":") for layer in layers if layer)


def _mount_at(path: str, mounts: Map[str, Mount]) -> Iterator[Mount]:
    """Yield the mount that a path lies on; nothing for a relative one."""
    places = at_and_above(path) if path.startswith("/") else ()
    yield from [mounts[place] for place in places if place in mounts][:1]


def _user(options: str) -> int:
    users = [option[len(USER) :] for option in options.split(",") if option.startswith(USER)]
    return int(users[0]) if len(users) == 1 and users[0].isdigit() else NOBODY


def device_of_memory() -> str:
    """Return the device of files that are memory alone: memfd, System V's, shared anonymous memory."""
    number = os.memfd_create("gdbheap", os.MFD_CLOEXEC)
    try:
        device = os.fstat(number).st_dev
    finally:
        os.close(number)
    return device_name(device)
