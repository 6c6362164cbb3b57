"""Objects whose values can be compared without running code: str, bytes, numbers, and tuples of these. Also the lengths
of objects.
"""

from __future__ import annotations

from collections.abc import Mapping

from gdbheap.contents.python.objects.sizing import SizeFields, sizing
from gdbheap.contents.python.text.repr import SET_USED, Repr
from gdbheap.contents.python.text.scalars import FIRST_FIELD
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault, Unsupported
from gdbheap.layout.cpython import OB_SIZE, OB_TYPE, Release
from gdbheap.machines.machine import LARGEST_SIZE

# The numbers of the kinds in native/core/src/python/values.rs.
KINDS = {"str": 1, "bytes": 2, "int": 3, "float": 4, "complex": 5, "tuple": 6, "NoneType": 7, "bool": 7}
SINGLES = ("NoneType", "bool")
# The types whose len() is a field of the object itself.
SIZED = ("bytes", "list", "tuple")
# The offsets of cache and maxsize in lru_cache_object since 3.7.
CACHE, CACHE_LIMIT = 72, 96


@dataclass(frozen=True)
class Values:
    """The offsets in bytes of the values in objects, for the native half; see native/core/src/python/values.rs."""

    kinds: list[tuple[int, int]]
    sizing: SizeFields
    str_data: int
    bytes_data: int
    tuple_items: int
    ob_digit: int
    number: int


def values_of(release: Release, types: Mapping[int, str]) -> Values:
    """Return the offsets of the values in a release's objects.

    ``types``: {address of the type: its name}. Raises Unsupported for Python 2, which has two kinds of strings.
    """
    if release.get("unicode_state") is None:
        raise Unsupported(f"values are not compared in Python {release.text}, whose strings are of two kinds")
    return Values(
        kinds=[(address, KINDS[name]) for address, name in types.items() if name in KINDS],
        sizing=sizing(release),
        str_data=release["unicode_data"],
        bytes_data=release["bytes_data"],
        tuple_items=release["tuple_items"],
        ob_digit=release["ob_digit"],
        number=release.at(FIRST_FIELD),
    )


def length_at(release: Release, name: str) -> int | None:
    """Return the offset in bytes of the field for the length in objects of the built-in type ``name``; None if it has
    none.
    """
    if name == "str":
        return release.get("unicode_length")
    if name == "dict":
        return release.get("ma_used") or release.at(OB_SIZE)
    if name in ("set", "frozenset"):
        return release.at(SET_USED)
    if name == "bytearray" or name in SIZED:
        return release.at(OB_SIZE)
    return release["deque_length"] if name == "collections.deque" else None


@dataclass(frozen=True)
class CacheLimit:
    """The size of an lru_cache: its number of ``entries``, and their ``maximum`` (maxsize; -1 if it has no limit)."""

    entries: int
    maximum: int


def cache_limit(texts: Repr, address: int) -> CacheLimit | None:
    """Return the entries and the maxsize of the lru_cache at ``address``; None if unknown. They are unknown before 3.7,
    when an lru_cache had other fields.
    """
    release, space = texts.release, texts.space
    if (release.major, release.minor) < (3, 7):
        return None
    try:
        entries = length_of(texts, space.word(address + release.at(CACHE)))
        maximum = space.word(address + release.at(CACHE_LIMIT))
    except (Fault, OverflowError):
        return None
    return None if entries is None else CacheLimit(entries, -1 if maximum > LARGEST_SIZE else maximum)


def length_of(texts: Repr, address: int) -> int | None:
    """Return the number of items of the object at ``address``; None if it has no length, or if no object is there."""
    release, space = texts.release, texts.space
    try:
        kind = texts.kind(space.word(address + release.at(OB_TYPE)))
        at = None if kind is None else length_at(release, kind.family or kind.name)
        count = None if at is None else space.word(address + at)
    except (Fault, OverflowError):
        return None
    return count if count is not None and count <= LARGEST_SIZE else None
