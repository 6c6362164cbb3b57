"""Words and totals of made-up answers: the sentence without a finding, and sums of rows that are partly unknown."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from gdbheap.allocators.allocator import State
from gdbheap.allocators.glibc.trim import ArenaTrim, Trim
from gdbheap.answers.distribution import SizeShare
from gdbheap.answers.pools import Fill, InterpreterPools, Pools
from gdbheap.findings.finding import Finding
from gdbheap.findings.holder.rule import MainHolder
from gdbheap.first_page.ledger import FIRST, Ledger, Line, Rss
from gdbheap.first_page.summary import NotWalked, Summary
from gdbheap.report.formats.plot import FIGURES, alternative
from gdbheap.report.text.distribution import BAR, bar
from gdbheap.report.text.distribution import render as render_distribution
from gdbheap.report.text.numbers import size_text
from gdbheap.report.text.style import Style
from gdbheap.report.words import ledger as words
from gdbheap.report.words import pools as pool_words
from gdbheap.report.words import trim as trim_words
from gdbheap.sampling.curves import Curve, ProcessCurves

MIB = 1 << 20
PLAIN = "Findings: none. No memory to reclaim."
FILES = Line(FIRST[0][0], None, FIRST[0][2], 900 * MIB, 900 * MIB, 0)
EXACT = Style(exact=True)


def page(unknown: int | None, known: int, lazy: int = 0, **more: Any) -> Ledger:
    """Return a ledger with memory that is not walked (None: of an unknown resident size, 100 MiB virtual) and memory
    that is."""
    resident = None if unknown is None else unknown
    lines = [
        FILES,
        Line("other", None, "other mmap", unknown or 100 * MIB, resident, 0),
        Line("glibc", None, "malloc", known, known, 0),
    ]
    found = NotWalked("other.rest", more.pop("name", ""), unknown)
    told = Summary(known, known, 0, 0, 0, [], more.pop("allocators", ["glibc"]), found)
    rss = Rss(2000 * MIB, 0, "smaps_rollup", lazy)
    return Ledger(**{"rss": rss, "ledger": lines, "findings": [], "summary": told, **more})


@pytest.mark.parametrize("percent", [0, 40, 49, 51, 60, 100])
@pytest.mark.parametrize("is_resident", [True, False])
def test_most_was_not_walked(percent: int, is_resident: bool) -> None:
    """Check that "none" has a warning exactly if more than half of the memory besides files was not walked, whether
    its resident bytes are known or not."""
    known = 100 * MIB
    if is_resident:
        answer = page(2 * percent * MIB, (200 - 2 * percent) * MIB)
    elif percent in (0, 100):
        return
    else:
        known = (100 * MIB * (100 - percent)) // percent
        answer = page(None, known)
    assert answer.looks_past == (percent > 50)
    assert words.no_findings(answer) == (words.NOT_LOOKED if percent > 50 else PLAIN)


def test_lazily_freed_memory_does_not_count() -> None:
    """Check that pages freed with MADV_FREE are in neither half, and that they are mentioned if they are much."""
    answer = page(60 * MIB, 140 * MIB, lazy=100 * MIB)
    assert answer.looks_past
    answer = page(40 * MIB, 160 * MIB, lazy=100 * MIB)
    assert not answer.looks_past and words.no_findings(answer).startswith("Findings: none. 100.0 MiB")
    assert words.no_findings(page(40 * MIB, 160 * MIB, lazy=MIB)) == PLAIN


def test_other_reasons_for_none() -> None:
    """Check the sentences without residency, and if the interpreter and packages hold most."""
    answer = page(0, 100 * MIB, rss=Rss(None, None, "nobody"))
    assert "because resident memory is unknown" in words.no_findings(answer)
    imported = MainHolder(1900 * MIB, 1900 * MIB, 0.95, "imported", None, None, "imported")
    assert "the interpreter and imported packages hold 1.9 GiB" in words.no_findings(
        page(0, 100 * MIB, imported=imported)
    )
    assert words.no_findings(page(0, 100 * MIB)) == PLAIN


def test_little_is_reclaimable(rng: random.Random) -> None:
    """Check that free memory that is too little for a finding is said, if it is not next to nothing."""
    size = rng.randrange(words.MIN_RECLAIMABLE, 4 * MIB)
    for free in (size, words.MIN_RECLAIMABLE - 1):
        row = Line("glibc.free", "glibc", "free", free, free, 0, state=State.FREE.value, reclaimable=free)
        answer = page(0, 100 * MIB)
        said = words.no_findings(replace(answer, ledger=[*answer.ledger, row]))
        assert (size_text(free) in said) == (said != PLAIN) == (free >= words.MIN_RECLAIMABLE), said


def test_who_is_blind() -> None:
    """Check that only an answer without a finding, a walked C library and a recognised malloc is blind."""
    finding = Finding("stacks", MIB, {})
    cases = {
        True: page(150 * MIB, 50 * MIB, allocators=[]),
        False: page(50 * MIB, 150 * MIB, allocators=[]),
    }
    for is_blind, answer in cases.items():
        assert answer.is_blind == is_blind
    assert not page(150 * MIB, 50 * MIB).is_blind
    assert not page(150 * MIB, 50 * MIB, allocators=[], name="jemalloc").is_blind
    assert not page(150 * MIB, 50 * MIB, allocators=[], findings=[finding]).is_blind


def cells(text: str, name: str) -> list[str]:
    """Return the numbers of a row."""
    row = next(line for line in text.splitlines() if line.split()[:1] == [name])
    return [word for word in row.split()[1:] if word[0].isdigit()]


@pytest.mark.parametrize("detail", [True, False])
def test_a_total_is_the_sum_of_its_roots(detail: bool, rng: random.Random) -> None:
    """Check every column's total: lines below a root count in it, once."""
    lines: list[Line] = []
    for root in ("glibc", "pymalloc"):
        sizes = [rng.randrange(1, 1 << 20) * 4096 for _ in range(4)]
        lines.append(Line(root, None, root, 8 * sum(sizes), 4 * sum(sizes), 2 * sum(sizes)))
        for number, (name, state) in enumerate((("free", State.FREE), ("top", State.TOP), ("used", State.USED))):
            size = sizes[number]
            lines.append(
                Line(f"{root}.{name}", root, name, 8 * size, 4 * size, 2 * size, whole=size, state=state.value)
            )
            if detail:
                part = Line(f"{root}.{name}.0", f"{root}.{name}", "arena 0", 8 * size, 4 * size, 2 * size, whole=size,
                            state=state.value)  # fmt: skip
                lines.append(part)
    answer = Ledger(Rss(1 << 40, 0, ""), lines, [])
    roots = [line for line in lines if line.parent is None]
    free = sum(line.whole or 0 for line in lines if line.is_free and line.id.count(".") == 1)
    told = [sum(line.resident or 0 for line in roots), free, sum(line.swapped or 0 for line in roots)]
    told.append(sum(line.virtual for line in roots))
    total = next(line for line in words.render(answer, EXACT, True).splitlines() if line.lstrip().startswith("total"))
    assert [int(word.replace(",", "")) for word in total.split() if word.replace(",", "").isdigit()] == told


