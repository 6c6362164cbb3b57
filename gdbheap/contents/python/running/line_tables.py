"""Find the source line of an instruction in a code object, from the code object's own table."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from gdbheap.layout.cpython import Release

NO_LINE = -128
SHORT_FORMS, NO_COLUMNS, LONG_FORM = 10, 13, 14
NO_LOCATION = 15
# A C int is stored in at most NUMBER_BYTES parts of six bits. A line is below LINES.
NUMBER_BYTES, LINES = 6, 1 << 31


def line_of(release: Release, table: bytes, first_line: int, offset: int) -> int | None:
    """Return the line of the instruction at ``offset`` bytes; None if it has no line.

    Raises IndexError for a table that no compiler can have written."""
    found = _line(release, table, first_line, offset)
    if found is not None and not 0 <= found < LINES:
        raise IndexError(offset)
    return found


def _line(release: Release, table: bytes, first_line: int, offset: int) -> int | None:
    if offset < 0:
        return first_line
    if release.get("linetable_entries"):
        return _by_entries(table, first_line, offset)
    if release.get("co_linetable") is not None:
        return _by_ranges(table, first_line, offset)
    return _by_steps(table, first_line, offset)


def _by_steps(table: bytes, line: int, offset: int) -> int:
    """Return the line of an instruction according to co_lnotab, which is a list of pairs of bytes. The first byte of
    a pair is added to the address, the second byte (signed since 3.6) to the line."""
    address = 0
    for step, lines in zip(table[::2], table[1::2]):
        address += step
        if address > offset:
            break
        line += lines - 256 if lines > 127 else lines
    return line


def _by_ranges(table: bytes, line: int, offset: int) -> int | None:
    """Return the line of an instruction according to the line table of 3.10; None if it has no line.

    The table's pairs are a range's length and a signed difference of lines.
    """
    address = 0
    for length, step in zip(table[::2], table[1::2]):
        signed = step - 256 if step > 127 else step
        line += 0 if signed == NO_LINE else signed
        address += length
        if address > offset:
            return None if signed == NO_LINE else line
    return None


def _by_entries(table: bytes, line: int, offset: int) -> int | None:
    """Return the line of an instruction according to the line table of 3.11 and later; None if it has no line.

    The first byte of an entry has the entry's form and its number of instructions.
    """
    address, entries = 0, iter(table)
    for first in entries:
        form, units = first >> 3 & 15, (first & 7) + 1
        line += _line_step(form, entries)
        address += 2 * units
        if address > offset:
            return None if form == NO_LOCATION else line
    return None


def _line_step(form: int, entries: Iterator[int]) -> int:
    """Return by how many lines an entry advances, and consume the remaining bytes of the entry."""
    if form == NO_LOCATION:
        return 0
    if form == LONG_FORM:
        step = _signed(entries)
        for _ in range(3):
            _number(entries)
        return step
    if form == NO_COLUMNS:
        return _signed(entries)
    if form >= SHORT_FORMS:
        for _ in range(2):
            next(entries, 0)
        return form - SHORT_FORMS
    next(entries, 0)
    return 0


def _number(entries: Iterator[int]) -> int:
    value = 0
    for at, byte in enumerate(islice(entries, NUMBER_BYTES)):
        value |= (byte & 63) << 6 * at
        if not byte & 64:
            return value
    raise IndexError(value)


def _signed(entries: Iterator[int]) -> int:
    value = _number(entries)
    return -(value >> 1) if value & 1 else value >> 1
