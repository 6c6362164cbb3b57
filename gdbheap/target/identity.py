"""Which process it was: what tells it from all others, also when its id is given away again or the machine restarts."""

from __future__ import annotations

import os
import re
from contextlib import suppress

from gdbheap.target.procfs import ProcessFolder, parse_start
from gdbheap.target.target import Identity

BOOT_ID = "/proc/sys/kernel/random/boot_id"
# Docker, containerd, CRI-O and podman name a container's control group by its id.
CONTAINER = re.compile(rb"(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?:/|$)", re.MULTILINE)


def identify(folder: ProcessFolder) -> Identity:
    """That of a process on this machine."""
    boot_id = start = container = None
    with suppress(OSError), open(BOOT_ID, encoding="ascii") as stream:
        boot_id = stream.read().strip()
    with suppress(OSError):
        start = parse_start(folder.read("stat"))
    with suppress(OSError):
        found = CONTAINER.search(folder.read("cgroup"))
        container = found[1].decode("ascii") if found else None
    return Identity(os.uname().nodename, boot_id, start, container)
