"""The numbers of a text agree with each other and with its record, which is made up."""

from __future__ import annotations

import os
import random
import re
import time
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from gdbheap.answers.at import At, AtMapping
from gdbheap.answers.holes import Holes
from gdbheap.answers.pins import Pin, Pins, PinSums
from gdbheap.api.converting import findings_of
from gdbheap.api.table import MAX_SHOWN, Table
from gdbheap.commands.surface.progress import Progress
from gdbheap.findings.finding import Finding
from gdbheap.findings.mappings.rule import SHARED_MEMORY, Mapped
from gdbheap.first_page.check_advice import CheckAdvice
from gdbheap.first_page.ledger import Ledger, Rss
from gdbheap.following.growth import Cost
from gdbheap.host.tmpfs import TmpfsFile
from gdbheap.report.page.blocks import holes_section
from gdbheap.report.text.numbers import size_text
from gdbheap.report.text.style import Style
from gdbheap.report.words import at as at_words
from gdbheap.report.words import check_advice as advice_words
from gdbheap.report.words import growth as growth_words
from gdbheap.report.words import ledger as ledger_words
from gdbheap.report.words.findings import text_of
from gdbheap.snapshots.overview import Outcome

MIB = 1 << 20


def number(text: str) -> float:
    """Return a number that a text writes."""
    return float(text.replace(",", ""))


def test_the_cost_of_stops(rng: random.Random) -> None:
    """Check that the number of stops times the time of each is the total."""
    for _ in range(100):
        cost = Cost(rng.randrange(1, 5000), rng.uniform(0.01, 2), rng.choice([0.0, rng.random()]))
        answer: Any = SimpleNamespace(cost=cost, file_pages=rng.choice([None, 0, MIB]))
        said = re.search(
            r"stopped ([\d,]+) times?, ([\d.]+) ms in total, (\d+) us each", growth_words._cost(answer, Style())
        )
        assert said is not None
        stops, total, each = map(number, said.groups())
        assert stops == cost.stops and abs(stops * each / 1000 - total) <= stops / 2000 + 0.06


def test_growth_begins_with_the_net(rng: random.Random) -> None:
    """Check that the first sentence about growth has the change of RSS: RSS is flat if calls got and returned about
    the same, whatever they got."""
    for _ in range(50):
        before, change = rng.randrange(50 * MIB, 100 * MIB), rng.choice([0, rng.randrange(-40, 41)]) * MIB
        calls, bytes_got = rng.randrange(2, 5000), rng.randrange(41 * MIB, 80 * MIB)
        kind: Any = SimpleNamespace
        answer: Any = SimpleNamespace(
            brk=kind(bytes=0), mmap=kind(bytes=bytes_got), returned=bytes_got - change, pid=7, seconds=1.0,
            operations=[kind(id="mmap", calls=calls - 1), kind(id="munmap", calls=1), kind(id="failed", calls=3)],
            rss_before=before, rss_after=before + change, why_ended="duration",
        )  # fmt: skip
        sentence, second = growth_words._sentence(answer, Style()).split(" The process got ")
        now = Style().bytes(before + change)
        if change:
            verb = "grew" if change > 0 else "shrank"
            assert f"{verb} by {Style().bytes(abs(change))} to {now} in 1.0 s." in sentence
        else:
            assert f"stayed at {now} in 1.0 s." in sentence
        assert second.startswith(Style().bytes(bytes_got)) and f"by {calls:,} calls" in second, second


