"""List the open files of a process from /proc (proc_pid_fd(5))."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

__all__ = ["links"]


def links(folder: str, most: int | None = None) -> Iterator[tuple[str, str]]:
    """Yield the first ``most`` descriptors of a process: the name in its folder ``fd``, and the target of this link.

    ``folder``: the process's folder in /proc. A link's target has at most 4 KiB. Raises OSError if listing the folder
    is not allowed.
    """
    with os.scandir(f"{folder}/fd") as entries:
        for entry in islice(entries, most):
            with suppress(OSError):
                yield entry.name, os.readlink(f"{folder}/fd/{entry.name}")
