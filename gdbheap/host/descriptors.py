"""What a process has open, as /proc says (proc_pid_fd(5))."""

from __future__ import annotations

import os
from contextlib import suppress

__all__ = ["links"]


def links(folder: str, most: int | None = None) -> list[tuple[str, str]]:
    """Return the first ``most`` descriptors of the process of a folder of /proc, as their names in ``fd``, each with
    where its link leads. Raises OSError where they may not be listed."""
    found = []
    for name in os.listdir(f"{folder}/fd")[:most]:
        with suppress(OSError):
            found.append((name, os.readlink(f"{folder}/fd/{name}")))
    return found
