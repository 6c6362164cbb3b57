"""A window of gdb's TUI with the ledger: ``layout heap``."""

from __future__ import annotations

from collections.abc import Callable

import gdb

__all__ = ["LedgerWindow"]

NAME = "heap"


class LedgerWindow:
    """What ``heap`` says of the present stop; made again when that is over. ``text``: of a width in columns."""

    def __init__(self, window: gdb.TuiWindow, text: Callable[[int], str]) -> None:
        self._window, self._text = window, text
        self._first = 0
        window.title = NAME
        gdb.events.before_prompt.connect(self._renew)

    def close(self) -> None:
        """The window is gone."""
        gdb.events.before_prompt.disconnect(self._renew)

    def _renew(self, _event: None = None) -> None:
        self.render()

    def render(self) -> None:
        """Draw the part that fits."""
        if not self._window.is_valid():
            return
        width = _columns(self._window.width)
        lines = self._text(width).splitlines()
        self._first = max(0, min(self._first, len(lines) - self._window.height))
        shown = lines[self._first : self._first + self._window.height]
        self._window.erase()
        self._window.write("\n".join(line[:width] for line in shown))

    def vscroll(self, lines: int) -> None:
        """Move up or down."""
        self._first += lines
        self.render()

    def hscroll(self, columns: int) -> None:
        """Its lines are as wide as the window."""

    def click(self, x: int, y: int, button: int) -> None:
        """Nothing in it does anything."""


def _columns(width: int) -> int:
    """Of a line: one that fills the window's last column has the cursor on the next line, where its end then breaks
    another one."""
    return max(width - 1, 1)
