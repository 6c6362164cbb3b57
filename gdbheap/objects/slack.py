"""Containers that have room for more than they hold: which fields say so."""

from __future__ import annotations

from dataclasses import dataclass

from gdbheap import _native
from gdbheap.layout.cpython import OB_SIZE, Release
from gdbheap.objects.census import Objects
from gdbheap.target.target import Target

POINTER = 8
# The largest of their heads, and what rounding and debug hooks may add to a block.
LARGEST_HEAD, ROUNDING = 64, 32


@dataclass(frozen=True)
class Growing:
    """Offsets from an object: the items it holds, those it has room for, its buffer, and (or -1) the first item in
    there; bytes of an item, and those needed behind the last one. See native/src/slack.rs."""

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


def find_slack(target: Target, objects: Objects, most: int | None = None) -> list[Slack]:
    """The room of all lists and byte arrays, exactly; with ``most`` what so many pools of each size say of all."""
    growing = _growing(objects.release)
    rows = _native.list_slack(
        target.space,
        objects.chunks,
        objects.python.pools,
        objects.mapped,
        objects.layout,
        target.pages,
        growing,
        _sizes(objects),
        most,
    )
    return [Slack(one.name, *row) for one, row in zip(growing, rows)]


def _growing(release: Release) -> list[Growing]:
    at = release.at
    # Since 3.4 a byte array's data may begin inside of its buffer: what was cut off in front stays.
    alloc, data, first = (32, 40, -1) if release.get("bytearray_start") is None else (at(24), at(32), at(40))
    return [
        Growing("list", at(OB_SIZE), release["ob_item"] + POINTER, release["ob_item"], -1, POINTER, 0),
        Growing("bytearray", at(OB_SIZE), alloc, data, first, 1, 1),
    ]


def _sizes(objects: Objects) -> tuple[int, int]:
    """Blocks of which sizes hold lists and byte arrays; subclasses with more fields are left out."""
    layout, (smallest, largest) = objects.layout, (objects.release.at(40), objects.release.at(LARGEST_HEAD))
    least = min(layout.gc_head + smallest, largest - ROUNDING // 2)
    return layout.hook + least, layout.hook + max(layout.gc_head + smallest, largest) + ROUNDING
