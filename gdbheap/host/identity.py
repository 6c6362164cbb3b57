"""Identify a process among all others, even after its id is reused or the machine restarts."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress

from gdbheap.dataclass import dataclass
from gdbheap.host.procfs import parse_start

__all__ = ["BOOT_ID", "CONTAINER", "Identity", "identify"]

BOOT_ID, HOST_NAME = "/proc/sys/kernel/random/boot_id", "/proc/sys/kernel/hostname"
# Docker, containerd, CRI-O and podman name a container's control group by its id.
CONTAINER = re.compile(rb"(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?:/|$)", re.MULTILINE)


@dataclass(frozen=True)
class Identity:
    """The facts that identify a process. Each field is None if unknown.

    ``host``: the machine's name.
    ``boot_id``: the id of its boot (random_boot_id(4)).
    ``start_time``: clock ticks from the boot to the start of the process (proc(5), stat).
    ``container``: the id of its container.
    """

    host: str | None = None
    boot_id: str | None = None
    start_time: int | None = None
    container: str | None = None


def identify(read: Callable[[str], bytes], pid: int) -> Identity:
    """Return the identity of a process. ``read`` returns a file of the process's machine, or raises OSError."""
    texts = {}
    for path in (HOST_NAME, BOOT_ID, f"/proc/{pid}/stat", f"/proc/{pid}/cgroup"):
        texts[path] = b""
        with suppress(OSError):
            texts[path] = read(path)
    host, boot_id, stat, cgroup = texts.values()
    found = CONTAINER.search(cgroup)
    return Identity(_line(host), _line(boot_id), parse_start(stat), found[1].decode("ascii") if found else None)


def _line(text: bytes) -> str | None:
    return text.decode("utf-8", "replace").strip() or None
