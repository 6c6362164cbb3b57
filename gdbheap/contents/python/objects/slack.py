"""Containers that have room for more than they hold: which fields say so."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from gdbheap import _native
from gdbheap.contents.python.objects.census import Objects
from gdbheap.contents.python.objects.hash_tables import tables_of
from gdbheap.layout.cpython import OB_SIZE, Release
from gdbheap.targets.target import Target

POINTER = 8
# The largest of the heads of lists and byte arrays; what rounding may add to a block, and debug hooks with it.
MAX_HEAD, MAX_ROUNDING, MAX_DEBUG_BYTES = 64, 15, 32
# sizeof(PySetObject), and what subclasses may add: those of sets are left out, because many small blocks are of their
# size.
SET_HEAD = 200
SUBCLASS = {"dict": 16, "set": 0}


@dataclass(frozen=True)
class Growing:
    """Offsets from an object: the items it holds, those it has room for, its buffer, and (or -1) the first item in
    there; bytes of an item, and those needed after the last one. See native/core/src/python/containers/slack.rs."""

    name: str
    size_at: int
    allocated_at: int
    data_at: int
    first_at: int
    item: int
    behind: int


@dataclass(frozen=True)
class Slack:
    """Containers of one type with such room: ``small`` bytes of it inside of pages in use, ``pages`` bytes in whole
    resident pages, and what the one at ``address`` has of both, the ``most``."""

    type: str
    count: int
    small: int
    pages: int
    most: int
    address: int


def find_slack(target: Target, objects: Objects, names: Collection[str], most: int | None = None) -> list[Slack]:
    """The room of all containers of the types in ``names`` (list, bytearray, dict, set), exactly; with ``most`` an
    estimate from at most that many pools of each size.

    A table of a dict or set counts if it has four times the slots that its copy would have, or more."""
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
    """The fields of a list and of a bytearray."""
    at = release.at
    # Since 3.4 a byte array's data may begin inside of its buffer: what was cut off in front stays.
    start = release.get("bytearray_start")
    alloc, data, first = release["bytearray_alloc"], release["bytearray_bytes"], -1 if start is None else start
    # Up to 3.14 it has a byte 0 behind its data, which counts as its own; since 3.15 that is the bytes object's.
    behind = 0 if release.get("bytearray_is_bytes") else 1
    return [
        Growing("list", at(OB_SIZE), release["ob_item"] + POINTER, release["ob_item"], -1, POINTER, 0),
        Growing("bytearray", at(OB_SIZE), alloc, data, first, 1, behind),
    ]


def _sizes(objects: Objects, name: str) -> tuple[int, int]:
    """The sizes of blocks that hold such objects; subclasses with more fields are left out."""
    layout, at = objects.layout, objects.release.at
    if name in ("list", "bytearray"):
        smallest, largest = at(40), at(MAX_HEAD)
        least = min(layout.gc_head + smallest, largest - MAX_DEBUG_BYTES // 2)
        return layout.hook + least, layout.hook + max(layout.gc_head + smallest, largest) + MAX_DEBUG_BYTES
    head = objects.release["sizeof_dict"] if name == "dict" else at(SET_HEAD)
    smallest = layout.hook + layout.gc_head + head
    return smallest, smallest + SUBCLASS[name] + (MAX_DEBUG_BYTES if layout.hook else MAX_ROUNDING)
