"""Interpret a typed target: a process id, or the path of a core. Nothing is opened here."""

from __future__ import annotations

from gdbheap.errors import NoTarget, UsageError, one_line

PID_DIGITS = 19


def parse_target(text: str) -> int | str:
    """Return a process id, or the path of a core. Raises UsageError.

    A file whose name is a number is written ``./123``.
    """
    if not text or "\0" in text:
        raise UsageError("TARGET is empty: give the id of a process or a core")
    if text.isascii() and text.lstrip("+-").isdigit():
        return _process_id(text)
    return text


def _process_id(text: str) -> int:
    number = int(text) if len(text) <= PID_DIGITS and text.count("-") + text.count("+") <= 1 else 0
    if number <= 0:
        raise NoTarget(f"there is no process {one_line(text, 40)}: ps -e lists the running processes")
    return number
