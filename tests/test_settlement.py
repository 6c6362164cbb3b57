"""No byte counts in two findings: checked on made-up claims against a count page by page, and on a program whose
holes two rules find."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.programs import ask, c_program, running

from gdbheap.findings.capacity.rule import ContainerRoom
from gdbheap.findings.finding import Evidence, Figures, Finding, FindingClaim
from gdbheap.findings.holder.rule import LargeHolder, MainHolder, with_room
from gdbheap.findings.settings import lines_to_paste
from gdbheap.findings.settlement import COUNTED, OF_ALL, ORDER, ordered, placed, settle
from gdbheap.report.words.findings import advice_of, text_of
from gdbheap.report.words.ledger import advice_sentence

PAGE = 4096


class Pages:
    """Memory with every page resident."""

    def count(self, start: int, end: int) -> SimpleNamespace:
        """Return the resident and swapped bytes."""
        return SimpleNamespace(resident=end - start, swapped=0)


class Looked:
    """A stand-in for the evidence: settle() asks for resident bytes, the page size, and the least worthwhile size."""

    resident_of = Evidence.resident_of

    def __init__(self, least: int) -> None:
        """``least``: the bytes that are worth a finding."""
        self.least = least
        self.heap = self
        self.target = self
        self.machine = SimpleNamespace(page=PAGE)
        self.pages = Pages()

    def worth(self, size: int) -> bool:
        """Return whether a finding of this size is worthwhile."""
        return size >= self.least


def settled(claims: list[FindingClaim], least: int) -> list[Finding]:
    """Return the result of settle()."""
    return settle(cast(Evidence, cast(Any, Looked(least))), claims)


def test_no_byte_twice(rng: random.Random) -> None:
    """Check that all findings together promise at most the pages that any of them claims, and that the most specific
    one keeps its own."""
    for _ in range(200):
        claims, pages = [], set()
        for name in rng.sample(ORDER, rng.randrange(1, 6)):
            own: set[int] = set()
            for _ in range(rng.randrange(1, 5)):
                first = rng.randrange(100)
                own.update(range(first, first + rng.randrange(1, 30)))
            ranges = [(page * PAGE, page * PAGE + PAGE) for page in sorted(own)]
            pages |= own
            claims.append(FindingClaim(Finding(name, len(own) * PAGE, {}), partial(list, ranges), has_remedy=True))
        found = settled(claims, rng.choice([1, 5 * PAGE, 20 * PAGE]))
        assert sum(finding.bytes for finding in found) <= len(pages) * PAGE
        first_claim = min(claims, key=lambda claim: ORDER.index(claim.finding.id)).finding
        assert [row.bytes for row in found if row.id == first_claim.id] == [first_claim.bytes]


def test_alternatives() -> None:
    """Check that a finding whose bytes belong to another gives its remedy to that one, and that one with enough
    bytes keeps those."""
    ranges = [(0, 100 * PAGE)]
    large = FindingClaim(Finding("large-chunks", 60 * PAGE, {}), lambda: [(0, 60 * PAGE)])
    free = FindingClaim(Finding("free-chunks", 100 * PAGE, {}), lambda: ranges, has_remedy=True)
    both = {row.id: row for row in settled([free, large], 10 * PAGE)}
    assert both["large-chunks"].bytes == 60 * PAGE and both["free-chunks"].bytes == 40 * PAGE
    (one,) = settled([free, large], 50 * PAGE)
    assert (one.id, one.bytes, [each.id for each in one.alternatives]) == ("large-chunks", 60 * PAGE, ["free-chunks"])


def test_what_lies_in_another() -> None:
    """Check that for objects, whose shared bytes are not counted, the second finding names the one that its bytes
    may belong to."""
    leak, slack = Finding("leak-like", 9 << 20, {}), Finding("slack", 5 << 20, {})
    found = {row.id: row for row in settled([FindingClaim(slack, list), FindingClaim(leak, list)], 1)}
    assert found["slack"].within == "leak-like" and not found["slack"].also_within
    assert found["leak-like"].within is None


def test_each_is_named_with_its_own_bytes() -> None:
    """Check that a finding that shares bytes with several names each with the bytes that it takes."""
    large = FindingClaim(Finding("large-chunks", 30 * PAGE, {}), lambda: [(0, 30 * PAGE)])
    tops = FindingClaim(Finding("thread-tops", 20 * PAGE, {}), lambda: [(50 * PAGE, 70 * PAGE)])
    free = FindingClaim(Finding("free-chunks", 100 * PAGE, {}), lambda: [(0, 100 * PAGE)])
    (found,) = [row for row in settled([free, large, tops], PAGE) if row.id == "free-chunks"]
    assert (found.bytes, found.shared) == (50 * PAGE, [("large-chunks", 30 * PAGE), ("thread-tops", 20 * PAGE)])


def test_bytes_are_taken_once() -> None:
    """Check that a finding about a few pages somewhere in two places takes them from one of both, not from both."""
    places = [(0, 50 * PAGE), (60 * PAGE, 110 * PAGE)]
    some = FindingClaim(Finding("large-chunks", 10 * PAGE, {}), lambda: places)
    first = FindingClaim(Finding("free-chunks", 50 * PAGE, {}), lambda: places[:1])
    second = FindingClaim(Finding("mapped-memory", 50 * PAGE, {}), lambda: places[1:])
    found = settled([some, first, second], PAGE)
    assert sum(row.bytes for row in found) == 100 * PAGE and min(row.bytes for row in found) == 10 * PAGE


def test_what_two_have_in_common_is_taken_once() -> None:
    """Check that two findings about the same pages take from a third no more than those pages."""
    one = FindingClaim(Finding("huge-pages", 30 * PAGE, {}), lambda: [(0, 60 * PAGE)])
    two = FindingClaim(Finding("free-chunks", 60 * PAGE, {}), lambda: [(0, 60 * PAGE)])
    three = FindingClaim(Finding("mapped-memory", 50 * PAGE, {}), lambda: [(40 * PAGE, 90 * PAGE)])
    found = {row.id: row.bytes for row in settled([one, two, three], PAGE)}
    assert found == {"huge-pages": 30 * PAGE, "free-chunks": 30 * PAGE, "mapped-memory": 30 * PAGE}


@pytest.mark.parametrize("name", ["slack", "free-lists", "cycles", "leak-like"])
@pytest.mark.parametrize("pinned", ["pymalloc-arenas", "pinned-pages"])
def test_what_lies_in_pages_that_few_blocks_keep(name: str, pinned: str) -> None:
    """Check that the blocks that keep an arena count with it, and may be those of another finding."""
    objects, arenas = Finding(name, 5 << 20, {}), Finding(pinned, 9 << 20, {})
    found = {
        row.id: row for row in settled([FindingClaim(arenas, lambda: [(0, 9 << 20)]), FindingClaim(objects, list)], 1)
    }
    assert found[name].within == pinned and found[pinned].within is None


def test_no_remedy_twice() -> None:
    """Check that a finding's own advice is not its alternative too, and that other commands are added."""
    setting = {"MALLOC_MMAP_THRESHOLD_": "131072"}
    growing = Finding("growing-buffers", 9 * PAGE, {}, environment=setting)
    large = Finding("large-chunks", 9 * PAGE, {}, environment=setting)
    free = Finding("free-chunks", 9 * PAGE, {}, commands=["gdbheap trim 7 --yes"])
    rows = [(growing, False), (large, True), (free, True)]
    (found,) = settled([FindingClaim(one, lambda: [(0, 9 * PAGE)], has_remedy) for one, has_remedy in rows], PAGE)
    assert found.alternatives == [free]
    assert found.commands == ["gdbheap trim 7 --yes", *lines_to_paste(setting)]


