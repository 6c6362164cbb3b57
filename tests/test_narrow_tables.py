"""Tables on terminals that are too narrow: the least informative columns are dropped, and texts are shortened in the
middle."""

from __future__ import annotations

import random
import re

from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import LEAST_IMPORTANT, SHORTEST, Column, table

WORDS = "one two three four five six seven eight nine ten".split()
TITLES = ("bytes", "address", "virtual", "own", "count")
# Two blanks between columns, and a column is two wider than its title.
NARROWEST = sum(max(len(title) + 2, 14) + 2 for title in TITLES) + 2 * (SHORTEST + 2)


def rows_of(rng: random.Random) -> list[list[str]]:
    """Return rows of numbers, with two texts of any length."""
    return [
        [f"{rng.randrange(10**9):,}" for _ in TITLES]
        + [" ".join(rng.choices(WORDS, k=rng.randrange(1, 30))) for _ in "ab"]
        for _ in range(rng.randrange(1, 20))
    ]


def titles(shown: str) -> list[str]:
    """Return the titles of a table's columns."""
    return re.split(r"  +", shown.splitlines()[0].strip())


def test_what_fits_stays(rng: random.Random) -> None:
    """Check that no line is wider than the terminal, that both texts keep their ends, and that numbers are whole."""
    columns = [*map(Column, TITLES), Column("type", True), Column("path", True)]
    for _ in range(50):
        rows = rows_of(rng)
        width = rng.randrange(NARROWEST, 300)
        lines = table(columns, rows, Style(width=width)).splitlines()
        assert max(map(len, lines)) <= width and not any(line.endswith(">") for line in lines)
        assert titles(lines[0])[0] == "bytes" and titles(lines[0])[-2:] == ["type", "path"]
        for line, row in zip(lines[2:], rows):
            assert line.endswith(row[-1][-4:]) and line.lstrip().startswith(row[0]) and row[1] in line


def test_what_fits_is_left_alone(rng: random.Random) -> None:
    """Check that a table is the same on a wide terminal and without one."""
    columns = [*map(Column, TITLES), Column("type", True), Column("path", True)]
    rows = rows_of(rng)
    whole = table(columns, rows, Style())
    width = max(map(len, whole.splitlines()))
    assert table(columns, rows, Style(width=width)) == whole != table(columns, rows, Style(width=width - 1))


def test_columns_go_in_their_order() -> None:
    """Check the order in which columns are dropped: first those with equal rows, then the least informative; the
    first column and texts stay."""
    columns = [Column("bytes"), Column("state"), *map(Column, reversed(LEAST_IMPORTANT)), Column("path", True)]
    rows = [[str(10**9 + row), "used", *(str(row) for _ in LEAST_IMPORTANT), f"path{row}"] for row in range(3)]
    left = [titles(table(columns, rows, Style(width=width))) for width in range(300, 20, -1)]
    assert left[0] == ["bytes", "state", *reversed(LEAST_IMPORTANT), "path"]
    gone = [title for before, after in zip(left, left[1:]) for title in before if title not in after]
    assert gone == ["state", *LEAST_IMPORTANT] and left[-1] == ["bytes", "path"]


def test_a_total_is_no_row() -> None:
    """Check that a column that is blank except for its total does not count as equal in every row."""
    columns = [Column("what", True), Column("free"), Column("state"), Column("path", True)]
    rows = [["a", "", "used", "x" * 40], ["b", "", "used", "y" * 40]]
    shown = table(columns, rows, Style(width=45), ["total", "12", "", ""])
    assert titles(shown) == ["what", "free", "path"] and "12" in shown
