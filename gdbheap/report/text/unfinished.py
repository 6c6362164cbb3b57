"""Tell people which memory an answer does not cover because some references could not be read."""

from __future__ import annotations

from collections.abc import Sequence

from gdbheap.report.text.style import Style

__all__ = ["NO_HOLDER", "STALE", "at_least", "unfinished"]

INDENT = "  "
NO_HOLDER = "No holder is proven."
STALE = "other pointers to the rest may be stale"


def at_least(text: str, is_least: bool) -> str:
    """Return a text with a size, with "at least" before it if the size may be larger."""
    return f"at least {text}" if is_least else text


def unfinished(size: int, commands: Sequence[str], style: Style) -> str:
    """Return a line about the memory that was not examined, and the commands that would examine it; "" if ``size`` is
    0."""
    if not size:
        return ""
    told = f"not examined: {style.bytes(size)}, because not all references could be read"
    lines = [style.filled(told)]
    if commands:
        lines += ["To examine all of it:", *(INDENT + command for command in commands)]
    return "\n".join(lines)
