"""Repeats are folded: each row is shown or counted, once, and rows that do not repeat are shown."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from gdbheap.answers.accounting.paths import in_words
from gdbheap.answers.why import Dominator, Why, WhyStep
from gdbheap.graph.paths import Path, Step
from gdbheap.report.text.folding import NO_GAP, ROWS_AT_EACH_END, Gap, folded
from gdbheap.report.text.style import Style
from gdbheap.report.words.why import render


def more(left: int, types: set[str]) -> list[str]:
    """Return the row that stands for so many."""
    return [f"+{left}", ",".join(sorted(types)), ""]


def shown(rows: list[list[str]], gap: Gap = NO_GAP) -> list[list[str]]:
    """Return the rows folded by type and edge."""
    return folded(rows, lambda row: (row[2], row[1]), more, gap)


@pytest.mark.parametrize("period", [1, 2, 3])
def test_a_run_is_folded(period: int, rng: random.Random) -> None:
    """Check that one period of a run is left at each end, between single rows; only numbers differ between the
    periods."""
    turns = rng.randrange(5, 1000)
    run = [
        [f"{turn}.{place}", f"edge{place}[{turn}]", f"type{place}"] for turn in range(turns) for place in range(period)
    ]
    rows = [["first", "a", "x"], *run, ["last", "b", "y"]]
    left = period * (turns - 2)
    found = shown(rows)
    assert found == [rows[0], *run[:period], more(left, {row[2] for row in run}), *run[-period:], rows[-1]]


def test_nothing_is_lost(rng: random.Random) -> None:
    """Check that the shown rows of any list keep their order, and add up with the counted ones to all rows."""
    for _ in range(300):
        rows = [
            [str(place), rng.choice("ab"), rng.choice("xy")] for place in range(rng.randrange(2 * ROWS_AT_EACH_END))
        ]
        found = shown(rows)
        own = [row for row in found if row in rows]
        left = sum(int(row[0]) for row in found if row not in rows)
        assert own == sorted(own, key=rows.index) and len(own) + left == len(rows)


def test_a_gap_counts_once(rng: random.Random) -> None:
    """Check that a gap is counted in the run around it, or has its own row, and that nothing else changes."""
    for _ in range(300):
        rows = [[str(place), "a", rng.choice("xxxxy")] for place in range(rng.randrange(1, 2 * ROWS_AT_EACH_END))]
        gap = Gap(rng.randrange(len(rows)), rng.randrange(1, 10**6))
        found = shown(rows, gap)
        own = [row for row in found if row in rows]
        left = sum(int(row[0]) for row in found if row not in rows)
        assert own == sorted(own, key=rows.index) and len(own) + left == len(rows) + gap.count


def test_names_are_not_numbers() -> None:
    """Check that attributes that end with digits are different ones."""
    rows = [[str(place), f".field{place}", "Record"] for place in range(10)]
    assert shown(rows) == rows


def test_why_folds_blocks_and_says_what_it_lacks() -> None:
    """Check that a chain of blocks and a long list are folded, and that the text says how many steps are left out."""
    blocks = [Step(64 * place, "block", f"holds it (a block of {100 + place} bytes)") for place in range(20)]
    text = below(why(blocks, 20))
    assert "18 more such blocks" in text and text.count("a block of") == 2
    steps = [Step(64 * place, "Node", ".next") for place in range(200)]
    text = below(why(steps, 1_000_000))
    assert text.count(".next") == 2 and "999,998 more such steps" in text and "more steps" not in text
    assert "999,998 more  such objects" in text
    steps = [Step(64 * place, "ab"[place < 100], ".next") for place in range(200)]
    text = below(why(steps, 1_000_000))
    assert "999,800 more steps" in text and text.count("98 more such steps") == 2
    assert "999,800 more  objects" in text


def test_blocks_of_a_way_are_said_once() -> None:
    """Check that a path states the number and sizes of adjacent blocks of C, which have no names for their
    references."""

    def said(*edges: str) -> str:
        return in_words(Path([Step(0, "", edge) for edge in edges], None, len(edges)))

    block = " holds it (a block of 1,864 bytes)"
    assert said("data of x", ".db", " holds it") == "data of x .db  holds it"
    assert said("data of x", block) == "data of x, through a block of 1,864 bytes"
    assert said("x", " holds it", *[block] * 3) == "x  holds it, through 3 blocks (1,864, 1,864, 1,864 bytes)"
    assert said("x", *[block] * 9, ".y").endswith("through 9 blocks (1,864, 1,864, 1,864, 1,864, … bytes) .y")
    assert said(block, ".y") == f"{block} .y"


def why(steps: list[Step], length: int) -> Why:
    """Return an answer with that chain; each step is a dominator too."""
    holders = [Dominator(step.address, step.type, 100) for step in steps]
    return Why(1, "object", steps, length, None, True, holders, length, 100, 0)


def below(answer: Why) -> str:
    """Return the text of an answer below its first line."""
    first, _, rest = render(answer, Style()).partition("\n\n")
    assert first.startswith("0x1 (object) is kept by ") and first.endswith(" It retains 100 B.")
    return rest


@pytest.mark.parametrize(
    ("edges", "expression", "certain", "expected"),
    [
        ([], "sys.modules['app'].CACHE[3].payload", True, "is kept by app.CACHE[3].payload. It retains 7 B."),
        (["'list' in program", *["+0x0"] * 9], None, True, "is kept by 'list' in program … +0x0 +0x0 +0x0"),
        (["stack of thread 7", ".x"], None, False, "may be kept by stack of thread 7 .x. It retains 7 B. The chain is"),
        ([], f"sys.modules['app'].{'x' * 900}", True, "xxxx…. It retains"),
    ],
)
def test_what_keeps_it(edges: list[str], expression: str | None, certain: bool, expected: str) -> None:
    """Check the first line: what keeps the block, shortened if it is long, and whether that is certain."""
    steps = [WhyStep(64 * place, "T", edge, certain) for place, edge in enumerate(edges or ["sys.modules", ".x"])]
    answer = replace(why(steps, len(steps)), retained=7, expression=expression, certain=certain)
    first, _, rest = render(answer, Style()).partition("\n\n")
    assert first.startswith("0x1 (object) ") and expected in first and len(first) < 300, first
    assert expression is None or f"As a Python expression: {expression}" in rest
