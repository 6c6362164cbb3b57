"""The frames of a stack: functions of C and Python, with their source lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TypeVar

from gdbheap.dataclass import dataclass
from gdbheap.targets.frames import Frame, functions_of
from gdbheap.targets.functions import Functions, readable
from gdbheap.targets.source_lines import SourceLine
from gdbheap.targets.target import Target

__all__ = ["NATIVE", "PYTHON", "StackFrame", "few_inlined", "frames_at", "frames_of"]

T = TypeVar("T")

NATIVE, PYTHON = "native", "python"
# The most frames of inlined functions in one stack.
MAX_INLINED = 500
# Source lines of the C library do not help users.
C_LIBRARY = re.compile(r"(libc|libpthread|ld-[a-z]+)[.-]")


@dataclass(frozen=True)
class StackFrame:
    """One frame of a stack.

    ``name``: the function. For Python, the qualified name if the interpreter keeps it (3.11 and later). For C without a
    symbol it is ``object+0x1234``, with the function's linked address. ``file``: the path of the source (at most its
    last 300 characters). For C code without known source lines, it is the path of the object. ``line``: None if it is
    unknown. ``kind``: "python" or "native".
    """

    name: str
    file: str
    line: int | None
    kind: str


def frames_at(functions: Functions, address: int, name: str, path: str) -> Sequence[StackFrame]:
    """Return the frames of the code at a linked address, innermost first.

    The frames of inlined functions come first. The last frame is of the function that owns the code (``name``).
    ``path``: the path of the object with the code. Without debug information, and in the C library, the only frame is
    of this function, and has no line.
    """
    lines = () if C_LIBRARY.match(path.rsplit("/", 1)[-1]) else functions.lines(address)
    return _frames(lines, name, path) if lines else [StackFrame(name, path, None, NATIVE)]


@lru_cache(maxsize=10_000)
def _frames(lines: tuple[SourceLine, ...], name: str, path: str) -> tuple[StackFrame, ...]:
    """Return a frame for each source line. Repeated calls return the same objects, because a recursion has many equal
    frames."""
    names = [name if line.function is None else readable(line.function) for line in lines]
    return tuple([StackFrame(name, line.file or path, line.line or None, NATIVE) for name, line in zip(names, lines)])


def few_inlined(stack: Iterable[Sequence[T]]) -> Iterator[Sequence[T]]:
    """Yield the frames of each code address of a stack, innermost first. At most MAX_INLINED frames of inlined
    functions are yielded in total.

    The last frame of an address belongs to the function that owns the code. After the limit, only this frame is left.
    """
    left = MAX_INLINED
    for frames in stack:
        left -= len(frames) - 1
        yield frames if left >= 0 else frames[-1:]


def frames_of(target: Target, frame: Frame) -> Sequence[StackFrame]:
    """Return the frames at the program counter of a C frame, innermost first, as ``frames_at`` does. Frames of inlined
    functions come first.
    """
    loaded = target.object_of(frame.counter)
    if loaded is None:
        return [StackFrame(frame.function, "", None, NATIVE)]
    return frames_at(functions_of(loaded), frame.counter - loaded.bias, frame.function, loaded.path)
