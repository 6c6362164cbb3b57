"""The part of an answer that was not examined because some references could not be read, for people."""

from __future__ import annotations

from collections.abc import Sequence

from gdbheap.report.text.style import Style

__all__ = ["at_least", "unfinished"]

INDENT = "  "


def at_least(text: str, is_least: bool) -> str:
    """Return a size, with "at least" before it if it may be larger."""
    return f"at least {text}" if is_least else text


def unfinished(size: int, commands: Sequence[str], style: Style) -> str:
    """Return a line about the memory that was not examined, and the commands that would examine it; "" if all was."""
    if not size:
        return ""
    told = f"not examined: {style.bytes(size)}, because not all references could be read"
    lines = [style.filled(told)]
    if commands:
        lines += ["To examine all of it:", *(INDENT + command for command in commands)]
    return "\n".join(lines)
