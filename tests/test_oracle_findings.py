"""The findings of ``heap``: a faulty program gets the finding, following its advice frees the promised bytes by the
kernel's count, and a program without the fault does not get it."""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import kernel
from support.findings import FORBID, THP, finding
from support.library import heap_of
from support.programs import (
    FORMS,
    FREE_THREADED,
    KERNEL_CORE,
    RELEASE,
    RELEASES,
    Running,
    ask,
    c_program,
    gdbheap,
    interpreter_of_release,
    python_program,
    release_program,
    running,
    since,
)

from gdbheap.contents.python.objects.slack import find_slack
from gdbheap.findings.finding import Finding
from gdbheap.findings.leak_like import rule as one_container
from gdbheap.first_page import ledger
from gdbheap.report.words.findings import advice_of

pytestmark = pytest.mark.cases(8)

TRIM_THRESHOLD = {"MALLOC_TRIM_THRESHOLD_": "131072"}
MMAP_THRESHOLD = {"MALLOC_MMAP_THRESHOLD_": "131072"}
ONE_ARENA = {"MALLOC_ARENA_MAX": "1"}
MANY_ARENAS = {"MALLOC_ARENA_MAX": "200"}

# Sizes in CPython 3.10 and later.
GC_HEAD, ARENA = 16, 1 << 20

HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def program(rng: random.Random, tmp_path: Path, fault: str) -> list[str]:
    """Return the command of faults.c with one fault."""
    return c_program("faults", rng.getrandbits(30), fault, tmp_path / "mapped-file")


def rss(target: Running) -> int:
    """Return the RSS of a target."""
    return kernel.rollup(target.pid)[0]


def in_use(target: Running) -> int:
    """Return the bytes of pymalloc's blocks in use, as the interpreter last reported."""
    told = re.findall(r"^# bytes in allocated blocks += +([\d,]+)$", target.stderr, re.MULTILINE)
    return int(told[-1].replace(",", ""))


def used(target: Running) -> int:
    """Return the bytes of mimalloc's blocks in use: the interpreter counts only the blocks (tests/test_mimalloc.py),
    and pages are returned at any time."""
    return sum(row["size"] * row["used_count"] for row in ask("pools", str(target.pid))["rows"])


def check_gone(freed: int, found: dict[str, Any], after: list[dict[str, Any]]) -> None:
    """Check that at least four fifths of the promised bytes were freed, and that the finding is gone."""
    assert freed >= found["bytes"] * 0.8, (freed, found)
    assert found["id"] not in [row["id"] for row in after]


def follow_advice(
    target: Running, name: str, measure: Callable[[Running], int] = rss, line: str = ""
) -> dict[str, Any]:
    """Let the program follow the advice of the finding; return the finding."""
    found = finding(ask("", str(target.pid)), name)
    before = measure(target)
    target.go_on(line)
    freed = before - measure(target)
    check_gone(freed, found, ask("", str(target.pid))["findings"])
    return found


def check_started_otherwise(
    name: str,
    faulty: tuple[list[str], dict[str, str]],
    advised: tuple[list[str], dict[str, str]],
    tmp_path: Path,
    trimmed: bool = False,
) -> None:
    """Check that a program (command and environment) has the finding, and that the advised one has not, with an RSS
    smaller by the promised bytes, after malloc_trim(0) if the advice includes it."""
    with running(faulty[0], tmp_path, faulty[1]) as target:
        found = finding(ask("", str(target.pid)), name)
        before = rss(target)
    # The text and the figures name the bytes of the finding, not those of another measure.
    assert found["figures"].get("kept", found["bytes"]) == found["bytes"]
    with running(advised[0], tmp_path, advised[1]) as target:
        if trimmed:
            target.go_on()
        freed = before - rss(target)
        after = ask("", str(target.pid))["findings"]
    check_gone(freed, found, after)


