"""Reading Python objects from memory, without running anything: str, dict, and a short text of simple ones.

Everything is bounded; what does not look like the object it should be is None, never a guess.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from gdbheap._native import Space
from gdbheap.errors import Fault
from gdbheap.layout.cpython import (
    FLAG_BYTES,
    FLAG_DICT,
    FLAG_INT,
    FLAG_LIST,
    FLAG_TUPLE,
    FLAG_UNICODE,
    OB_SIZE,
    Release,
)
from gdbheap.objects import python2

LONGEST_TEXT = 200
MOST_ENTRIES = 1 << 20
MOST_DIGITS = 1 << 10
COMPACT, ASCII = 1 << 5, 1 << 6
ENCODINGS = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}
DIGIT_BITS = 30


def read_str(space: Space, release: Release, address: int, limit: int = LONGEST_TEXT) -> str | None:
    """The first ``limit`` characters of the ``str`` at ``address``; None when it is not to be read or is none."""
    try:
        if release.get("unicode_state") is None:
            return python2.read_unicode(space, release, address, limit)
        length = space.u64(address + release["unicode_length"])
        state = space.u32(address + release["unicode_state"])
        kind = state >> 2 & 7
        if kind not in ENCODINGS or length > 1 << 40:
            return None
        data = _data_address(space, release, address, state)
        raw = space.read(data, min(length, limit) * kind)
    except Fault:
        return None
    return raw.decode(ENCODINGS[kind], "replace")


def _data_address(space: Space, release: Release, address: int, state: int) -> int:
    """Compact strings carry their characters behind the header; others point to them (PEP 393)."""
    if not state & COMPACT:
        return space.u64(address + release["unicode_data"])
    return address + release["sizeof_ascii" if state & ASCII else "sizeof_compact"]


def read_name(space: Space, release: Release, address: int, limit: int) -> str | None:
    """The identifier at ``address``: a ``str``, which in Python 2 is a byte string."""
    if release.get("unicode_state") is not None:
        return read_str(space, release, address, limit)
    try:
        return python2.read_bytes(space, release, address, limit)
    except Fault:
        return None


def dict_items(space: Space, release: Release, address: int) -> Iterator[tuple[int, int]]:
    """(key, value) addresses of the combined-table dict at ``address``. Raises Fault."""
    if release.get("ma_table") is not None:
        yield from python2.dict_items(space, release, address)
        return
    keys = space.u64(address + release["ma_keys"])
    entries = space.u64(keys + release["dk_nentries"])
    start, general = _entries(space, release, keys)
    size = 24 if general else 16
    raw = space.read(start, min(entries, MOST_ENTRIES) * size)
    for entry in struct.iter_unpack("<QQQ" if general else "<QQ", raw):
        key, value = entry[-2:]
        if key and value:
            yield key, value


def _entries(space: Space, release: Release, keys: int) -> tuple[int, bool]:
    """Where a keys object's entries start, and whether they hold the hash too (kind 0, and all up to 3.10)."""
    indices = keys + release["dk_indices"]
    if release.get("dk_kind") is not None:
        log2_bytes = space.read(keys + release["dk_log2_index_bytes"], 1)[0]
        return indices + (1 << min(log2_bytes, 48)), space.read(keys + release["dk_kind"], 1)[0] == 0
    size = space.u64(keys + release["dk_size"])
    width = 1 if size <= 0xFF else 2 if size <= 0xFFFF else 4 if size <= 0xFFFFFFFF else 8
    return indices + size * width, True


def dict_lookup(space: Space, release: Release, address: int, name: str, known: set[int]) -> int | None:
    """The value of the str key ``name``; ``known`` keeps addresses of equal keys (interned) between calls."""
    others: list[tuple[int, int]] = []
    for key, value in dict_items(space, release, address):
        if key in known:
            return value
        others.append((key, value))
    for key, value in others:
        if read_name(space, release, key, len(name) + 1) == name:
            known.add(key)
            return value
    return None


def short_text(space: Space, release: Release, address: int, flags: int, type_name: str) -> str | None:
    """A bounded repr of the object at ``address`` whose type has ``flags``: values of str, bytes, int and float,
    lengths of containers. None when it cannot be read."""
    try:
        if flags & FLAG_UNICODE:
            text = read_str(space, release, address)
            return None if text is None else _cut(repr(text), space.u64(address + release["unicode_length"]))
        if flags & FLAG_BYTES:
            size = space.u64(address + OB_SIZE)
            return _cut(repr(space.read(address + release["bytes_data"], min(size, LONGEST_TEXT))), size)
        if flags & FLAG_INT:
            return _int_text(space, release, address)
        if type_name == "float":
            return repr(struct.unpack("<d", space.read(address + 16, 8))[0])
        if flags & (FLAG_LIST | FLAG_TUPLE | FLAG_DICT):
            count = space.u64(address + OB_SIZE)
            return f"{count} {'entries' if flags & FLAG_DICT else 'items'}"
    except Fault:
        return None
    return None


def _cut(text: str, length: int) -> str:
    return text if length <= LONGEST_TEXT else f"{text}… ({length} in all)"


def _int_text(space: Space, release: Release, address: int) -> str | None:
    """Digits of 30 bits; the count and the sign are in ob_size up to 3.11, in lv_tag since 3.12."""
    (tag,) = struct.unpack("<q", space.read(address + OB_SIZE, 8))
    if release.get("lv_tag") is None:
        count, sign = abs(tag), -1 if tag < 0 else 1
    else:
        count, sign = tag >> 3, 1 - (tag & 3)
    if count > MOST_DIGITS:
        return f"an integer of {count * DIGIT_BITS} bits"
    digits = struct.unpack(f"<{count}I", space.read(address + release["ob_digit"], 4 * count))
    value = sign * sum(digit << (DIGIT_BITS * place) for place, digit in enumerate(digits))
    return hex(value) if count > 8 else str(value)
