"""Read Python objects from memory without running code: the characters of a str, the entries of a dict.

All reads are bounded. If the memory cannot be such an object, the result is None, never a guess.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence

from gdbheap.contents.python.objects import python2
from gdbheap.contents.python.objects.bounded_reads import ReadableMemory
from gdbheap.errors import Fault
from gdbheap.layout.cpython import Release

MAX_TEXT_LENGTH = 200
MAX_ENTRIES = 1 << 20
ENTRIES_AT_ONCE = 64
# The number of entries that all lookups together may read at first, and how many more after each lookup. Most lookups
# are in types; a type takes 1 KB and has fewer than MORE_ENTRIES methods.
FIRST_ENTRIES, MORE_ENTRIES = 1 << 18, 128
COMPACT, ASCII = 1 << 5, 1 << 6
WIDTHS = {1: "B", 2: "H", 4: "I"}
WIDE = 4


class Allowance:
    """The number of dict entries that may still be read. Without a limit, many forged dicts could share one large
    table.
    """

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, table: int, count: int) -> None:
        """Count entries of a table before they are read. Raises Fault if there are too many."""
        self.left -= count
        if self.left < 0:
            raise Fault(table)


class Lookups(Allowance):
    """Looks for keys in many dicts; the allowance grows with each lookup.

    The addresses of keys that were found are cached: most keys are interned, so equal keys are the same object."""

    def __init__(self) -> None:
        super().__init__(FIRST_ENTRIES)
        self._known: dict[str, set[int]] = {}

    def begin(self, name: str) -> set[int]:
        """Begin the search of one more dict: return the known addresses of the key ``name``, and increase the
        allowance.
        """
        self.left = max(self.left, 0) + MORE_ENTRIES
        return self._known.setdefault(name, set())

    def add(self, name: str, key: int) -> None:
        """Remember the address of the key ``name``, so that it is not read again in other dicts."""
        self._known[name].add(key)


def read_str(space: ReadableMemory, release: Release, address: int, limit: int = MAX_TEXT_LENGTH) -> str | None:
    """Return the first ``limit`` characters of the ``str`` at ``address``; None if it cannot be read or is not a
    str."""
    try:
        if release.get("unicode_state") is None:
            return python2.read_unicode(space, release, address, limit)
        found = _characters(space, release, address)
        if found is None:
            return None
        data, width, length = found
        count = min(length, limit)
        raw = space.read(data, count * width)
    except Fault:
        return None
    try:
        # Two adjacent surrogates count as two characters here.
        codes = raw if width == 1 else struct.unpack(f"<{count}{WIDTHS[width]}", raw)
        return "".join(map(chr, codes))
    except (ValueError, OverflowError):  # a code beyond the last character, or beyond a C int
        return None


def str_length(space: ReadableMemory, release: Release, address: int) -> int:
    """Return the number of characters of the ``str`` at ``address``; 0 if it cannot be a str. Raises Fault."""
    if release.get("unicode_state") is None:
        return _plausible(space.word(address + release["unicode_length"]))
    found = _characters(space, release, address)
    return found[2] if found is not None else 0


def _characters(space: ReadableMemory, release: Release, address: int) -> tuple[int, int, int] | None:
    """Return the address of a str's characters, their width, and their number (PEP 393); None if it is not a str.

    In a compact str the characters follow the header, in others the header points to them. Up to 3.11, a str that was
    not made ready has only wide characters."""
    length = space.word(address + release["unicode_length"])
    # Since 3.14, the bits of the state are shifted by a byte in free-threaded builds.
    state = space.u32(address + release["unicode_state"]) >> (release.get("unicode_state_shift") or 0)
    width = state >> 2 & 7
    wide = release.get("unicode_wstr")
    if width == 0 and wide is not None and not state & COMPACT:
        return space.word(address + wide), WIDE, _plausible(space.word(address + release["unicode_wstr_length"]))
    if width not in WIDTHS or length > 1 << 40:
        return None
    if not state & COMPACT:
        return space.word(address + release["unicode_data"]), width, length
    return address + release["sizeof_ascii" if state & ASCII else "sizeof_compact"], width, length


def _plausible(length: int) -> int:
    return length if length <= 1 << 40 else 0


def read_name(space: ReadableMemory, release: Release, address: int, limit: int) -> str | None:
    """Return the first ``limit`` characters of the identifier at ``address``; None if it cannot be read.

    It is a ``str``, in Python 2 a byte string.
    """
    if release.get("unicode_state") is not None:
        return read_str(space, release, address, limit)
    try:
        return python2.read_bytes(space, release, address, limit)
    except Fault:
        return None


def dict_items(
    space: ReadableMemory, release: Release, address: int, allowance: Allowance | None = None
) -> Iterator[tuple[int, int]]:
    """Yield (address of the key, address of the value) of each entry of the dict at ``address``, in order.

    Raises Fault, also if the ``allowance`` is used up.
    """
    if release.get("ma_table") is not None:
        return python2.dict_items(space, release, address, None if allowance is None else allowance.take)
    keys = space.word(address + release["ma_keys"])
    values = space.word(address + release["ma_values"])
    if values:
        return shared_items(space, release, keys, values, allowance)
    entries = _entries(space, release, keys, allowance=allowance)
    return ((key, value) for key, value in entries if key and value)


def entry_reader(space: ReadableMemory, release: Release, address: int, key: int) -> Callable[[int], int] | None:
    """Return a function that returns the value of ``key`` in another dict.

    It returns 0 unless the key has the same index there as in the dict at ``address``, so it is fast. Return None if
    the dict at ``address`` lacks the key, or if the value cannot be found by this index alone. Raises Fault.
    """
    if release.get("ma_table") is not None:
        return python2.entry_reader(space, release, address, key)
    own = space.word(address + release["ma_keys"])
    index = next((place for place, (found, _value) in enumerate(_entries(space, release, own)) if found == key), None)
    if index is None:
        return None
    shared, header = bool(space.word(address + release["ma_values"])), release.get("values_header")
    if shared and header is not None:
        return None

    def read(other: int) -> int:
        keys = space.word(other + release["ma_keys"])
        values = space.word(other + release["ma_values"])
        if values or shared:
            return space.word(values + space.machine.word * index) if values and shared and keys == own else 0
        if space.word(keys + release["dk_nentries"]) <= index:
            return 0
        start, general = _entries_start(space, release, keys)
        at = start + (24 * index + 8 if general else 16 * index)
        return space.word(at + 8) if space.word(at) == key else 0

    return read


def shared_items(
    space: ReadableMemory, release: Release, keys: int, values: int, allowance: Allowance | None = None
) -> Iterator[tuple[int, int]]:
    """Yield (address of the key, address of the value) of each entry of a dict, in order.

    ``keys``: the address of its keys, which several dicts share (PEP 412); ``values``: the address of its own values.
    """
    header = release.get("values_header")
    if header is None:
        for index, (key, _none) in enumerate(_entries(space, release, keys, allowance=allowance)):
            value = space.word(values + space.machine.word * index)
            if key and value:
                yield key, value
        return
    names = shared_names(space, release, keys, allowance)
    for index in _insertion_order(space, values, header):
        value = space.word(values + header + space.machine.word * index)
        if index < len(names) and names[index] and value:
            yield names[index], value


def shared_names(space: ReadableMemory, release: Release, keys: int, allowance: Allowance | None = None) -> list[int]:
    """Return the addresses of the keys that several dicts share, by index; 0 for a removed key. Raises Fault."""
    return [key for key, _none in _entries(space, release, keys, 256, allowance)]


def _insertion_order(space: ReadableMemory, values: int, header: int) -> bytes:
    """Return the indices of the values that are set, in the order in which they were set.

    In 3.11 and 3.12 the indices lie before the values, backwards; since 3.13 they lie after the values."""
    if not header:
        used = space.read(values - 2, 1)[0]
        return space.read(values - 2 - used, used)[::-1]
    capacity, used = space.read(values, 2)
    return space.read(values + header + space.machine.word * capacity, min(used, capacity))


def _entries(
    space: ReadableMemory, release: Release, keys: int, most: int = MAX_ENTRIES, allowance: Allowance | None = None
) -> Iterator[tuple[int, int]]:
    """Yield (address of the key, address of the value) of the first ``most`` entries of a keys object. Both are 0 in an
    empty entry.
    """
    count = min(space.word(keys + release["dk_nentries"]), most)
    start, general = _entries_start(space, release, keys)
    layout = space.machine.structure("PPP" if general else "PP")
    for first in range(0, count, ENTRIES_AT_ONCE):
        size = min(ENTRIES_AT_ONCE, count - first) * layout.size
        if allowance is not None:
            allowance.take(keys, size // layout.size)
        yield from (row[-2:] for row in layout.iter_unpack(space.read(start + first * layout.size, size)))


def _entries_start(space: ReadableMemory, release: Release, keys: int) -> tuple[int, bool]:
    """Return the address of a keys object's entries, and whether the entries contain the hash.

    They contain it in tables of kind 0, and in all tables up to 3.10.
    """
    indices = keys + release["dk_indices"]
    if release.get("dk_kind") is not None:
        log2_bytes = space.read(keys + release["dk_log2_index_bytes"], 1)[0]
        return indices + (1 << min(log2_bytes, 48)), space.read(keys + release["dk_kind"], 1)[0] == 0
    size = space.word(keys + release["dk_size"])
    return indices + size * index_width(size), True


def index_width(slots: int) -> int:
    """Return the number of bytes of an index in a keys object with ``slots`` slots."""
    return 1 if slots <= 0xFF else 2 if slots <= 0xFFFF else 4 if slots <= 0xFFFFFFFF else 8


def dict_lookup(space: ReadableMemory, release: Release, address: int, name: str, lookups: Lookups) -> int | None:
    """Return the value of the str key ``name``; None if the dict does not have it.

    Raises Fault, also if the allowance of ``lookups`` is used up."""
    return dict_lookups(space, release, address, (name,), lookups).get(name)


def dict_lookups(
    space: ReadableMemory, release: Release, address: int, names: Sequence[str], lookups: Lookups
) -> dict[str, int]:
    """Return, by key, the values of those str keys in ``names`` that the dict has. Raises the error of
    ``dict_lookup``."""
    found: dict[str, int] = {}
    others: list[tuple[int, int]] = []
    known = {key: name for name in names for key in lookups.begin(name)}
    for key, value in dict_items(space, release, address, lookups):
        if key not in known:
            others.append((key, value))
            continue
        found.setdefault(known[key], value)
        if len(found) == len(names):
            return found
    longest = max(map(len, names))
    for key, value in others:
        name = read_name(space, release, key, longest + 1)
        if name is not None and name in names and name not in found:
            lookups.add(name, key)
            found[name] = value
            if len(found) == len(names):
                break
    return found
