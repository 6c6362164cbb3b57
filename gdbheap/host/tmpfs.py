"""Files in the tmpfs mounts that a process sees. Their memory counts for the process's container, whichever process
maps them.

The files may belong to another user, and root may search them. So no link is followed, no other file system is entered,
no file is opened, and the search is bounded.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

from gdbheap._native import hold_known, walk_to_file
from gdbheap.dataclass import dataclass
from gdbheap.documents import renamed_keys
from gdbheap.host.aside import do_aside
from gdbheap.host.file_systems import device_of_memory, find_answering, is_trusted, mounter_of, own_mounts
from gdbheap.host.mounts import Mount, at_and_above, device_name, parse_mounts
from gdbheap.host.procfs import PROC

__all__ = ["TmpfsFile", "find_tmpfs_files", "memory_devices"]

FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# On these file systems the kernel alone looks up names. A FUSE or NFS server may never answer.
LOCAL = {"tmpfs", "devtmpfs", "ramfs", "rootfs", "overlay", "ext2", "ext3", "ext4", "xfs", "btrfs", "squashfs"}
# Files on these file systems are only in memory.
MEMORY = {"tmpfs", "devtmpfs", "ramfs", "hugetlbfs"}
MAX_MOUNTS, MAX_DEPTH, MAX_ENTRIES = 32, 8, 10_000
MIN_BYTES, TABLE_LIMIT = 1 << 20, 1 << 20


@dataclass(frozen=True)
class TmpfsFile:
    """A file in tmpfs: its length (``size``) and the memory that it takes (``bytes``)."""

    file: str
    size: int
    bytes: int

    @classmethod
    def from_older(cls, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the record ``content`` of a format 1 file with today's key names."""
        return renamed_keys(content, {"path": "file"})


def memory_devices(place: str, proc: str = PROC) -> frozenset[str]:
    """Return the devices, as in ``maps``, of the memory-only file systems that a process sees.

    ``place``: the process's folder below /proc.
    """
    text = b""
    with suppress(OSError), open(f"{proc}/{place}/mountinfo", "rb") as stream:
        text = stream.read(TABLE_LIMIT)
    found = {device_name(mount.device) for mount in parse_mounts(text) if mount.kind in MEMORY}
    return frozenset({device_of_memory(), *found})


def find_tmpfs_files(place: str, mapped: Iterable[tuple[str, int]], proc: str = PROC) -> list[TmpfsFile]:
    """Return the tmpfs files of at least 1 MiB that a process does not map, largest first.

    ``place``: the process's folder below /proc; ``mapped``: (device as in ``maps``, inode) of the files that it maps.
    """
    folder = f"{proc}/{place}"
    try:
        with open(f"{folder}/mountinfo", "rb") as stream:
            text = stream.read(TABLE_LIMIT)
    except OSError:
        return []
    own, mounts = own_mounts(), list(parse_mounts(text))
    answering = {**find_answering(own), **find_answering(text, own, mounter_of(f"{folder}/ns/mnt"))}
    ground = {mount.number for mount in [*parse_mounts(own), *mounts] if _is_local(mount, answering)}
    search = _Search({mount.point for mount in mounts}, set(mapped))

    def look() -> None:
        for mount in _of_tmpfs(mounts, answering):
            search.mount(f"{folder}/root", mount, ground)

    # Another user may hold the lock of a folder for ever.
    do_aside(look, lambda: search.entries)
    return sorted(search.found, key=lambda file: (-file.bytes, file.file))


def _of_tmpfs(mounts: list[Mount], answering: Mapping[str, int | None]) -> list[Mount]:
    """Return the tmpfs mounts that can be reached without asking another user's program, one for each tmpfs.

    ``answering``: for each device, the user whose program serves it, or None for the kernel.
    """
    found: dict[int, Mount] = {}
    served = {mount.point.rstrip("/") for mount in mounts if not _is_local(mount, answering)}
    for mount in mounts:
        if len(found) == MAX_MOUNTS:
            break
        if mount.kind == "tmpfs" and served.isdisjoint(at_and_above(mount.point)):
            found.setdefault(mount.device, mount)
    return list(found.values())


def _is_local(mount: Mount, answering: Mapping[str, int | None]) -> bool:
    return mount.kind in LOCAL and is_trusted(answering.get(device_name(mount.device)))


class _Search:
    """A search of folders that are held open by descriptors.

    ``found``: the files found so far.
    ``entries``: the number of entries seen, which is limited.
    ``points``: mount points to skip.
    ``mapped``: files to skip, because the process maps them.
    """

    def __init__(self, points: set[str], mapped: set[tuple[str, int]]) -> None:
        self.found: list[TmpfsFile] = []
        self.entries = 0
        self._points, self._mapped = points, mapped

    def mount(self, root: str, mount: Mount, ground: set[int]) -> None:
        """Search all of the tmpfs ``mount``, whose mount point is below ``root``.

        ``ground``: the ids of the mounts that the path to the mount point may cross. They are given because the
        process's list of mounts may lack the mount that contains its root folder.
        """
        with suppress(OSError):
            held = walk_to_file(root, mount.point, ground, True)
            self._folder(held.descriptor, mount.device, mount.point.rstrip("/"), MAX_DEPTH)

    def _folder(self, held: int, device: int, path: str, depth: int) -> None:
        """Search a folder that is held open with O_PATH, and everything below it; then close the folder.

        Folders on other devices are skipped.
        """
        try:
            if os.fstat(held).st_dev != device:
                return
            number = os.open(".", os.O_RDONLY | FOLDER, dir_fd=held)
        finally:
            os.close(held)
        try:
            with os.scandir(number) as entries:
                for entry in islice(entries, max(0, MAX_ENTRIES - self.entries)):
                    self.entries += 1
                    self._entry(number, entry.name, device, f"{path}/{entry.name}", depth)
        finally:
            os.close(number)

    def _entry(self, folder: int, name: str, device: int, path: str, depth: int) -> None:
        if path in self._points or self.entries >= MAX_ENTRIES:
            return
        with suppress(OSError):
            held = hold_known(folder, name)
            status = os.fstat(held)
            if stat.S_ISDIR(status.st_mode) and depth:
                self._folder(held, device, path, depth - 1)
                return
            os.close(held)
            size = 512 * status.st_blocks
            if status.st_dev != device:
                return
            if stat.S_ISREG(status.st_mode) and size >= MIN_BYTES and _identity(status) not in self._mapped:
                self.found.append(TmpfsFile(path, status.st_size, size))


def _identity(status: os.stat_result) -> tuple[str, int]:
    """Return the device and the inode in the form of ``maps``."""
    return device_name(status.st_dev), status.st_ino
