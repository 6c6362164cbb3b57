"""Name a program that was recorded."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from gdbheap.errors import one_line
from gdbheap.text import named

__all__ = ["program_text"]

LENGTH = 80


def program_text(words: Sequence[str], exe: str) -> str:
    """Return the words that the program was started with, as in a shell and cut short, or its file if they are
    unknown."""
    return named(one_line(shlex.join(words) or exe, LENGTH))
