"""A window of gdb's TUI that shows the output of the command ``heap``; ``layout heap`` opens it."""

from __future__ import annotations

from collections.abc import Callable

import gdb

__all__ = ["LedgerWindow"]

NAME = "heap"


class LedgerWindow:
    """The window with the text of ``heap`` for the current stop. It is redrawn at each prompt. ``text``: returns the
    text for a width in columns."""

    def __init__(self, window: gdb.TuiWindow, text: Callable[[int], str]) -> None:
        self._window, self._text = window, text
        self._first = 0
        window.title = NAME
        gdb.events.before_prompt.connect(self._renew)

    def close(self) -> None:
        """Stop redrawing, because the window is closed."""
        gdb.events.before_prompt.disconnect(self._renew)

    def _renew(self, _event: None = None) -> None:
        self.render()

    def render(self) -> None:
        """Draw the lines that fit into the window."""
        if not self._window.is_valid():
            return
        width = _columns(self._window.width)
        lines = self._text(width).splitlines()
        self._first = max(0, min(self._first, len(lines) - self._window.height))
        shown = lines[self._first : self._first + self._window.height]
        self._window.erase()
        self._window.write("\n".join(line[:width] for line in shown))

    def vscroll(self, lines: int) -> None:
        """Scroll the text down by ``lines`` lines; up if the number is negative."""
        self._first += lines
        self.render()

    def hscroll(self, columns: int) -> None:
        """Do nothing: the lines are as wide as the window."""

    def click(self, x: int, y: int, button: int) -> None:
        """Do nothing: a click has no effect."""


def _columns(width: int) -> int:
    """Return the width for the text's lines, which is less than the window's.

    A line that fills the last column leaves the cursor on the next line, so that its line break would add an empty
    line.
    """
    return max(width - 1, 1)
