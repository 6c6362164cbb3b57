"""Texts with wide characters on a terminal: no line is wider than the terminal, and columns stay aligned. The C
library's wcwidth() counts the columns."""

from __future__ import annotations

import ctypes
import locale
import random
from collections.abc import Iterator

import pytest

from gdbheap.report.text.display_width import first_columns, last_columns, width_of
from gdbheap.report.text.stack_text import stack_text
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, table
from gdbheap.stack_frames import StackFrame

# Chinese, Japanese, Korean and fullwidth characters, and an emoji.
WIDE = "\u4e2d\u6587\u3042\u30ab\ud55c\uff21\uff04\uff1a\U0001f600"
PARTS = [*WIDE, "a", "b", "-", ".", "(", "$", "/", "\u00e9", "x y"]
COLUMNS = (Column("bytes"), Column("type", True), Column("holder", True))


@pytest.fixture
def count_columns() -> Iterator[ctypes._NamedFuncPointer]:
    """Yield the C library's wcwidth(), in a locale that knows wide characters."""
    before = locale.setlocale(locale.LC_CTYPE)
    locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
    function = ctypes.CDLL(None).wcwidth
    function.argtypes = [ctypes.c_wchar]
    yield function
    locale.setlocale(locale.LC_CTYPE, before)


def name(rng: random.Random) -> str:
    """Return a name with narrow and wide characters."""
    return "".join(rng.choices(PARTS, k=rng.randrange(1, 60)))


def test_no_line_is_too_wide(count_columns: ctypes._NamedFuncPointer, rng: random.Random) -> None:
    """Check sentences, tables and stacks at many widths."""
    for _ in range(200):
        style = Style(width=rng.randrange(24, 140))
        assert style.width is not None
        rows = [[f"{rng.randrange(1 << 30):,}", name(rng), name(rng)] for _ in range(4)]
        frames = [StackFrame(name(rng), f"/{name(rng)}", 7, "python") for _ in range(3)]
        sentence = style.filled(f"The largest holder is {name(rng)}: 49.8 MiB, {name(rng)} {name(rng)}.")
        shown = table(COLUMNS, rows, style)
        for line in "\n".join([sentence, shown, stack_text(frames, style)]).split("\n"):
            assert sum(map(count_columns, line)) <= style.width, (style.width, line)
            assert "\0" not in line


def test_columns_are_aligned(count_columns: ctypes._NamedFuncPointer, rng: random.Random) -> None:
    """Check that the third column of each row begins in the same column of the terminal."""
    for _ in range(50):
        rows = [["7", name(rng), "#"] for _ in range(5)]
        lines = table(COLUMNS, rows, Style()).split("\n")[2:]
        assert len({sum(map(count_columns, line)) for line in lines}) == 1, lines


def test_parts(count_columns: ctypes._NamedFuncPointer, rng: random.Random) -> None:
    """Check the beginning and the end of a text against the C library."""
    for _ in range(500):
        text, count = name(rng), rng.randrange(70)
        first, last = first_columns(text, count), last_columns(text, count)
        assert width_of(text) == sum(map(count_columns, text)), text
        assert text.startswith(first) and text.endswith(last)
        for part in (first, last):
            columns = sum(map(count_columns, part))
            assert columns <= count and (part == text or columns >= count - 1), (text, count, part)
