"""Partition folders in Hive's style, whose names contain values: ``blocks/host=web1/pid=1234/data.parquet``.

The table's name comes first. So Spark and Trino see each folder at the top as a table, and DuckDB reads
``blocks/*/*/*.parquet`` as one table."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any
from urllib.parse import quote

from gdbheap.dataclass import dataclass
from gdbheap.errors import GdbheapError, Unsupported, UsageError, one_line
from gdbheap.export.declaration import SNAPSHOTS, TABLES
from gdbheap.files import not_written, settle

__all__ = ["PartitionKey", "check_url", "destination_of", "is_url", "parse_partition", "put", "values_of_parts"]

DATA = "data"
NAME = re.compile(r"\A[a-z_][a-z0-9_]*\Z")
# Object stores have names of objects but no folders.
WITHOUT_FOLDERS = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oci", "oss"})
# The names of two classes of fsspec, and the text with which fsspec joins the URLs of a chain.
LOCAL, SYSTEM, CHAIN = "LocalFileSystem", "AbstractFileSystem", "::"
# Hive's name for a missing value.
NOTHING = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class PartitionKey:
    """A key of a partition. ``value``: None to use the value of each exported process."""

    name: str
    value: str | None = None


def _day(identity: Mapping[str, Any]) -> str:
    return datetime.fromtimestamp(identity["time"], timezone.utc).strftime("%Y-%m-%d")


KNOWN: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "day": _day,
    "time": lambda identity: int(identity["time"]),
    "program": lambda identity: os.path.basename(identity["exe"] or "") or None,
    **{
        name: (lambda identity, name=name: identity[name])  # type: ignore[misc]
        for name in ("host", "pid", "boot_id", "container", "kind", "started", "python", "glibc")
    },
}
"""For each key of a partition that gdbheap can fill in: the function that reads the value from a process's identity."""


def parse_partition(text: str) -> tuple[PartitionKey, ...]:
    """Parse a list of keys, such as ``host=web1,pid``. Raises ValueError."""
    parts = []
    for word in text.split(","):
        name, has_value, value = word.partition("=")
        if not NAME.match(name):
            raise ValueError(f"{word!r} is not KEY or KEY=VALUE: a key has only letters, digits and _")
        if not has_value and name not in KNOWN:
            raise ValueError(f"{name!r} needs a value: gdbheap fills in only {', '.join(KNOWN)}")
        if has_value and not value:
            raise ValueError(f"{name!r} has no value")
        parts.append(PartitionKey(name, value if has_value else None))
    names = [part.name for part in parts]
    if len(set(names)) < len(names):
        raise ValueError(f"{text!r} names a key twice")
    return tuple(parts)


def check_columns(parts: Sequence[PartitionKey]) -> None:
    """Raise UsageError if a key has the name of a column of a table other than ``snapshots``: it would hide the
    column."""
    others = {column: table.name for table in TABLES if table.name != SNAPSHOTS for column in table.names}
    for part in parts:
        if part.name in others:
            raise UsageError(
                f"{part.name} is a column of {others[part.name]}: choose a different name for the partition"
            )


def values_of_parts(parts: Sequence[PartitionKey], identity: Mapping[str, Any]) -> dict[str, str]:
    """Return the partition keys of one exported process with their values, as {key: value}. ``identity``: the process's
    row of the table ``snapshots``.
    """
    found = {part.name: KNOWN[part.name](identity) if part.value is None else part.value for part in parts}
    return {name: NOTHING if value is None else str(value) for name, value in found.items()}


def destination_of(table: str, values: Mapping[str, str], file: str) -> str:
    """Return the path of a table's file below the export folder, through the folders of the partition."""
    keys = [f"{name}={quote(value, safe=' :@+,')}" for name, value in values.items()]
    # A program may be named "..", so names are quoted to stay inside the folder.
    return "/".join([table, *keys, DATA + os.path.splitext(file)[1]])


def is_url(path: str) -> bool:
    """Return whether a path is a URL for fsspec, such as ``s3://bucket/heaps``."""
    return "://" in path


def put(folder: str, files: Mapping[str, str], mode: int) -> None:
    """Move written files to their destinations below ``folder``, in the given order, each file in one step.

    ``files``: the path of each file by its destination; ``mode``: the files' permissions, unused if ``folder`` is a
    URL. Raises UsageError or Unsupported.
    """
    if is_url(folder):
        _upload(folder, files)
        return
    for destination, path in files.items():
        settle(path, os.path.join(folder, destination), mode, make=True)


def _names(system: Any) -> Sequence[str]:
    """Return the protocols that a file system of fsspec serves, such as "s3"; fsspec gives one string or several."""
    return [system.protocol] if isinstance(system.protocol, str) else system.protocol


def check_url(url: str) -> None:
    """Check a URL to which files are uploaded.

    Raises UsageError if the URL names files of this machine, or a file system that fsspec does not have. Raises
    Unsupported if a library is missing."""
    with _told(url):
        _system_of(url)


def _system_of(url: str) -> tuple[Any, str]:
    """Return a URL's file system of fsspec, and the path in it.

    Raises UsageError if the URL names files of this machine in any way: gdbheap writes such files under rules that
    fsspec does not keep.
    """
    try:
        import fsspec
    except ImportError:
        raise Unsupported("a URL needs fsspec, which is not installed: pip install 'gdbheap[remote]'") from None
    if CHAIN in url:
        raise UsageError(f"{one_line(url)}: chained URLs ('{CHAIN}') are not supported: name one file system")
    system, root = fsspec.core.url_to_fs(url)
    if _is_local(system):
        raise UsageError(f"{one_line(url)} names files on this machine: give the path of the folder instead")
    return system, root


def _is_local(system: Any) -> bool:
    """Return whether a file system of fsspec has files of this machine, or wraps another file system that has such
    files."""
    waiting, seen = [system], set()
    while waiting:
        one = waiting.pop()
        names = {kind.__name__ for kind in type(one).__mro__}
        if LOCAL in names:
            return True
        if SYSTEM in names and id(one) not in seen:
            seen.add(id(one))
            # getattr may return an attribute of the wrapped file system instead, so read the dictionary directly.
            waiting += object.__getattribute__(one, "__dict__").values()
    return False


def _upload(url: str, files: Mapping[str, str]) -> None:
    with _told(url):
        system, root = _system_of(url)
        for destination, path in files.items():
            final = f"{root.rstrip('/')}/{destination}"
            # In an object store, makedirs may create a bucket.
            if not set(_names(system)) & WITHOUT_FOLDERS:
                system.makedirs(final.rsplit("/", 1)[0], exist_ok=True)
            system.put_file(path, final)


@contextmanager
def _told(url: str) -> Iterator[None]:
    """Inside the block, convert errors of fsspec into an error of one line."""
    try:
        yield
    except GdbheapError:
        raise
    except (OSError, ValueError) as error:
        raise not_written(url, error) from None
    except ImportError as error:
        raise Unsupported(f"{one_line(url)}: {one_line(error)}") from None
    except Exception as error:  # Each of fsspec's file systems may raise errors of its own, such as botocore's.
        raise UsageError(f"{one_line(url)} cannot be written: {one_line(error)}") from None
