"""Tell whether a large container has grown lately, from what memory shows of it.

Pages that are still shared with a parent or child process were not written since the fork. CPython 3.6 to 3.13 records
the last change of a dict: ``ma_version_tag`` is the value that a counter of all dicts' changes had then (PEP 509; bits
below ``dict_version_unit`` are for watchers). Other containers record nothing.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import dataclass

from gdbheap.contents.python.objects.census import Objects
from gdbheap.errors import Fault, GdbheapError
from gdbheap.heap import Heap

# The latest change of any dict is searched only among at most this many dicts.
MAX_DICTS = 200_000
MIN_DICTS_THAT_EXCEED = 3
# A container has stopped growing if it has not changed for MIN_CHANGES changes of other dicts, and for as long as it
# took, on average, to gain MIN_ENTRIES entries.
MIN_ENTRIES, MIN_CHANGES = 20, 1000


@dataclass(frozen=True)
class Age:
    """The number of dict changes since a container's own last change, and since the start of the interpreter.

    ``changes`` counts those of other dicts since the container's last one; ``total`` those of all dicts. Both are
    minimums, None if nothing shows them.
    """

    changes: int | None = None
    total: int | None = None

    @property
    def is_known(self) -> bool:
        """Whether it is known when the container was last changed."""
        return self.changes is not None

    def has_stopped(self, kept: int) -> bool:
        """Return whether a container of ``kept`` entries has not changed for far longer than it took to gain some."""
        if self.changes is None or self.total is None:
            return False
        return self.changes >= MIN_CHANGES and self.changes * kept >= MIN_ENTRIES * self.total


def is_shared(heap: Heap, start: int, end: int) -> bool:
    """Return whether [start, end) has resident pages and all of them are shared with other processes."""
    found = heap.target.sharing(start, end)
    return found is not None and found[0] == 0 and found[1] > 0


def age_of(heap: Heap, objects: Objects, address: int, type_name: str) -> Age:
    """Return the age of the container at ``address``, of type ``type_name``; unknown for anything but a dict."""
    if type_name != "dict":
        return Age()
    own, latest = _version(objects, address), _latest(heap, objects)
    if own is None or latest is None:
        return Age()
    return Age(max(latest - own, 0), latest)


def _version(objects: Objects, address: int) -> int | None:
    """Return the number of the dict's last change; None if its Python release records none."""
    at, unit = objects.release.get("ma_version_tag"), objects.release.get("dict_version_unit")
    if at is None or unit is None:
        return None
    with suppress(Fault, OverflowError, struct.error):
        return objects.target.space.word(address + at) // unit
    return None


def _latest(heap: Heap, objects: Objects) -> int | None:
    """Return a change number that at least MIN_DICTS_THAT_EXCEED dicts reach; None if it cannot be found quickly.

    A block that only looks like a dict may have any number, so the largest ones are ignored.
    """
    try:
        census = heap.python.census
        kinds = {row.address: 0 for row in census.rows if objects.names.name(row.address) == "dict"}
        if not kinds or sum(row.live.count for row in census.rows if row.address in kinds) > MAX_DICTS:
            return None
        rows = objects.instances(kinds, set(census.contested), "address", None).rows
    except GdbheapError:
        return None
    versions = sorted(found for row in rows if (found := _version(objects, row.address)) is not None)
    return versions[-MIN_DICTS_THAT_EXCEED] if len(versions) >= MIN_DICTS_THAT_EXCEED else None
