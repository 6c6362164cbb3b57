"""Format a stack of C and Python frames as lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gdbheap.report.text.display_width import first_columns
from gdbheap.report.text.style import Style
from gdbheap.text import file_name

if TYPE_CHECKING:
    from gdbheap.stack_frames import StackFrame

__all__ = ["short_frames", "stack_text"]

MAX_FRAMES = 40
SHORT = 2


def stack_text(frames: Sequence[StackFrame], style: Style) -> str:
    """Return one line for each frame, the innermost first. The middle of a long stack is left out."""
    left, half = len(frames) - MAX_FRAMES, MAX_FRAMES // 2
    if left > 1:
        inner, outer = ([_line(frame) for frame in reversed(part)] for part in (frames[-half:], frames[:half]))
        lines = [*inner, f"    … {left:,} more frames", *outer]
    else:
        lines = [_line(frame) for frame in reversed(frames)]
    width = None if style.width is None else style.width - 1
    return "\n".join(line if width is None else first_columns(line, width) for line in lines)


def short_frames(frames: Sequence[StackFrame]) -> list[str]:
    """Return the two innermost frames, the innermost first, as text for a table's cell. If there are Python frames, all
    other frames are ignored."""
    python = [frame for frame in frames if frame.kind == "python"]
    return [_line(frame).strip() for frame in reversed((python or list(frames))[-SHORT:])]


def _line(frame: StackFrame) -> str:
    name, file = frame.name, file_name(frame.file)
    line = "" if frame.line is None else f":{frame.line}"
    return f"    {name} ({file}{line})" if file else f"    {name}"
