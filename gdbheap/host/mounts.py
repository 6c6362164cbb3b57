"""Parse ``/proc/PID/mountinfo`` (proc_pid_mountinfo(5))."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from gdbheap.dataclass import dataclass

__all__ = ["Mount", "at_and_above", "device_name", "parse_mounts"]

_LINE = re.compile(rb"^(\d+) \d+ (\d+):(\d+) \S+ (\S+) .*? - (\S+) \S* (\S*)", re.MULTILINE)
_ESCAPE = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True)
class Mount:
    """One mount.

    ``device``: its ``st_dev``.
    ``point``: its mount point.
    ``kind``: the type of its file system.
    ``options``: the options of its file system, separated by commas.
    ``number``: its id in the kernel, 0 if unknown.
    """

    device: int
    point: str
    kind: str
    options: str
    number: int = 0


def parse_mounts(text: bytes) -> Iterator[Mount]:
    """Yield the mounts in a ``mountinfo``, in the order of the file. Lines that have another form are skipped."""
    for match in _LINE.finditer(text):
        point = _ESCAPE.sub(lambda code: bytes([int(code[1], 8) & 255]), match[4])
        device = os.makedev(int(match[2]), int(match[3]))
        kind, options = match[5].decode("latin-1"), match[6].decode("latin-1")
        yield Mount(device, os.fsdecode(point), kind, options, int(match[1]))


def device_name(device: int) -> str:
    """Return a device (``st_dev``) in the form of ``/proc/PID/maps``, such as ``08:01``."""
    return f"{os.major(device):02x}:{os.minor(device):02x}"


def at_and_above(point: str) -> Iterator[str]:
    """Yield a path and all folders above it, the innermost first, without trailing slashes; "" for the root folder."""
    path = point.rstrip("/")
    while path:
        yield path
        path = path.rpartition("/")[0]
    yield ""
