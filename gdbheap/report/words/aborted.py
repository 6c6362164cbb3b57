"""The text that explains why glibc ended a process: its message, the damaged block, and the calls that led there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gdbheap.report.text.numbers import address_text
from gdbheap.report.text.style import FAULT, Style
from gdbheap.text import file_name, quoted

if TYPE_CHECKING:
    from gdbheap.answers.aborted import Abort, AbortBlock

__all__ = ["abort_lines", "ended_by"]

BLAMED = {
    "overflow": "The program wrote beyond the end of the block at {}",
    "freed twice": "The program freed the block at {} twice",
    "written after free": "The program wrote to the free block at {}",
    "not a beginning": "The program freed a pointer into the middle of the block at {}",
}
OTHER = "The block at {}"
HELD = {True: "The block is held by", False: "Pointers to the freed block remain in"}
MAX_FRAMES = 8


def ended_by(message: str) -> str:
    """Return the sentence about how the process ended. ``message``: the message that glibc wrote."""
    return f"Process ended by abort(): {message}"


def abort_lines(answer: Abort | None, style: Style) -> str:
    """Return glibc's message, the damaged block, its holder, and the calls that led to the abort; "" if glibc wrote no
    message."""
    if answer is None:
        return ""
    lines = [style.coloured(ended_by(answer.message), FAULT)]
    if answer.block is not None:
        lines.append(style.filled(_blamed(answer.block, style)))
    if answer.block is not None and answer.holder is not None:
        lines.append(style.filled(f"{HELD[answer.block.state == 'used']}: {answer.holder}"))
    if answer.frames:
        more = " < …" if len(answer.frames) > MAX_FRAMES else ""
        calls = [
            name if source is None else f"{name} ({file_name(source)})"
            for name, source in zip(answer.frames[:MAX_FRAMES], answer.sources)
        ]
        lines.append(style.filled(f"abort() was reached from: {' < '.join(calls)}{more}"))
    return "\n".join(lines)


def _blamed(block: AbortBlock, style: Style) -> str:
    text = f" that begins with {quoted(block.text)}" if block.text is not None else ""
    blamed = BLAMED.get(block.why, OTHER).format(address_text(block.address))
    return f"{blamed}: {style.bytes(block.size)}, {block.what}{text}."
