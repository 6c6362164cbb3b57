"""Find out from a target's memory whether a large container has grown lately."""

from __future__ import annotations

import struct
from contextlib import suppress

from gdbheap.contents.python.objects.census import Objects
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault, GdbheapError
from gdbheap.heap import Heap

# The latest change of any dict is searched only among at most this many dicts.
MAX_DICTS = 200_000
MIN_DICTS_THAT_EXCEED = 3
# A container has stopped growing if it did not change during MIN_CHANGES changes of other dicts, and during the average
# time that it took to gain MIN_ENTRIES entries.
MIN_ENTRIES, MIN_CHANGES = 20, 1000


@dataclass(frozen=True)
class Age:
    """How long ago a container was last changed, measured in changes of all dicts.

    ``changes``: how often dicts were changed since the container's last change; ``total``: how often dicts were changed
    since the interpreter's start. Both are lower bounds; None if unknown.
    """

    changes: int | None = None
    total: int | None = None

    @property
    def is_known(self) -> bool:
        """Whether it is known when the container was last changed."""
        return self.changes is not None

    def has_stopped(self, kept: int) -> bool:
        """Return whether a container of ``kept`` entries has stopped growing.

        It has stopped if it did not change during MIN_CHANGES changes of dicts, and during the average time in which it
        gained MIN_ENTRIES entries.
        """
        if self.changes is None or self.total is None:
            return False
        return self.changes >= MIN_CHANGES and self.changes * kept >= MIN_ENTRIES * self.total


def is_shared(heap: Heap, start: int, end: int) -> bool:
    """Return whether the range [start, end) has resident pages and other processes share all of them."""
    found = heap.target.sharing(start, end)
    return found is not None and found[0] == 0 and found[1] > 0


def age_of(heap: Heap, objects: Objects, address: int, type_name: str) -> Age:
    """Return the age of the container at ``address``, of type ``type_name``; it is unknown for all types but dict."""
    if type_name != "dict":
        return Age()
    own, latest = _version(objects, address), _latest(heap, objects)
    if own is None or latest is None:
        return Age()
    return Age(max(latest - own, 0), latest)


def _version(objects: Objects, address: int) -> int | None:
    """Return a dict's version tag: the interpreter's count of changes of dicts when this dict was last changed (PEP
    509).

    None if this release of Python has no version tags, or if the tag cannot be read.
    """
    at, unit = objects.release.get("ma_version_tag"), objects.release.get("dict_version_unit")
    if at is None or unit is None:
        return None
    with suppress(Fault, OverflowError, struct.error):
        return objects.target.space.word(address + at) // unit
    return None


def _latest(heap: Heap, objects: Objects) -> int | None:
    """Return the largest version tag of a dict that at least MIN_DICTS_THAT_EXCEED dicts have reached.

    Each change of any dict raises the interpreter's counter, and the dict gets the new number as its version tag (PEP
    509). A block that only looks like a dict may have any number, so the few largest numbers are ignored. None if there
    are too few dicts, more than MAX_DICTS, or if they cannot be read.
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