def test_holes_make_one_finding(rng: random.Random, tmp_path: Path) -> None:
    """Check that holes of large buffers, which are free chunks too, make one finding, with both remedies and
    commands to paste."""
    with running(c_program("faults", rng.getrandbits(30), "large", tmp_path / "none"), tmp_path) as target:
        answer = ask("", str(target.pid), "--quick")
    trim = answer["reclaimable"]
    assert [row["id"] for row in answer["findings"]] == ["large-chunks"]
    (finding,) = answer["findings"]
    assert finding["bytes"] <= trim and "malloc_trim(0)" in finding["advice"]
    trimming, holes, *settings = finding["commands"]
    assert trimming.startswith(f"gdbheap trim {target.pid} --yes  # without --yes: shows")
    assert holes.startswith(f"gdbheap holes {target.pid}")
    assert settings == lines_to_paste(finding["environment"])
    assert "Environment=MALLOC_MMAP_THRESHOLD_=131072" in finding["commands"]


def test_names_of_functions() -> None:
    """Check that a sentence begins with a capital letter unless it begins with the name of a function or variable."""
    assert advice_sentence("call malloc_trim(0) now") == "Call malloc_trim(0) now."
    assert advice_sentence("malloc_stats_print() in the process tells") == "malloc_stats_print() in the process tells."
    assert advice_sentence("MALLOC_ARENA_MAX=1 does it") == "MALLOC_ARENA_MAX=1 does it."


