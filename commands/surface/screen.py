"""Draw on the whole screen of a terminal repeatedly, and restore the terminal at the end in any case."""

from __future__ import annotations

import curses
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

__all__ = ["Screen", "opened_screen"]

QUIT = (ord("q"), ord("Q"), 3)
ASK_HELP = (ord("h"), ord("H"), ord("?"))


class Screen:
    """The screen of a terminal, as ``opened_screen`` yields it. ``help``: a text that is shown on request."""

    def __init__(self, window: Any, help: str = "") -> None:
        self._window = window
        self._help = help

    def show(self, text: str) -> None:
        """Show those lines of ``text`` that fit on the screen."""
        height, width = self._window.getmaxyx()
        self._window.erase()
        for number, line in enumerate(text.splitlines()[:height]):
            # Writing to the last cell of the last line would scroll the screen.
            with suppress(curses.error):
                self._window.addnstr(number, 0, line, max(1, width - 1), curses.A_BOLD if number == 0 else 0)
        self._window.refresh()

    def wait(self, seconds: float) -> bool:
        """Wait for a key, but at most this many seconds. Return whether the key (q) asks to quit.

        A key for help (h or ?) shows the help until another key is pressed."""
        self._window.timeout(max(0, round(1000 * seconds)))
        key = self._window.getch()
        if key in ASK_HELP:
            self.show(self._help)
            self._window.timeout(-1)
            key = self._window.getch()
        return key in QUIT


@contextmanager
def opened_screen(help: str = "") -> Iterator[Screen | None]:
    """Yield the whole screen of the terminal, which shows ``help`` on request.

    Yield None if standard input or output is not a terminal, or if the terminal can only scroll."""
    if not (sys.stdin and sys.stdout and os.isatty(0) and os.isatty(1)) or not _is_known():
        yield None
        return
    window = curses.initscr()
    try:
        curses.noecho()
        curses.cbreak()
        with suppress(curses.error):
            curses.curs_set(0)
        yield Screen(window, help)
    finally:
        with suppress(curses.error):
            curses.curs_set(1)
        curses.nocbreak()
        curses.echo()
        curses.endwin()


def _is_known() -> bool:
    """Return whether the terminal can move its cursor. If TERM names no known terminal, initscr() would end the
    program."""
    try:
        curses.setupterm()
        return curses.tigetstr("cup") is not None
    except curses.error:
        return False
