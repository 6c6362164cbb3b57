"""Commands print their conclusion before the table, in one paragraph, and drop columns without information."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from support.programs import Running, gdbheap, interpreters, running

from gdbheap.answers.accounting.describing import BlockKind
from gdbheap.answers.holes import Hole, Holes, Neighbour
from gdbheap.answers.pins import Pins, PinSums
from gdbheap.answers.retained import Retained
from gdbheap.answers.retained_rows import RetainedRow
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, table
from gdbheap.report.words import holes, pins
from gdbheap.report.words.retained import render_retained

MIB = 1 << 20
COLUMNS = (Column("size"), Column("allocator", True), Column("arena"), Column("what", True))
# Holes between small blocks that stay, equal values, and one large variable.
MIXED = """
import sys
keep, large = [], []
for number in range(400):
    large.append(bytearray(60000)); keep.append(bytes(1056))
del large
table = {number: str(number) * 40 for number in range(30000)}
print(flush=True); sys.stdin.readline()
"""
# By noun, words of the first line.
CONCLUSIONS = {
    "pins": "would free ", "holes --min=16K": " hold", "pools": "pymalloc holds ", "arenas": "malloc holds ",
    "sizes": " are in use", "chunks": " match", "pyobjects": "Largest type: str, ",
    "retained": "The largest retained size belongs to table (dict)",
    "owners": "The largest holder is table", "duplicates": "would save ",
}  # fmt: skip


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Yield a Python with content for the conclusion of each command."""
    if not interpreters():
        pytest.skip("no CPython")
    with running([interpreters()[0].executable, "-c", MIXED], tmp_path_factory.mktemp("mixed")) as found:
        yield found


@pytest.mark.parametrize("noun", CONCLUSIONS)
def test_the_conclusion_comes_first(noun: str, target: Running) -> None:
    """Check that the conclusion is the first paragraph, and that the table has at most 20 rows, a remainder and a
    total."""
    word, *options = noun.split()
    done = gdbheap(word, str(target.pid), *options)
    first, _, rest = done.stdout.partition("\n\n")
    assert done.returncode == 0 and CONCLUSIONS[noun] in first and "---" not in first, done.stdout
    first_table = next(part for part in rest.split("\n\n") if "---" in part)
    assert len(first_table.splitlines()) <= 2 + 20 + 1 + 2 + 1


def test_the_most_that_a_row_may_free() -> None:
    """Check that the bytes that an object frees at most decide its place and its share of RSS."""
    certain = RetainedRow(4096, "dict", 1, 64, 10 * MIB, "small", "small")
    uncertain = RetainedRow(0x2000, "C", 1, 64, MIB, "large", "large", at_most=20 * MIB)
    text = render_retained(Retained([uncertain, certain]), Style(rss=100 * MIB), "object")
    assert text.startswith("The largest retained size may belong to large (C): at most 20.0 MiB (20.0 % of RSS).")
    assert "at most 20.0 MiB 20.0 64 B 0x2000" in " ".join(text.split())
    text = render_retained(Retained([certain]), Style(rss=100 * MIB), "object")
    assert text.startswith("The largest retained size belongs to small (dict): 10.0 MiB (10.0 % of RSS).")
    inner = RetainedRow(0x3000, "dict", 1, 64, 10 * MIB, "log.Logger.kept", "log.Logger.kept")
    logger = RetainedRow(0x4000, "type", 1, 64, 10 * MIB, "log.Logger", "log.Logger", same=[inner])
    text = render_retained(Retained([logger]), Style(rss=100 * MIB), "object")
    assert text.startswith("The largest retained size belongs to class log.Logger: all in .kept (dict): 10.0 MiB")
    held = replace(logger, type="app.Cache")
    text = render_retained(Retained([held]), Style(rss=100 * MIB), "object")
    assert text.startswith("The largest retained size belongs to log.Logger (app.Cache): all in .kept (dict): 10.0 MiB")


@pytest.mark.parametrize(("share", "start"), [(0.001, "Nothing worth fixing: removing"), (0.2, "Removing")])
def test_whether_pins_are_worth_it(share: float, start: str) -> None:
    """Check that pins of less than a hundredth of RSS count as not worthwhile."""
    sums = PinSums("glibc", 3, 7, 700, round(share * 100 * MIB), 7, ("group is", "groups are"), "would be freed")
    text = pins.render(Pins([], [sums], [], 4096, True), Style(rss=100 * MIB))
    assert text.startswith(f"{start} 7 blocks would free ")


@pytest.mark.parametrize(
    ("above", "words"),
    [
        ([("bytes", 1056)] * 3, "After each hole lie bytes objects of 1,056 bytes."),
        ([("bytes", 10), ("bytes", 20)], "After each hole lie bytes objects."),
        (
            [("bytes", 10), ("bytes", 10), ("str", 20)],
            "After most of these holes lie bytes objects of 10 bytes (2.0 MiB of 3.0 MiB).",
        ),
        ([("bytes", 10)], "After the hole lie bytes objects."),
        ([("fencepost", 16)] * 2, "After each hole lies the end of the heap."),
        (
            [("unknown", 48)],
            "After the hole lies a block that is unknown (data). 'heap holes --path' shows what holds the unknown "
            "blocks.",
        ),
    ],
)
def test_what_lies_after_holes(above: list[tuple[str, int]], words: str) -> None:
    """Check the text about the blocks after holes, with their size if they have one size."""
    kinds = {"fencepost": None, "unknown": BlockKind("unknown", look="data")}
    rows = [
        Hole(
            number << 24,
            MIB,
            MIB,
            0,
            "glibc",
            None,
            Neighbour(4096, size, what, block_kind=kinds.get(what, BlockKind("object", what))),
        )
        for number, (what, size) in enumerate(above)
    ]
    text = holes.render(Holes(rows, len(rows), len(rows) * MIB, len(rows) * MIB), Style(), MIB)
    assert words in text.splitlines()[0]


def test_columns_that_are_the_same_are_dropped(rng: random.Random) -> None:
    """Check that the value of a dropped column is printed below, unless it is empty.

    A column with different values stays, and so does the only row of a table.
    """
    sizes = [str(rng.randrange(1 << 20)) for _ in range(5)]
    rows = [[size, "glibc", "main", "x"] for size in sizes]
    text = table(COLUMNS, [*rows, ["1 more", "", "", ""]], Style(), ["total", "", "", ""])
    assert text.splitlines()[0].split() == ["size", "what"]
    assert text.splitlines()[-1] == "In every row: allocator glibc, arena main."
    other = table(COLUMNS, [*rows, ["7", "pymalloc", "-", "x"]], Style())
    assert other.splitlines()[0].split() == ["size", "allocator", "arena", "what"]
    assert table(COLUMNS, rows[:1], Style()).splitlines()[0].split() == ["size", "allocator", "arena", "what"]
    blank = table((Column("name", True), Column("swapped")), [["a", "0 B"], ["b", "0 B"]], Style())
    assert "swapped" not in blank and "every row" not in blank
