"""Write stacks as a profile for ``go tool pprof`` and other programs that read its format (profile.proto, compressed by
gzip)."""

from __future__ import annotations

import gzip
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gdbheap.errors import one_line

if TYPE_CHECKING:
    from gdbheap.stack_frames import StackFrame
    from gdbheap.stacks import Weighted
    from gdbheap.tracing.call_stacks import AllocatingStack

__all__ = ["OF_CALLS", "pprof", "pprof_of_tree"]

# The kinds of values that Go's own heap profiles have.
KINDS = (("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count"), ("inuse_space", "bytes"))
OF_TREE, OF_CALLS = KINDS[2:], KINDS[:2]
# The numbers of the fields in profile.proto.
SAMPLE_TYPE, SAMPLE, LOCATION, FUNCTION, STRINGS, TIME, PERIOD_TYPE, PERIOD, DEFAULT = 1, 2, 4, 5, 6, 9, 11, 12, 14
VARINT, LENGTH = 0, 2


def pprof(stacks: Sequence[AllocatingStack], began: int, mean: int) -> bytes:
    """Return a profile of allocating stacks, as the bytes of a file.

    ``began``: nanoseconds since 1970. ``mean``: the average number of bytes between two recorded stacks.
    """
    rows = (
        (stack.frames, (stack.allocated_blocks, stack.allocated_bytes, stack.blocks, stack.bytes)) for stack in stacks
    )
    return _file(KINDS, rows, began, mean)


def pprof_of_tree(stacks: Sequence[Weighted], kinds: Sequence[tuple[str, str]] = OF_TREE) -> bytes:
    """Return a profile of stacks with weights, as the bytes of a file.

    Each stack has its bytes and, if any blocks were counted, the number of its blocks.

    ``kinds``: the meanings of the two figures: OF_TREE for memory in use, OF_CALLS for calls.
    """
    rows = [(frames, (count, size)) for frames, size, count in stacks]
    left_out = 0 if any(count for _frames, (count, _size) in rows) else 1
    return _file(kinds[left_out:], ((frames, row[left_out:]) for frames, row in rows), time.time_ns(), 1)


def _file(
    kinds: Sequence[tuple[str, str]],
    rows: Iterable[tuple[Sequence[StackFrame], Sequence[int]]],
    began: int,
    mean: int,
) -> bytes:
    profile = _Profile()
    for kind, unit in kinds:
        profile.add(SAMPLE_TYPE, profile.value_type(kind, unit))
    for frames, values in rows:
        places = [profile.location(frame) for frame in reversed(frames)]
        profile.add(SAMPLE, _message(1, _packed(places)) + _message(2, _packed(values)))
    profile.add(PERIOD_TYPE, profile.value_type("space", "bytes"))
    last = profile.string(kinds[-1][0])
    return gzip.compress(profile.finished(_number(TIME, began) + _number(PERIOD, mean) + _number(DEFAULT, last)))


class _Profile:
    """The parts of a profile, in the order in which they are added. Each string, function and location is in it only
    once."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._strings: dict[str, int] = {"": 0}
        self._functions: dict[tuple[str, str], int] = {}
        self._locations: dict[StackFrame, int] = {}

    def add(self, field: int, content: bytes) -> None:
        """Add a message to the profile. ``field``: its field number in profile.proto."""
        self._parts.append(_message(field, content))

    def string(self, text: str) -> int:
        """Return the number of a string in the profile, and add the string if it is new."""
        return self._strings.setdefault(text, len(self._strings))

    def value_type(self, kind: str, unit: str) -> bytes:
        """Return an encoded ValueType message, which names what a profile's values count, and their unit."""
        return _number(1, self.string(kind)) + _number(2, self.string(unit))

    def location(self, frame: StackFrame) -> int:
        """Return the number of a frame's location, and add the location if it is new. The first number is 1."""
        number = self._locations.get(frame)
        if number is None:
            number = self._locations[frame] = len(self._locations) + 1
            line = _number(1, self._function(frame)) + _number(2, frame.line or 0)
            self.add(LOCATION, _number(1, number) + _message(4, line))
        return number

    def _function(self, frame: StackFrame) -> int:
        key = one_line(frame.name) or "?", one_line(frame.file)
        number = self._functions.get(key)
        if number is None:
            number = self._functions[key] = len(self._functions) + 1
            name, file = map(self.string, key)
            self.add(FUNCTION, _number(1, number) + _number(2, name) + _number(4, file))
        return number

    def finished(self, rest: bytes) -> bytes:
        """Return the encoded profile. ``rest``: the encoded fields that follow the strings."""
        strings = (_message(STRINGS, text.encode("utf-8", "replace")) for text in self._strings)
        return b"".join([*self._parts, *strings, rest])


def _varint(value: int) -> bytes:
    """Encode an integer as a varint: seven bits for each byte, the lowest first. Negative numbers take 64 bits."""
    value &= 0xFFFF_FFFF_FFFF_FFFF
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


def _packed(values: Iterable[int]) -> bytes:
    return b"".join(map(_varint, values))


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | VARINT) + _varint(value)


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | LENGTH) + _varint(len(content)) + content