def held(size: int, path: str = "cache") -> Finding:
    """Return the finding of a holder."""
    row = MainHolder(size, size, 0.5, path, "dict", 9, "variable", 4096)
    return Finding("holder", size, LargeHolder(row, 9), doubtful=True)


def test_gains_stand_before_the_holder(rng: random.Random) -> None:
    """Check that a certain gain of a quarter of a holder's bytes comes before the holder, and that a guess does not."""
    mib = 1 << 20
    size = rng.randrange(100, 200) * mib

    def order(*others: Finding) -> list[str]:
        return [one.id for one in ordered(placed([held(size), *others]))]

    room = partial(ContainerRoom, 1, size, 0, 1, 4096, size, [], path="cache")
    assert order(Finding("capacity", size // 3, room())) == ["capacity", "holder"]
    assert order(Finding("capacity", size // 5, room())) == ["holder", "capacity"]
    guess = Finding("capacity", size // 3, room(conditional=True), doubtful=True)
    assert order(guess) == ["holder", "capacity"]
    elsewhere = room(path="stack of thread 7")
    assert order(Finding("capacity", size // 3, elsewhere)) == ["holder", "capacity"]
    assert order(Finding("growing", size // 2, {})) == ["holder", "growing"]
    assert order(Finding("main-top", size // 2, {})) == ["holder", "main-top"]
    (holder, _guess) = with_room([held(size), guess])
    assert f"up to {size // 3 // mib}" in text_of(holder) and "shrink_to_fit()" in advice_of(holder)
    (holder, _small) = with_room([held(size), Finding("capacity", size // 5, room(), doubtful=True)])
    assert "shrink_to_fit()" not in advice_of(holder)


def test_unused_capacity_of_another_holder(rng: random.Random) -> None:
    """Check that unused capacity names a holder's finding unless another holder reaches nearly all of it."""
    mib = 1 << 20
    size = rng.randrange(40, 80) * mib
    room = ContainerRoom(1, size // 4, 0, size // 4, 4096, size // 4, [], path="stack of thread 7, in the frame of run")
    capacity, holder = Finding("capacity", size // 4, room), held(size, "stack of thread 7: messages")
    other = MainHolder(size // 4, size // 4, 0.1, f"{room.path}: HashMap table", None, None, "thread")

    row = cast(LargeHolder, holder.figures).holder

    def is_named(finding: Finding, *rows: MainHolder) -> bool:
        (told,) = (one for one in placed(with_room([holder, finding], rows)) if one.id == "capacity")
        return "may count the same bytes" in text_of(told)

    assert is_named(capacity) and is_named(capacity, row)
    assert not is_named(capacity, row, other)
    spread = replace(capacity, figures=replace(room, most=size // 8))
    assert is_named(spread, other)
    own = [held(size, other.path), capacity]
    assert [one.within for one in placed(with_room(own, [other]))] == [None, "holder"]


# What the second finding counts may be among the bytes of the first one.
SHARING = [
    ("lost-references", "equal-strings"), ("lost-references", "slack"), ("lost-references", "small-views"),
    ("lost-references", "leak-like"), ("lost-blocks", "capacity"), ("lost-blocks", "equal-strings"),
    ("cycles", "equal-strings"), ("cycles", "leak-like"), ("garbage-list", "equal-strings"), ("holder", "slack"),
    ("holder", "equal-strings"), ("holder", "tracemalloc"), ("slack", "equal-strings"), ("slack", "small-views"),
    ("small-views", "equal-strings"), ("pinned-pages", "lost-references"), ("pymalloc-arenas", "equal-strings"),
    ("holder", "stacks"), ("holder", "mapped-memory"), ("holder", "postgresql-context"),
]  # fmt: skip
APART = [
    ("lost-references", "lost-blocks"), ("lost-references", "cycles"), ("holder", "lost-blocks"), ("holder", "cycles"),
    ("slack", "capacity"), ("mapped-memory", "shared-memory"), ("free-chunks", "equal-strings"), ("stacks", "slack"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "two"), [*SHARING, *APART])
def test_findings_about_kinds_of_memory(one: str, two: str) -> None:
    """Check that exactly one of two findings names the other if their kinds of memory overlap, in either order."""
    for names in ((one, two), (two, one)):
        rows = placed([Finding(name, 9 << 20, {}) for name in names])
        named = [(row.within, row.id) for row in rows if row.within is not None]
        assert named == ([(one, two)] if (one, two) in SHARING else []), named


def test_each_finding_says_what_it_counts() -> None:
    """Check that each kind of finding declares the kinds of memory that it counts."""
    declared = {name for kind in Figures.__subclasses__() for name in kind.ids}
    assert declared - set(OF_ALL) == set(COUNTED)
