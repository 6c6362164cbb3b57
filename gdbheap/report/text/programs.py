"""The name of a recorded program in texts: its command line or, if that is unknown, its file."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from gdbheap.errors import one_line
from gdbheap.text import named

__all__ = ["program_text"]

LENGTH = 80


def program_text(words: Sequence[str], exe: str) -> str:
    """Return a recorded program's command line as a user would type it in a shell, shortened. If it is unknown, return
    the path of the program's file.
    """
    return named(one_line(shlex.join(words) or exe, LENGTH))
