"""Make texts of Python values that have no parts. A text that is not cut equals repr()."""

from __future__ import annotations

import struct

from gdbheap.contents.python.objects.bounded_reads import ReadableMemory, signed_word
from gdbheap.contents.python.objects.reading import read_str, str_length
from gdbheap.contents.python.text.disclosure import hidden
from gdbheap.layout.cpython import OB_SIZE, Release

CUT = "…"
FIRST_FIELD = 16
DIGIT_BITS = 30
HEAD_DIGITS = 4


class Damaged(Exception):
    """Raised if the memory of an object holds no valid value."""


def str_text(memory: ReadableMemory, release: Release, address: int, limit: int) -> str:
    """Return the text of the str at ``address``, cut at ``limit`` characters. Raises Fault, Damaged."""
    text = read_str(memory, release, address, limit)
    if text is None:
        raise Damaged
    return _cut(repr(text), str_length(memory, release, address), limit)


def length_text(memory: ReadableMemory, release: Release, address: int, family: str) -> str:
    """Return the text that replaces a str, bytes or bytearray object whose contents are hidden. Raises Fault."""
    if family == "str":
        return hidden(family, str_length(memory, release, address))
    return hidden(family, memory.word(address + release.at(OB_SIZE)))


def bytes_text(memory: ReadableMemory, release: Release, address: int, limit: int) -> str:
    """Return the text of the bytes object at ``address``, cut at ``limit`` bytes. Raises Fault."""
    data, size = _bytes(memory, release, address, address + release["bytes_data"], limit)
    return _cut(repr(data), size, limit)


def bytearray_text(memory: ReadableMemory, release: Release, address: int, limit: int) -> str:
    """Return the text of the bytearray at ``address``, whose bytes begin at ``ob_start``, cut at ``limit``. Raises
    Fault."""
    data, size = _bytes(memory, release, address, memory.word(address + release["bytearray_start"]), limit)
    text = repr(data)
    if release.get("bytearray_escapes") and text[1] == '"':
        text = text.replace("'", "\\'")
    return _cut(f"bytearray({text})", size, limit)


def _bytes(memory: ReadableMemory, release: Release, address: int, start: int, limit: int) -> tuple[bytes, int]:
    """Return (the first ``limit`` bytes at ``start``, the total number of bytes) of the bytes or bytearray at
    ``address``.
    """
    size = memory.word(address + release.at(OB_SIZE))
    return memory.read(start, min(size, limit)) if size else b"", size


def _cut(text: str, length: int, limit: int) -> str:
    return text if length <= limit else f"{text}{CUT} ({length:,} in all)"


def int_text(memory: ReadableMemory, release: Release, address: int, limit: int) -> str:
    """Return the text of the int at ``address``. Raises Fault, Damaged. The text is decimal. If the int has more than
    about ``limit`` digits, the text has only the upper digits, in hexadecimal."""
    count, sign = _digits(memory, release, address)
    start = address + release["ob_digit"]
    if count <= HEAD_DIGITS or count * DIGIT_BITS * 3 <= limit * 10:
        return str(sign * _number(memory, start, count))
    top = _number(memory, start + 4 * (count - HEAD_DIGITS), HEAD_DIGITS)
    below = (count - HEAD_DIGITS) * DIGIT_BITS
    # Only whole hexadecimal digits may be left out.
    return f"{hex(sign * (top >> -below % 4))}{CUT} ({below + top.bit_length():,} bits in all)"


def bool_text(memory: ReadableMemory, release: Release, address: int) -> str:
    """Return the text of the bool at ``address``: "True" or "False". Raises Fault, Damaged."""
    count, _sign = _digits(memory, release, address)
    return str(bool(_number(memory, address + release["ob_digit"], min(count, 1))))


def _digits(memory: ReadableMemory, release: Release, address: int) -> tuple[int, int]:
    """Return the number of 30-bit digits of an int, and its sign. They are in ob_size up to 3.11, and in lv_tag since
    3.12.
    """
    tag = signed_word(memory, address + release.at(OB_SIZE))
    if release.get("lv_tag") is None:
        return abs(tag), -1 if tag < 0 else 1
    if tag < 0 or tag & 3 == 3:
        raise Damaged
    return tag >> 3, 1 - (tag & 3)


def _number(memory: ReadableMemory, start: int, count: int) -> int:
    digits = struct.unpack(f"<{count}I", memory.read(start, 4 * count)) if count else ()
    if any(digit >> DIGIT_BITS for digit in digits):
        raise Damaged
    return sum(digit << (DIGIT_BITS * place) for place, digit in enumerate(digits))


def float_text(memory: ReadableMemory, release: Release, address: int) -> str:
    """Return the text of the float at ``address``. Raises Fault."""
    return repr(struct.unpack("<d", memory.read(address + release.at(FIRST_FIELD), 8))[0])


def complex_text(memory: ReadableMemory, release: Release, address: int) -> str:
    """Return the text of the complex at ``address``. Raises Fault."""
    return repr(complex(*struct.unpack("<dd", memory.read(address + release.at(FIRST_FIELD), 16))))
