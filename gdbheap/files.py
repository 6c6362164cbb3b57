"""Files that gdbheap writes: each beside its place first, then renamed, so that nobody finds half of one, and an older
one stays where a new one cannot be written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from gdbheap.errors import UsageError, one_line

__all__ = ["check_writable", "replacing", "write_bytes", "write_text"]


def check_writable(path: str) -> None:
    """Before something that takes time. Raises UsageError where there is no such folder, or no right to write there."""
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path) or not os.access(folder, os.W_OK):
        reason = "it is a folder" if os.path.isdir(path) else f"there is no folder {folder} that may be written"
        raise UsageError(f"{one_line(path)} cannot be written: {one_line(reason)}")


@contextmanager
def replacing(path: str) -> Iterator[str]:
    """A path to write to in this block, whose file then takes the place of ``path``; of a device or a pipe the path
    itself. Raises UsageError for an OSError or a ValueError of the block."""
    is_special = os.path.exists(path) and not os.path.isfile(path)
    beside = f"{path}.{os.getpid()}.part"
    try:
        yield path if is_special else beside
        if not is_special:
            os.replace(beside, path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{one_line(path)} cannot be written: {one_line(reason)}") from None
    finally:
        with suppress(OSError, ValueError):
            os.unlink(beside)


def write_bytes(path: str, data: bytes) -> None:
    """Raises UsageError where that is not possible."""
    with replacing(path) as beside, open(beside, "wb") as stream:
        stream.write(data)


def write_text(path: str, text: str) -> None:
    """Raises UsageError where that is not possible."""
    write_bytes(path, text.encode("utf-8"))
