"""Containers with room for more items than they hold: the fields that show it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from gdbheap import _native
from gdbheap.contents.python.objects.census import Objects
from gdbheap.contents.python.objects.hash_tables import tables_of
from gdbheap.layout.cpython import OB_SIZE, Release
from gdbheap.targets.target import Target

POINTER = 8
# The largest header of lists and byte arrays; the bytes that rounding may add to a block, and debug hooks with it.
MAX_HEAD, MAX_ROUNDING, MAX_DEBUG_BYTES = 64, 15, 32
# sizeof(PySetObject), and the bytes that subclasses may add. Subclasses of sets are left out: many small blocks have
# their size.
SET_HEAD = 200
SUBCLASS = {"dict": 16, "set": 0}


@dataclass(frozen=True)
class Growing:
    """The layout of a growing container; see native/core/src/python/containers/slack.rs.

    Offsets in the object: the items it holds, the items it has room for, its buffer and, or -1, the first item in the
    buffer. ``item``: the bytes of an item; ``behind``: the bytes needed after the last one."""

    name: str
    size_at: int
    allocated_at: int
    data_at: int
    first_at: int
    item: int
    behind: int


@dataclass(frozen=True)
class Slack:
    """The room of all containers of one type, in bytes.

    ``small``: inside pages in use. ``pages``: in whole resident pages. ``most``: both together, of the container at
    ``address`` that has most."""

    type: str
    count: int
    small: int
    pages: int
    most: int
    address: int


def find_slack(target: Target, objects: Objects, names: Collection[str], most: int | None = None) -> list[Slack]:
    """Return the room of all containers of the types in ``names`` (list, bytearray, dict, set).

    It is exact or, with ``most``, an estimate from at most that many pools of each size. The table of a dict or set
    counts if it has at least four times the slots that its copy would have."""
    release = objects.release
    growing = [one for one in growing_of(release) if one.name in names]
    tables = [one for one in tables_of(release) if one.name in names]
    rows = _native.list_slack(
        objects.heaps,
        objects.layout,
        target.pages,
        growing,
        tables,
        [_sizes(objects, name) for name in names],
        most,
    )
    types = [one.name for one in growing] + [one.name for one in tables]
    return [Slack(name, row.containers, row.small, row.pages, row.most, row.address) for name, row in zip(types, rows)]


def growing_of(release: Release) -> list[Growing]:
    """Return the fields of a list and of a bytearray."""
    at = release.at
    # Since 3.4 a byte array's data may begin inside its buffer: bytes deleted from the front stay in the buffer.
    start = release.get("bytearray_start")
    alloc, data, first = release["bytearray_alloc"], release["bytearray_bytes"], -1 if start is None else start
    # Up to 3.14 there is a zero byte after the data, which counts as its own; since 3.15 it belongs to the bytes
    # object.
    behind = 0 if release.get("bytearray_is_bytes") else 1
    return [
        Growing("list", at(OB_SIZE), release["ob_item"] + POINTER, release["ob_item"], -1, POINTER, 0),
        Growing("bytearray", at(OB_SIZE), alloc, data, first, 1, behind),
    ]


def _sizes(objects: Objects, name: str) -> tuple[int, int]:
    """Return the smallest and largest size of blocks with such objects. Subclasses with more fields are left out."""
    layout, at = objects.layout, objects.release.at
    if name in ("list", "bytearray"):
        smallest, largest = at(40), at(MAX_HEAD)
        least = min(layout.gc_head + smallest, largest - MAX_DEBUG_BYTES // 2)
        return layout.hook + least, layout.hook + max(layout.gc_head + smallest, largest) + MAX_DEBUG_BYTES
    head = objects.release["sizeof_dict"] if name == "dict" else at(SET_HEAD)
    smallest = layout.hook + layout.gc_head + head
    return smallest, smallest + SUBCLASS[name] + (MAX_DEBUG_BYTES if layout.hook else MAX_ROUNDING)
