"""Find containers whose capacity is far larger than their contents."""

from __future__ import annotations

from collections.abc import Collection

from gdbheap import _native
from gdbheap.contents.python.objects.census import Objects
from gdbheap.contents.python.objects.hash_tables import tables_of
from gdbheap.dataclass import dataclass
from gdbheap.layout.cpython import OB_SIZE, Release
from gdbheap.targets.target import Target

POINTER = 8
# The largest header of lists and bytearrays; the most bytes that rounding adds to a block; the most bytes that rounding
# and debug hooks add together.
MAX_HEAD, MAX_ROUNDING, MAX_DEBUG_BYTES = 64, 15, 32
# sizeof(PySetObject), and how many bytes more an object of a subclass may have. Subclasses of set are left out, because
# many other blocks have the sizes of their objects.
SET_HEAD = 200
SUBCLASS = {"dict": 16, "set": 0}


@dataclass(frozen=True)
class GrowingLayout:
    """The layout of a growing container; see native/core/src/python/containers/slack.rs.

    Offsets in the object:
    ``size_at``: the number of its items.
    ``allocated_at``: the number of items for which it has room.
    ``data_at``: its buffer.
    ``first_at``: the pointer to the first item in the buffer; -1 if the first item is at the buffer's beginning.

    ``item``: the bytes of an item.
    ``behind``: the bytes needed after the last item.
    """

    name: str
    size_at: int
    allocated_at: int
    data_at: int
    first_at: int
    item: int
    behind: int


@dataclass(frozen=True)
class Slack:
    """The unused capacity of all containers of one type, in bytes.

    ``small``: the part in pages that also hold items.
    ``pages``: the part in whole resident pages.
    ``most``: the most unused capacity of a single container, which is at ``address``.
    """

    type: str
    count: int
    small: int
    pages: int
    most: int
    address: int


def find_slack(target: Target, objects: Objects, names: Collection[str], most: int | None = None) -> list[Slack]:
    """Return the unused capacity of all containers of the types in ``names`` (list, bytearray, dict, set).

    Without ``most`` the result is exact; with ``most`` it is an estimate from at most ``most`` pools of each size. The
    table of a dict or set counts only if it has at least four times the slots that a copy needs.
    """
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


def growing_of(release: Release) -> list[GrowingLayout]:
    """Return the layouts of a list and of a bytearray, in this order."""
    at = release.at
    # Since 3.4 the data of a bytearray may begin inside its buffer: bytes deleted from the front stay in the buffer.
    start = release.get("bytearray_start")
    alloc, data, first = release["bytearray_alloc"], release["bytearray_bytes"], -1 if start is None else start
    # Up to 3.14 the zero byte after the data is part of the data; since 3.15 it is part of the bytes object.
    behind = 0 if release.get("bytearray_is_bytes") else 1
    return [
        GrowingLayout("list", at(OB_SIZE), release["ob_item"] + POINTER, release["ob_item"], -1, POINTER, 0),
        GrowingLayout("bytearray", at(OB_SIZE), alloc, data, first, 1, behind),
    ]


def _sizes(objects: Objects, name: str) -> tuple[int, int]:
    """Return the smallest and the largest size in bytes of the blocks that may hold objects of this type.

    The blocks of subclasses with more fields are larger, and are left out.
    """
    layout, at = objects.layout, objects.release.at
    if name in ("list", "bytearray"):
        smallest, largest = at(40), at(MAX_HEAD)
        least = min(layout.gc_head + smallest, largest - MAX_DEBUG_BYTES // 2)
        return layout.hook + least, layout.hook + max(layout.gc_head + smallest, largest) + MAX_DEBUG_BYTES
    head = objects.release["sizeof_dict"] if name == "dict" else at(SET_HEAD)
    smallest = layout.hook + layout.gc_head + head
    return smallest, smallest + SUBCLASS[name] + (MAX_DEBUG_BYTES if layout.hook else MAX_ROUNDING)