def test_a_total_of_unknown_tops(rng: random.Random) -> None:
    """Check that a total of which a part is unknown is unknown, and that a known one is the sum."""
    for unknown in (False, True):
        tops: list[int | None] = [rng.randrange(1, 1 << 30) for _ in range(4)]
        tops[rng.randrange(4)] = None if unknown else 7
        rows = [ArenaTrim(index, 0, 1, 10, 10, 0, top, top) for index, top in enumerate(tops)]
        answer = Trim(40, None, rows, 0, 40, 0)
        text = trim_words.render(answer, answer, EXACT)
        total = next(line for line in text.splitlines() if line.lstrip().startswith("total"))
        known = sum(top for top in tops if top is not None)
        assert (f"{known:,}" in total) == (not unknown)


def test_nearly_empty_arenas(rng: random.Random) -> None:
    """Check that arenas up to and with the limit count, and no fuller ones."""
    percents = [1, 10, pool_words.NEARLY_EMPTY, 50, 75, 100]
    for _ in range(20):
        fill = [Fill(percent, rng.randrange(5), rng.randrange(1 << 20)) for percent in percents]
        answer = Pools(1 << 20, 1 << 14, 10, 0, [], fill, [], [InterpreterPools(0, 1, 1, 1)])
        sparse = [row for row in fill if row.percent <= pool_words.NEARLY_EMPTY]
        text = " ".join(pool_words.render(answer, answer, EXACT).split())
        count, used = sum(row.arenas for row in sparse), sum(row.used for row in sparse)
        told = f"{count} arena{' is' if count == 1 else 's are'} at most {pool_words.NEARLY_EMPTY} % full"
        assert (told in text and f"{used:,} bytes in use" in text) if count else "% full" not in text


@pytest.mark.parametrize("is_ascii", [True, False])
def test_bars(is_ascii: bool, rng: random.Random) -> None:
    """Check that every part above 0 has a bar, that longer parts have no shorter bar, and that the whole fits."""
    style = Style()
    style.ascii = is_ascii
    whole = rng.randrange(1000, 1 << 40)
    parts = sorted({0, 1, whole, *(rng.randrange(whole) for _ in range(200))})
    drawn = [bar(part, whole, style) for part in parts]
    assert [bool(one) for one in drawn] == [part > 0 for part in parts]
    assert all(len(one) <= len(more) <= BAR for one, more in zip(drawn, drawn[1:]))
    assert len(drawn[-1]) == BAR and all(one.isascii() for one in drawn) == is_ascii


def test_a_distribution_has_its_total(rng: random.Random) -> None:
    """Check the rows and the total of a distribution."""
    rows = [SizeShare(1 << power, 2 << power, rng.randrange(1, 99), rng.randrange(1, 1 << 30)) for power in range(6)]
    text = render_distribution(rows, EXACT)
    total = next(line for line in text.splitlines() if "total" in line)
    assert total.split()[1:3] == [f"{sum(row.calls for row in rows):,}", f"{sum(row.bytes for row in rows):,}"]


def test_text_of_a_picture(rng: random.Random) -> None:
    """Check that the text for people who cannot see the picture has the first, the last and the largest value of each
    curve."""
    curves = {}
    for name in FIGURES:
        values = [rng.randrange(1 << 40) for _ in range(9)]
        curves[name] = Curve(name, [float(place) for place in range(9)], values)
    process = ProcessCurves("a.csv", 7, "/bin/prog", "prog", curves, [])
    for name, curve in curves.items():
        first, last, most = (size_text(size) for size in (curve.values[0], curve.values[-1], max(curve.values)))
        assert f"{FIGURES[name]} from {first} to {last}, at most {most}" in alternative([process])
