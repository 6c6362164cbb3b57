"""Whether a large container has grown lately, by what memory tells of it.

Pages that are still shared with the process it was forked from, or that it forked, were not written since. Of dicts
CPython 3.6 to 3.13 keeps when they were changed last: ``ma_version_tag`` is what a counter of the changes of all dicts
was at then (PEP 509; bits below ``dict_version_unit`` are for watchers). Of other containers nothing tells.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import dataclass

from gdbheap.contents.python.objects.census import Objects
from gdbheap.errors import Fault, GdbheapError
from gdbheap.heap import Heap

# The latest change of any dict is looked for among at most this many.
MAX_DICTS = 200_000
MIN_DICTS_THAT_EXCEED = 3
# A container has stopped growing when it has not changed for as long as it took, on average, to gain this many entries,
# and for this many changes of other dicts.
MIN_ENTRIES, MIN_CHANGES = 20, 1000


@dataclass(frozen=True)
class Age:
    """``changes``: of other dicts since the container's own last one, ``total``: of all dicts since the interpreter was
    started; both at least, None where nothing tells."""

    changes: int | None = None
    total: int | None = None

    @property
    def is_known(self) -> bool:
        """Whether anything tells when the container was changed last."""
        return self.changes is not None

    def has_stopped(self, kept: int) -> bool:
        """Whether a container of ``kept`` entries has been left alone for far longer than it took to grow by some."""
        if self.changes is None or self.total is None:
            return False
        return self.changes >= MIN_CHANGES and self.changes * kept >= MIN_ENTRIES * self.total


def is_shared(heap: Heap, start: int, end: int) -> bool:
    """Whether the resident pages in [start, end) are all shared with other processes, and there are any."""
    found = heap.target.sharing(start, end)
    return found is not None and found[0] == 0 and found[1] > 0


def age_of(heap: Heap, objects: Objects, address: int, type_name: str) -> Age:
    """The age of the container at ``address``, of the type ``type_name``."""
    if type_name != "dict":
        return Age()
    own, latest = _version(objects, address), _latest(heap, objects)
    if own is None or latest is None:
        return Age()
    return Age(max(latest - own, 0), latest)


def _version(objects: Objects, address: int) -> int | None:
    """The number of the dict's last change; None where its release keeps none."""
    at, unit = objects.release.get("ma_version_tag"), objects.release.get("dict_version_unit")
    if at is None or unit is None:
        return None
    with suppress(Fault, OverflowError, struct.error):
        return objects.target.space.word(address + at) // unit
    return None


def _latest(heap: Heap, objects: Objects) -> int | None:
    """A high number of a change that a few of the dicts have or exceed: one that is no dict may have any number."""
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
