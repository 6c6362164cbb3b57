"""Files that gdbheap writes: each beside its place first, then renamed, so that nobody finds half of one, and an older
one stays where a new one cannot be written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from gdbheap.errors import UsageError, one_line

__all__ = [
    "check_folder",
    "check_writable",
    "not_written",
    "replacing",
    "replacing_folder",
    "write_bytes",
    "write_text",
]


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
        raise not_written(path, error) from None
    finally:
        with suppress(OSError, ValueError):
            os.unlink(beside)


def check_folder(path: str, is_ours: Callable[[str], bool]) -> None:
    """Before something that takes time. Raises UsageError where a folder cannot be put there: there is no room for it,
    or something else than an older one with nothing but files that ``is_ours``."""
    above = os.path.dirname(os.path.abspath(path))
    if not os.access(above, os.W_OK) or not os.path.isdir(above):
        raise UsageError(
            f"{one_line(path)} cannot be written: there is no folder {one_line(above)} that may be written"
        )
    if not os.path.lexists(path):
        return
    if not os.path.isdir(path):
        raise UsageError(f"{one_line(path)} cannot be written: it is no folder")
    others = [name for name in os.listdir(path) if not is_ours(name)]
    if others:
        raise UsageError(f"{one_line(path)} is not replaced: it has other files, as {one_line(others[0])}")


@contextmanager
def replacing_folder(path: str, is_ours: Callable[[str], bool]) -> Iterator[str]:
    """A new folder to write into in this block, which then takes the place of ``path``, and of an older one with
    nothing but files that ``is_ours``. Raises UsageError for an OSError or a ValueError of the block."""
    path = os.path.abspath(path)
    beside, older = f"{path}.{os.getpid()}.part", f"{path}.{os.getpid()}.older"
    try:
        os.mkdir(beside)
        yield beside
        check_folder(path, is_ours)
        if os.path.lexists(path):
            os.rename(path, older)
        os.rename(beside, path)
    except (OSError, ValueError) as error:
        raise not_written(path, error) from None
    finally:
        if os.path.lexists(older) and not os.path.lexists(path):
            os.rename(older, path)
        shutil.rmtree(beside, ignore_errors=True)
        shutil.rmtree(older, ignore_errors=True)


def not_written(path: str, error: OSError | ValueError) -> UsageError:
    """What a person is told."""
    reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    return UsageError(f"{one_line(path)} cannot be written: {one_line(reason)}")


def write_bytes(path: str, data: bytes) -> None:
    """Raises UsageError where that is not possible."""
    with replacing(path) as beside, open(beside, "wb") as stream:
        stream.write(data)


def write_text(path: str, text: str) -> None:
    """Raises UsageError where that is not possible."""
    write_bytes(path, text.encode("utf-8"))