# Remedies from within the program: malloc_trim(0), unmapping, ending threads.
@pytest.mark.parametrize(
    ("fault", "name"),
    [
        ("chunks", "free-chunks"),
        ("top", "main-top"),
        ("lowered", "main-top"),
        ("mapped", "mapped-memory"),
        ("shared", "shared-memory"),
        ("file", "mapped-files"),
        ("stacks", "stacks"),
    ],
)
def test_done_from_within(fault: str, name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that RSS shrinks by the promised bytes when the program follows the advice, and that the finding is
    gone."""
    with running(program(rng, tmp_path, fault), tmp_path) as target:
        follow_advice(target, name)


@pytest.mark.parametrize(("fault", "name"), [("chunks", "free-chunks"), ("lowered", "main-top")])
def test_lines_to_paste(fault: str, name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the printed commands do what is advised, unchanged; a core has none that needs a process."""
    with running(program(rng, tmp_path, fault), tmp_path) as target:
        found, before = finding(ask("", str(target.pid)), name), rss(target)
        lines = [line for line in found["commands"] if line.startswith("gdbheap ")]
        done = [gdbheap(*shlex.split(line, comments=True)[1:]) for line in lines]
        check_gone(before - rss(target), found, ask("", str(target.pid))["findings"])
        assert done and all(each.returncode == 0 for each in done), [each.stderr for each in done]
    with running(program(rng, tmp_path, fault), tmp_path) as target:
        core = target.as_form(KERNEL_CORE)
    lines = finding(ask("", core), name)["commands"]
    assert not [line for line in lines if "--yes" in line] and all(core in line for line in lines if "gdbheap" in line)


@pytest.mark.parametrize(
    ("fault", "name", "faulty", "advised", "trimmed"),
    [
        ("top", "main-top", {}, TRIM_THRESHOLD, False),
        ("tops", "thread-tops", {}, TRIM_THRESHOLD, False),
        # The bytes that 'replay --what-if' measures.
        ("tops", "thread-tops", {}, ONE_ARENA, True),
        ("small", "thread-tops", MANY_ARENAS, ONE_ARENA, True),
        ("large", "large-chunks", {}, MMAP_THRESHOLD, False),
        ("growing", "growing-buffers", {}, MMAP_THRESHOLD, False),
    ],
)
def test_started_as_advised(
    fault: str,
    name: str,
    faulty: dict[str, str],
    advised: dict[str, str],
    trimmed: bool,
    rng: random.Random,
    tmp_path: Path,
) -> None:
    """Check that a program that is started as advised has an RSS smaller by the promised bytes, and no such finding."""
    command = program(rng, tmp_path, fault)
    check_started_otherwise(name, (command, faulty), (command, advised), tmp_path, trimmed)


def test_reserved(rng: random.Random, tmp_path: Path) -> None:
    """Check that buffers with their final size from the beginning leave no holes."""
    seed = rng.getrandbits(30)
    growing, reserved = (c_program("faults", seed, fault, tmp_path / "none") for fault in ("growing", "reserved"))
    check_started_otherwise("growing-buffers", (growing, {}), (reserved, {}), tmp_path)


@pytest.mark.parametrize("release", RELEASES)
def test_growing_python(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check Python's byte arrays, below a threshold that has risen."""
    command = release_program(release, "faults", rng.getrandbits(30), "columns")
    check_started_otherwise("growing-buffers", (command, {}), (command, MMAP_THRESHOLD), tmp_path)


def test_pymalloc_arenas(rng: random.Random, tmp_path: Path) -> None:
    """Check a program that drops the objects that the advice names."""
    truth = tmp_path / "truth"
    command = python_program("stripped", "pinned_arenas", rng.getrandbits(30), 2000, truth)
    with running(command, tmp_path) as target:
        pins = ask("pins", str(target.pid), "--allocator=pymalloc", "--min=4K")["rows"]
        found = follow_advice(target, "pymalloc-arenas", line=str(truth))
        assert found["commands"] == [f"gdbheap pins {target.pid} --allocator=pymalloc"]
    named = {member["address"] for pin in pins for member in pin["members"]}
    others = [address for address in json.loads(truth.read_text()) if address - GC_HEAD not in named]
    assert found["figures"]["blocks"] == len(named)
    # Objects in arenas in which the interpreter's own blocks take more than half.
    assert max(others, default=0) - min(others, default=0) < ARENA


WITH_FIGURES = [release for release in RELEASES if release != "2.7"]


EVERYWHERE = [
    ("views", "small-views"),
    ("idle", "free-lists"),
    ("cycles", "cycles"),
    ("queue", "slack"),
    ("cache", "leak-like"),
    ("traced", "tracemalloc"),
]
TABLES = [("emptied", "slack"), ("emptied set", "slack")]
EVERYWHERE += TABLES
ONCE = [("old", "cycles"), ("lists", "slack"), ("stack", "slack"), ("buffer", "slack"), ("log", "leak-like")]
ONCE += [("many cache", "leak-like"), ("popped", "slack")]
# The buffers of these have their own mappings.
BY_RSS = ("traced", "stack", "buffer", "queue", "emptied", "popped", "emptied set", "views", "numbers")
PYTHON_FAULTS = [
    (release, *fault) for release in WITH_FIGURES for fault in (EVERYWHERE + ONCE if release == RELEASE else EVERYWHERE)
]
PYTHON_FAULTS += [("2.7", *fault) for fault in [*TABLES, ("views", "small-views")] if "2.7" in RELEASES]
PYTHON_FAULTS += [("2.7", "numbers", "free-lists") for release in RELEASES if release == "2.7"]
PYTHON_FAULTS += [(release, *fault) for release in FREE_THREADED for fault in EVERYWHERE + ONCE]


@pytest.mark.parametrize(("release", "fault", "name"), PYTHON_FAULTS)
def test_python(release: str, fault: str, name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the blocks in use by its own count, or the RSS, of a Python program shrink by the promised bytes
    when it follows the advice."""
    measure = used if release in FREE_THREADED else rss if fault in BY_RSS else in_use
    with running(release_program(release, "faults", rng.getrandbits(30), fault), tmp_path) as target:
        follow_advice(target, name, measure)


@pytest.mark.parametrize("release", since("3.6"))
def test_views_that_keep_nothing(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that views of bytes with another holder, or of most of the bytes, are no finding."""
    with running(release_program(release, "faults", rng.getrandbits(30), "parts"), tmp_path) as target:
        assert "small-views" not in [row["id"] for row in ask("", str(target.pid))["findings"]]


@pytest.mark.parametrize("release", [*RELEASES, *FREE_THREADED])
def test_grown(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that tables made by growth alone, or that a copy cannot replace, do not count as emptied."""
    with running(release_program(release, "faults", rng.getrandbits(30), "grown"), tmp_path) as target:
        assert "slack" not in [row["id"] for row in ask("", str(target.pid))["findings"]]


@pytest.mark.parametrize("fault", ["emptied", "emptied set"])
def test_damaged_tables(fault: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that no more is promised than the block has, whatever a dict, a set or a table claims."""
    evil = [0, 1, 8, 255, 1 << 40, 1 << 61, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
    with running(python_program("stripped", "faults", rng.getrandbits(30), fault), tmp_path) as target:
        pid = target.pid
        found = finding(ask("", str(pid)), "slack")
        largest, address = found["bytes"] + (1 << 20), found["figures"]["address"]
        table = kernel.read_u64(pid, address + (32 if fault == "emptied" else 40))
        words = [address + 8 * number for number in range(2, 6)] + [table + 8 * number for number in range(4)]
        promised = []
        with heap_of(str(pid)) as heap, open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
            assert heap.python.objects_or_none is not None
            for _ in range(200):
                at = rng.choice(words)
                before = kernel.read(pid, at, 8)
                word = rng.choice([*evil, table + rng.randrange(1 << 16), rng.getrandbits(64), rng.getrandbits(20)])
                os.pwrite(memory.fileno(), struct.pack("<Q", word), at)
                rows = find_slack(heap.target, heap.python.objects_or_none, ["dict", "set"])
                os.pwrite(memory.fileno(), before, at)
                promised.append(sum(row.pages for row in rows))
    assert max(promised) <= largest
    assert 0 in promised


@pytest.mark.parametrize("form", FORMS[1:])
@pytest.mark.parametrize(("fault", "name"), [("idle", "free-lists"), ("cycles", "cycles"), ("cache", "leak-like")])
def test_cores(fault: str, name: str, form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that findings about objects are found in cores too, also if residency is unknown."""
    with running(python_program("stripped", "faults", rng.getrandbits(30), fault), tmp_path) as target:
        alive = finding(ask("", str(target.pid)), name)
        core = finding(ask("", target.as_form(form)), name)
    assert core["figures"] == alive["figures"]
    assert core["bytes"] == alive["bytes"]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("fault", ["registered", "handled"])
def test_cycles_through_c(fault: str, release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the finding says whether the collector frees cycles closed by words of C code: it sees the handlers
    of a parser, but nothing that sqlite holds."""
    with running(release_program(release, "faults", rng.getrandbits(30), fault), tmp_path) as target:
        answer = ask("", str(target.pid), "--detail")
        shown = gdbheap("unreachable", str(target.pid)).stdout
        found = finding(answer, "uncollectable-cycles")
        target.go_on()
        ((left, count),) = re.findall(r"^left (\d+) of (\d+)$", target.stderr, re.MULTILINE)
    # Stale words may lead to a part.
    size = int(count) * 200 * 1000
    assert 0.8 * size <= found["bytes"] <= 1.5 * size
    assert "cycles" not in [row["id"] for row in answer["findings"]]
    assert left == (count if fault == "registered" else "0")
    assert ("gc.collect() cannot free these objects" in found["advice"]) == (fault == "registered")
    assert found["advice"].startswith("call close()" if fault == "registered" else "call gc.collect(); if that")
    assert (" may free " in " ".join(shown.split())) == (fault == "handled")
    assert {"registered": "sqlite3.Connection", "handled": "xmlparser"}[fault] in found["text"]


def test_keys_on_a_free_list_behind_an_object(tmp_path: Path) -> None:
    """Check a seed with which an object of their size precedes dict keys on the interpreter's free list: the words
    of the keys still lead nowhere."""
    with running(release_program("3.13", "faults", 1041252470, "registered"), tmp_path) as target:
        assert finding(ask("", str(target.pid), "--detail"), "uncollectable-cycles")["bytes"] > 10 << 20


@pytest.mark.parametrize("release", since("3.7"))
def test_frozen(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the advice mentions gc.freeze() if it hides cycles from the collector."""
    with running(release_program(release, "faults", rng.getrandbits(30), "frozen"), tmp_path) as target:
        found = finding(ask("", str(target.pid)), "cycles")
        before = in_use(target)
        target.go_on()
        freed = before - in_use(target)
    assert "gc.unfreeze()" in found["advice"]
    assert found["figures"]["enabled"] == 1
    assert freed >= found["bytes"] * 0.8, (freed, found)


def test_leak_like(rng: random.Random, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the leak is named as Python would write it, with its exact number; without the graph less is
    promised, never more."""
    with running(python_program("stripped", "faults", rng.getrandbits(30), "cache"), tmp_path) as target:
        found = finding(ask("", str(target.pid)), "leak-like")
        monkeypatch.setattr(one_container, "MAX_LIKELY_GRAPH_BLOCKS", 0)
        monkeypatch.setattr(one_container, "MIN_SHARE_OF_USED", 0.3)
        with heap_of(str(target.pid)) as heap:
            (least,) = [row for row in ledger.ledger(heap).findings if row.id == "leak-like"]
        before = in_use(target)
        target.go_on()
        freed = before - in_use(target)
        (count,) = map(int, re.findall(r"^kept (\d+)$", target.stderr, re.MULTILINE))
    assert found["text"].startswith("Cache.kept (dict of ")
    assert found["figures"]["kept"] == least.listed["kept"] == count
    assert "heap why" in advice_of(least)
    assert least.commands == [f"gdbheap why {target.pid} {found['figures']['address']:#x}"]
    assert least.bytes <= found["bytes"] and freed >= least.bytes * 0.8


WEAKLY = """
import signal, weakref
class Node:
    def __init__(self, depth):
        self.text = "text %d" % depth
        self.children = [Node(depth - 1) for _ in range(3)] if depth else []
        seen[id(self)] = self
seen = weakref.WeakValueDictionary()
root = Node(10)
signal.pause()
"""


@pytest.mark.parametrize("release", since("3.7"))
def test_ids_keep_nothing(release: str, tmp_path: Path) -> None:
    """Check that a dict does not keep the objects whose addresses are the hashes of its keys."""
    script = tmp_path / "script.py"
    script.write_text(WEAKLY)
    with running([interpreter_of_release(release).executable, str(script)], tmp_path) as target:
        found = [row for row in ask("", str(target.pid))["findings"] if row["id"] == "leak-like"]
    assert not [row for row in found if "of type __main__.Node" in row["text"]], found


VERSIONED = [release for release in RELEASES if release in ("3.6", "3.9", "3.11", "3.12", "3.13")]


@pytest.mark.parametrize("release", VERSIONED)
def test_full_before_the_first_request(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that a dict that is unchanged for as long as the others is not leak-like until it changes."""
    with running(release_program(release, "faults", rng.getrandbits(30), "full"), tmp_path) as target:
        before = [row["id"] for row in ask("", str(target.pid))["findings"]]
        target.go_on()
        after = finding(ask("", str(target.pid)), "leak-like")
    assert "leak-like" not in before and not after["is_doubtful"]


def test_shared_since_fork(rng: random.Random, tmp_path: Path) -> None:
    """Check that a dict whose pages a child shares is not leak-like, in either process, until the process writes to
    them."""
    with running(python_program("stripped", "faults", rng.getrandbits(30), "forked"), tmp_path) as target:
        (child,) = map(int, Path(f"/proc/{target.pid}/task/{target.pid}/children").read_text().split())
        both = [[row["id"] for row in ask("", str(pid))["findings"]] for pid in (target.pid, child)]
        target.go_on()
        finding(ask("", str(target.pid)), "leak-like")
    assert all("leak-like" not in names for names in both), both


def test_the_largest_stands_first() -> None:
    """Check that the largest finding comes first, intended or not."""
    rows = [
        Finding("slack", 1, {}),
        Finding("leak-like", 9 << 30, {}, doubtful=True),
        Finding("main-top", 2, {}),
    ]
    assert [row.id for row in sorted(rows, key=lambda row: row.rank)] == ["leak-like", "main-top", "slack"]


def test_many_cycles(rng: random.Random, tmp_path: Path) -> None:
    """Check that cycles are found in a large heap too, since the page follows references anyway, and in detail."""
    for fault in ("many cycles", "many old"):
        with running(python_program("stripped", "faults", rng.getrandbits(30), fault), tmp_path) as target:
            rows = ask("", str(target.pid))["findings"]
            found = finding(ask("", str(target.pid), "--detail"), "cycles")
            before = in_use(target)
            target.go_on()
            freed = before - in_use(target)
        assert [row["id"] for row in rows].count("cycles") == 1
        assert freed >= found["bytes"] * 0.8, (freed, found)


def test_pinned_pages(rng: random.Random, tmp_path: Path) -> None:
    """Check a program that frees the blocks that the advice names, and trims."""
    command = c_program("pins", rng.getrandbits(30), 2, 30_000, 12, 30_000, 0, tmp_path / "table")
    with running(command, tmp_path, {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}) as target:
        found = finding(ask("", str(target.pid)), "pinned-pages")
        assert found["commands"] == [f"gdbheap pins {target.pid} --allocator=glibc"]
        pins = ask("pins", str(target.pid), "--allocator=glibc")["rows"]
        held = (tmp_path / "table").read_bytes()
        (target.directory / "none").write_bytes(b"")
        target.go_on(str(target.directory / "none"))
        before = rss(target)
        pointers = {struct.pack("<Q", member["address"]) for pin in pins for member in pin["members"]}
        own = [held[at : at + 8] for at in range(0, len(held), 8) if held[at : at + 8] in pointers]
        (target.directory / "told").write_bytes(b"".join(own))
        target.go_on(str(target.directory / "told"))
        freed = before - rss(target)
        after = ask("", str(target.pid))["findings"]
    check_gone(freed, found, after)
    # The blocks themselves were in use: the freed bytes are more by at least their size.
    assert found["bytes"] + found["figures"]["held"] <= 1.1 * freed


@pytest.mark.parametrize("way", ["not asked for", "forbidden", "trimmed"])
def test_huge_pages(way: str, rng: random.Random, tmp_path: Path) -> None:
    """Check a malloc that does not request huge pages, a process that may have none, and a program that calls
    malloc_trim(0)."""
    if not THP.exists() or "[never]" in THP.read_text():
        pytest.skip("this kernel makes no huge pages")
    command = program(rng, tmp_path, "huge")
    with running(command, tmp_path, HUGE_PAGES) as target:
        answer = ask("", str(target.pid))
        if all(line["huge"] is None for line in answer["ledger"]):
            pytest.skip("this kernel does not say which pages are huge")
        found = finding(answer, "huge-pages")
        before = rss(target)
        if way == "trimmed":
            target.go_on()
            freed = before - rss(target)
            after = ask("", str(target.pid))["findings"]
    if way != "trimmed":
        how = (command, {}) if way == "not asked for" else ([sys.executable, "-c", FORBID, *command], HUGE_PAGES)
        with running(how[0], tmp_path, how[1]) as target:
            freed = before - rss(target)
            after = ask("", str(target.pid))["findings"]
    check_gone(freed, found, after)


def test_after_fork(rng: random.Random, tmp_path: Path) -> None:
    """Check two processes that share all memory: the sum of their RSS exceeds it by the bytes of both findings."""
    with running(program(rng, tmp_path, "fork"), tmp_path) as target:
        (child,) = map(int, Path(f"/proc/{target.pid}/task/{target.pid}/children").read_text().split())
        rows = [finding(ask("", str(pid)), "after-fork") for pid in (target.pid, child)]
        counted = [kernel.anonymous(pid) for pid in (target.pid, child)]
    promised = sum(row["bytes"] for row in rows)
    assert abs(sum(counted) - promised - max(counted)) <= promised // 50, (rows, counted)


@pytest.mark.parametrize("environment", [{}, TRIM_THRESHOLD, ONE_ARENA, HUGE_PAGES])
def test_healthy(environment: dict[str, str], rng: random.Random, tmp_path: Path) -> None:
    """Check that a program that uses all its memory gets no finding."""
    with running(program(rng, tmp_path, "healthy"), tmp_path, environment) as target:
        assert ask("", str(target.pid), "--quick")["findings"] == []


@pytest.mark.parametrize("release", [*RELEASES, *FREE_THREADED])
def test_healthy_release(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that a Python program with objects of several kinds in several containers gets no finding."""
    with running(release_program(release, "faults", rng.getrandbits(30), "healthy"), tmp_path) as target:
        assert ask("", str(target.pid), "--quick")["findings"] == []


def test_healthy_python(rng: random.Random, tmp_path: Path) -> None:
    """Check that a Python program with live objects gets no finding, except that a single dict keeps them all."""
    truth = tmp_path / "truth"
    command = python_program("stripped", "pinned_arenas", rng.getrandbits(30), 1, truth)
    with running(command, tmp_path) as target:
        assert [row["id"] for row in ask("", str(target.pid), "--quick")["findings"]] == ["leak-like"]