def test_a_mapping_and_its_huge_pages(rng: random.Random) -> None:
    """Check the size of the mapping and the part of it in huge pages."""
    for _ in range(20):
        size = rng.randrange(4, 900) * MIB
        huge = rng.randrange(size // MIB) * MIB
        answer = At(AtMapping(MIB, MIB + size, "rw-p", "", "other", huge), None, None, None)
        text = at_words.render(answer, Style(exact=True), MIB)
        sizes = [size, *([huge] if huge else [])]
        assert [int(number(one)) for one in re.findall(r"([\d,]+) (?:B|bytes)", text)] == sizes, text


@pytest.mark.parametrize("resident", [None, 300 * MIB])
def test_what_imports_hold(resident: int | None) -> None:
    """Check that the sentence without a finding has the resident bytes, if they are known."""
    imported: Any = SimpleNamespace(bytes=800 * MIB, resident=resident)
    answer = Ledger(Rss(1000 * MIB, 0, "smaps_rollup", 0), [], [], imported=imported)
    text = ledger_words.no_findings(answer)
    assert f"hold {size_text(800 * MIB if resident is None else resident)}." in text


def test_heeded_advice(rng: random.Random) -> None:
    """Check that exactly the findings whose settings are set are said to be set already."""
    for _ in range(20):
        names = rng.sample(["tops", "large-chunks", "thread-tops", "huge-pages", "arenas"], rng.randrange(1, 5))
        heeded = rng.sample(names, rng.randrange(len(names) + 1))
        findings = [Finding(name, MIB, {}, environment={"A": "1"}) for name in names]
        lines = advice_words.render(CheckAdvice([], [], findings, True, heeded), Style()).splitlines()
        said = {name: "already set" in line for name in names for line in lines if f": {name}," in line}
        assert said == {name: name in heeded for name in names}


def test_files_that_nobody_maps(rng: random.Random) -> None:
    """Check that the listed files and the others add up to their number, and their bytes to the total."""
    for count in range(1, 12):
        left = [TmpfsFile(f"/dev/shm/{place}", MIB, rng.randrange(1, 99) * MIB) for place in range(count)]
        figures = Mapped(MIB, MIB, MIB, SHARED_MEMORY, "/dev/shm/own", [], False, left=left)
        text = text_of(Finding(SHARED_MEMORY, MIB, figures))
        listed = sum(f"{file.file} " in text for file in left)
        more = re.search(r", (\d+) more$", text)
        assert re.search(rf"in {count} files? that", text) and listed + int(more[1] if more else 0) == count
        assert f"Outside the RSS, {size_text(sum(file.bytes for file in left))} of shared memory is in" in text


@dataclass(frozen=True)
class Row:
    """A row of a table."""

    place: int


@pytest.mark.parametrize("count", [0, 1, MAX_SHOWN, MAX_SHOWN + 1, 3000])
def test_rows_of_a_table(count: int) -> None:
    """Check that the rows that a table shows and those that it does not show are all rows, as text and as HTML."""
    rows = Table([Row(place) for place in range(count)], Row)
    text, html = repr(rows), rows._repr_html_()
    for shown, said in ((len(re.findall(r"^ *\d+$", text, re.M)), text), (html.count("<tr><td>"), html)):
        more = re.search(r"… ([\d,]+) more", said)
        assert shown + (number(more[1]) if more else 0) == count, said


def test_a_finding_without_a_text() -> None:
    """Check that a finding of an older file, which lacks the figures of its text, is named by its id."""
    (found,) = findings_of([Finding("free-chunks", MIB, {})])
    assert (found.id, found.text, found.bytes) == ("free-chunks", "free-chunks", MIB)


@pytest.mark.parametrize("total", [0, 1, 7, 1000])
def test_progress_in_percent(total: int) -> None:
    """Check that progress grows from 0 to 100 % in equal steps, and has no share of an unknown total."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream, os.fdopen(writing, "wb", 0) as out:
        progress = Progress(out.fileno())
        for done in range(total + 1):
            progress.next = time.monotonic() - 1
            progress("walk", done, total)
        out.close()
        said = [line for line in stream.read().decode().split("\r\033[K") if line]
    shares = [int(share) for share in re.findall(r" (\d+) %", "\n".join(said))]
    assert len(said) == total + 1 and shares == [100 * done // total for done in range(total + 1) if total]


def test_pins_on_the_page(rng: random.Random) -> None:
    """Check that the listed pins and those that are left out are all pins, although the answer has only some."""
    most = 10
    for _ in range(20):
        groups = rng.randrange(20, 3000)
        pins = [Pin(place * MIB, 16, "other", "glibc", MIB, 1, []) for place in range(20)]
        sums = [PinSums("glibc", groups, groups, 16 * groups, groups * MIB, 20, ("chunk", "chunks"), "page")]
        answer = Pins(pins, sums, [], 1, True)
        page = holes_section(Outcome(Holes([], 0, 0, 0)), Outcome(answer), most, Style(rss=100 * MIB)).body
        listed = page.partition('<table id="pins-table">')[2]
        assert listed.partition("</tbody>")[0].partition("<tbody>")[2].count("<tr>") == most
        assert f"{groups - most:,} more are not shown" in listed
