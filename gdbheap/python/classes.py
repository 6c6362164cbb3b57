"""Names of C++ classes of objects with a vtable, by their run-time type information: no symbols needed.

The first word of such an object points to its vtable, the word before which points to the ``type_info``, whose second
word points to the mangled name (Itanium C++ ABI, 2.9.5).
"""

from __future__ import annotations

import re

from gdbheap.errors import Fault
from gdbheap.target.target import Target

MAX_NAME_BYTES = 200
_PART = re.compile(rb"(\d+)")


def class_name(target: Target, address: int) -> str | None:
    """The class of the C++ object at ``address``; None when its first word is no vtable's."""
    try:
        vtable = target.space.word(address)
        if target.object_of(vtable) is None:
            return None
        info = target.space.word(vtable - 8)
        if target.object_of(info) is None:
            return None
        mangled = target.space.cstring(target.space.word(info + 8), MAX_NAME_BYTES)
    except Fault:
        return None
    return plain_name(mangled)


def plain_name(mangled: bytes) -> str | None:
    """``arrow::Buffer`` for ``N5arrow6BufferE``, ``std::exception`` for ``St9exception``; the mangled name where it has
    template arguments; None for others."""
    text = mangled.lstrip(b"*")
    if not re.fullmatch(rb"(N|St|\d)[\w$.]+", text):
        return None
    nested = text.startswith(b"N") and text.endswith(b"E")
    parts: list[str] = []
    rest = text[1:-1] if nested else text
    if rest.startswith(b"St"):
        parts, rest = ["std"], rest[2:]
    while rest:
        digits = _PART.match(rest)
        if digits is None or not 0 < int(digits[1]) <= len(rest) - digits.end():
            return text.decode("ascii", "replace") if parts else None
        end = digits.end() + int(digits[1])
        parts.append(rest[digits.end() : end].decode("ascii", "replace"))
        rest = rest[end:]
    return "::".join(parts) if parts != ["std"] else None
