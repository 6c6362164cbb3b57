"""Read objects of Python 2 that differ from objects of Python 3.

Names are byte strings, a dict has a single table, and the characters of ``unicode`` lie in another block.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from gdbheap.contents.python.objects.bounded_reads import ReadableMemory
from gdbheap.layout.cpython import OB_SIZE, Release

MAX_SLOTS = 1 << 20
MAX_CHARACTERS = 1 << 40


def read_bytes(space: ReadableMemory, release: Release, address: int, limit: int) -> str | None:
    """Return the first ``limit`` bytes of the byte string at ``address`` as text; None if it cannot be one. Raises
    Fault."""
    size = space.word(address + release.at(OB_SIZE))
    if size > MAX_CHARACTERS:
        return None
    return space.read(address + release["bytes_data"], min(size, limit)).decode("utf-8", "replace")


def dict_items(
    space: ReadableMemory, release: Release, address: int, take: Callable[[int, int], None] | None = None
) -> Iterator[tuple[int, int]]:
    """Yield (address of the key, address of the value) of each entry of the dict at ``address``. Raises Fault.

    A slot of the dict's table has a hash, a key and a value. ``take`` is called with the address of the table and its
    number of slots.
    """
    table = space.word(address + release["ma_table"])
    slots = space.word(address + release["ma_mask"]) + 1
    slot = space.machine.structure("PPP")
    slots = min(slots, MAX_SLOTS)
    if take is not None:
        take(table, slots)
    for _hash, key, value in slot.iter_unpack(space.read(table, slots * slot.size)):
        if key and value:
            yield key, value


def entry_reader(space: ReadableMemory, release: Release, address: int, key: int) -> Callable[[int], int] | None:
    """Return a function that returns the value of ``key`` in another dict.

    It returns 0 unless the key has the same slot there as in the dict at ``address``, so it is fast. Return None if the
    dict at ``address`` does not have the key. Raises Fault.
    """
    table, slots = space.word(address + release["ma_table"]), space.word(address + release["ma_mask"]) + 1
    layout, word = space.machine.structure("PPP"), space.machine.word
    raw = space.read(table, min(slots, MAX_SLOTS) * layout.size)
    slot = next((place for place, row in enumerate(layout.iter_unpack(raw)) if row[1] == key), None)
    if slot is None:
        return None

    def read(other: int) -> int:
        if space.word(other + release["ma_mask"]) < slot:
            return 0
        at = space.word(other + release["ma_table"]) + layout.size * slot
        return space.word(at + 2 * word) if space.word(at + word) == key else 0

    return read


def read_unicode(space: ReadableMemory, release: Release, address: int, limit: int) -> str | None:
    """Return the first ``limit`` characters of the ``unicode`` at ``address``; None if it cannot be one. Raises Fault.

    Builds differ in the width of a character (``--enable-unicode``). It is 4 bytes if all units of 4 bytes are code
    points, otherwise 2.
    """
    length = space.word(address + release["unicode_length"])
    if length > MAX_CHARACTERS:
        return None
    raw = space.read(space.word(address + release["unicode_data"]), min(length, limit) * 4)
    wide = all(unit < 0x110000 for (unit,) in struct.iter_unpack("<I", raw))
    return raw.decode("utf-32-le" if wide else "utf-16-le", "replace")[:limit]
