"""The frames of a stack: functions of C and Python, with their source lines."""

from __future__ import annotations

import re

from gdbheap.dataclass import dataclass
from gdbheap.targets.frames import Frame, functions_of
from gdbheap.targets.functions import Functions, readable
from gdbheap.targets.target import Target

__all__ = ["NATIVE", "PYTHON", "StackFrame", "frames_at", "frames_of"]

NATIVE, PYTHON = "native", "python"
# In the C library no user looks for a line.
C_LIBRARY = re.compile(r"(libc|libpthread|ld-[a-z]+)[.-]")


@dataclass(frozen=True)
class StackFrame:
    """One frame of a stack.

    ``name``: the function. For Python, the qualified name if the interpreter keeps it (3.11 and later). For C without a
    symbol it is ``object+0x1234``, with the function's linked address. ``file``: the source, for C only if debug
    information names it, else the path of the object. ``line``: None if it is unknown. ``kind``: "python" or "native".
    """

    name: str
    file: str
    line: int | None
    kind: str


def frames_at(functions: Functions, address: int, name: str, path: str) -> list[StackFrame]:
    """Return the frames of the code at a linked address, innermost first: those of inlined functions, then the one of
    the function that owns the code.

    ``name``: that function; ``path``: the object's path. Without debug information, and in the C library, this is one
    frame without a line.
    """
    lines = [] if C_LIBRARY.match(path.rsplit("/", 1)[-1]) else functions.lines(address)
    if not lines:
        return [StackFrame(name, path, None, NATIVE)]
    names = [name if line.function is None else readable(line.function) for line in lines]
    return [StackFrame(name, line.file or path, line.line or None, NATIVE) for name, line in zip(names, lines)]


def frames_of(target: Target, frame: Frame) -> list[StackFrame]:
    """Return the frames of the code that a frame of C code executes, innermost first, as ``frames_at`` does."""
    loaded = target.object_of(frame.counter)
    if loaded is None:
        return [StackFrame(frame.function, "", None, NATIVE)]
    return frames_at(functions_of(loaded), frame.counter - loaded.bias, frame.function, loaded.path)
