"""File systems behind a process's mappings, and those whose owner may leave a read waiting for ever (FUSE)."""

from __future__ import annotations

import os
from collections.abc import Mapping as Map

from gdbheap.target.mounts import device_name, parse_mounts
from gdbheap.target.procfs import ProcessFolder

__all__ = ["FileSystems", "find_answering"]

FUSE, USER = "fuse", "user_id="
# Beyond this length of the list of mounts, file systems count as unknown.
MOST_BYTES = 4 << 20
# The user of a mount that names none.
NOBODY = -1


class FileSystems:
    """Tells by the devices of mappings who answers when their pages are read."""

    def __init__(self, folder: ProcessFolder) -> None:
        self._folder = folder
        self._mounts: Map[str, int | None] | None = None
        self._memory = _device_of_memory()

    def is_answered(self, device: str) -> bool | None:
        """Return whether the kernel itself, root or our own user answers reads of a device ("08:01"); False where
        another user does, None where the process has no such mount (any more)."""
        if device == self._memory or device.partition(":")[0].strip("0"):
            # Memory of the kernel's, or a disk.
            return True
        if self._mounts is None:
            try:
                self._mounts = find_answering(self._folder.read("mountinfo", MOST_BYTES))
            except OSError:
                self._mounts = {}
        if device not in self._mounts:
            return None
        return self._mounts[device] in (None, 0, os.geteuid())


def find_answering(text: bytes) -> dict[str, int | None]:
    """Return the devices of a ``mountinfo``, with the user whose program answers, None where that is the kernel."""
    found: dict[str, int | None] = {}
    for mount in parse_mounts(text):
        device, user = device_name(mount.device), _user(mount.kind, mount.options)
        # One device may be mounted in several places.
        found[device] = user if user is not None else found.get(device)
    return found


def _user(kind: str, options: str) -> int | None:
    if not kind.startswith(FUSE):
        return None
    users = [option[len(USER) :] for option in options.split(",") if option.startswith(USER)]
    return int(users[0]) if len(users) == 1 and users[0].isdigit() else NOBODY


def _device_of_memory() -> str:
    """Return the device of files that are memory alone: memfd, System V's, shared anonymous memory."""
    number = os.memfd_create("gdbheap", os.MFD_CLOEXEC)
    try:
        device = os.fstat(number).st_dev
    finally:
        os.close(number)
    return device_name(device)
