"""Holders that grew between snapshots: compared with the program's own figures, however their paths are written."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.programs import ask, gdbheap, running

from gdbheap import open as open_heap
from gdbheap.answers.holder_change import HolderChange
from gdbheap.findings.equal_strings.rule import EqualStrings
from gdbheap.findings.finding import Finding
from gdbheap.findings.holder.rule import MainHolder
from gdbheap.first_page.ledger import Ledger, Rss
from gdbheap.report.text.style import Style
from gdbheap.report.words.diff import render
from gdbheap.report.words.holder_changes import growth_sentence
from gdbheap.snapshots.difference import difference
from gdbheap.snapshots.holder_changes import changed_holders
from gdbheap.snapshots.snapshot import Snapshot, SnapshotWithBlocks

MIB = 1 << 20
# A program that adds as many items as a line requests, and prints the bytes of all items by its own count.
GROWS = """
import sys
CACHE, OTHER = {}, [bytes(1000) for _ in range(4000)]
def grow(count):
    for _ in range(count):
        CACHE[len(CACHE)] = bytes(3000)
    print(sum(map(sys.getsizeof, CACHE.values())) + sys.getsizeof(CACHE), file=sys.stderr, flush=True)
grow(2000)
for line in sys.stdin:
    grow(int(line))
"""


def look(*rows: MainHolder) -> Snapshot:
    """Return a snapshot with these holders."""
    return Snapshot(0.0, "", {}, Ledger(Rss(100 * MIB, 0, ""), [], []), holders=list(rows))


def row(path: str, size: int, address: int | None = None, kind: str = "variable") -> MainHolder:
    return MainHolder(size, size, None, path, "dict", None, kind, address)


def changes(*looks: Snapshot, same: bool = True) -> list[HolderChange]:
    found = changed_holders(looks, same)
    assert found is not None
    return found


def test_a_part_counts_for_the_whole() -> None:
    """Check that a part that became large enough for its own row is not taken as new."""
    before, after = look(row("S", 10 * MIB)), look(row("S", 4 * MIB), row("S['c']", 9 * MIB), row("S.x", 3 * MIB))
    (change,) = changes(before, after)
    assert (change.path, change.bytes, change.looks) == ("S", 6 * MIB, [10 * MIB, 16 * MIB])
    assert change.split_paths == ["S.x", "S['c']"] and not change.at_least
    (back,) = changes(after, before)
    assert back.bytes == -change.bytes


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("404 other packages: ast, abc, …", "405 other packages: abc, zip"),
        ("8,120 memory contexts CachedPlan", "8,130 memory contexts CachedPlan"),
        ("memory context CachedPlan", "2 memory contexts CachedPlan"),
        ("table: std::vector<int>", "table"),
        ("L[0]", "L[…]"),
        ("list(dict.values(L))[…]", "L[…]"),
        ("list(dict.values(list(dict.values(L))[2].rows))[7]", "L['key'].rows['other']"),
    ],
)
def test_names_that_vary(before: str, after: str) -> None:
    """Check that a number of items is not part of a holder's name."""
    kind = "package" if "packages" in before else "context" if "context" in before else "variable"
    kind = "global" if before.startswith("table") else kind
    (change,) = changes(look(row(before, MIB, kind=kind)), look(row(after, 3 * MIB, kind=kind)))
    assert (change.path, change.bytes, change.state) == (after, 2 * MIB, "changed")


def test_an_object_that_moved_is_the_same(rng: random.Random) -> None:
    """Check that an object of one process is recognised by its address, and of two processes only by its path."""
    address = rng.getrandbits(40)
    before, after = look(row("L[3]", 4 * MIB, address)), look(row("L[7]", 5 * MIB, address))
    (change,) = changes(before, after)
    assert (change.path, change.bytes) == ("L[7]", MIB)
    assert {one.state for one in changes(before, after, same=False)} == {"new", "gone"}


def test_what_had_no_row_grew_by_at_least(rng: random.Random) -> None:
    """Check that a variable without an earlier row grew by at least its size minus a fiftieth of the bytes in use."""
    size = rng.randrange(30 * MIB, 60 * MIB)
    first = look(row("A", 50 * MIB))
    (change,) = changes(first, look(row("A", 50 * MIB), row("B", size)))
    assert (change.bytes, change.state, change.at_least) == (size - MIB, "new", True)
    (change,) = changes(first, look(row("A", 50 * MIB), row("B", size, kind="nobody")))
    assert (change.bytes, change.at_least) == (size, False)


def test_nothing_is_said_without_holders() -> None:
    """Check that an older file without holders gives no comparison."""
    assert changed_holders([look(), replace(look(), holders=None)], True) is None
    assert growth_sentence(None, None, None, Style()) == ""
    assert growth_sentence([], 0, 0, Style()) == "No holder grew."
    assert "Free memory in the allocators grew by 2.0 MiB" in growth_sentence([], 0, 2 * MIB, Style(rss=3 * MIB))


def test_keys_that_a_file_does_not_have(tmp_path: Path) -> None:
    """Check that a snapshot without contents of keys and a process with them show no growth."""
    file = tmp_path / "before.heap"
    code = "HELD = {f'key {n}': [bytes(9000 + m) for m in range(200)] for n in range(6)}; input()"
    with running([sys.executable, "-c", code], tmp_path) as target:
        assert gdbheap("snapshot", str(target.pid), str(file)).returncode == 0
        answer = ask("diff", str(file), str(target.pid))
    assert answer["holders"] == []


def test_which_holder_grew(rng: random.Random, tmp_path: Path) -> None:
    """Check that ``diff`` and ``heap --since`` first name the dictionary that grew, by the bytes that the program
    counts."""
    file, count = tmp_path / "before.heap", rng.randrange(1000, 5000)
    with running([sys.executable, "-c", GROWS], tmp_path) as target:
        assert gdbheap("snapshot", str(target.pid), str(file)).returncode == 0
        target.go_on(str(count))
        first, last = map(int, target.stderr.split())
        answer = ask("diff", str(file), str(target.pid))
        text = gdbheap("diff", str(file), str(target.pid)).stdout
        since = ask("", str(target.pid), "--since", str(file))
        page = gdbheap(str(target.pid), "--since", str(file)).stdout
    change = answer["holders"][0]
    assert (change["path"], change["count"], change["counts"]) == ("CACHE", count, [2000, 2000 + count])
    # Keys are larger integers, and blocks have headers: each less than 80 bytes an item.
    assert last - first <= change["bytes"] <= last - first + 80 * count + MIB // 8
    assert text.startswith("Holder CACHE grew by ") and f"dict of 2,000, now {2000 + count:,}" in text.splitlines()[0]
    assert since["since"]["holders"][0]["path"] == "CACHE"
    assert "Holder CACHE grew by" in "".join(page.splitlines()[:3])


def test_unknown_is_not_gone() -> None:
    """Check that a finding for which a snapshot did not look is neither gone nor new."""
    has = SnapshotWithBlocks(look(), None)
    found = Finding("equal-strings", 20 * MIB, EqualStrings(9, 2, 7))
    has = replace(has, snapshot=replace(look(), ledger=replace(look().ledger, findings=[found])))
    for unknown, states in ([], ("gone", "new")), (["lost-*", "equal-*"], ("unknown", "unknown")):
        other = replace(has, snapshot=replace(look(), ledger=replace(look().ledger, unknown_findings=unknown)))
        for looks, state in zip(([has, other], [other, has]), states):
            answer = difference(looks)
            (change,) = answer.findings
            text = render(answer, answer, 20, Style())
            assert change.state == state and (change.bytes is None) == bool(unknown)
            assert (f"Finding equal-strings is {state}: " in text) != bool(unknown)
            assert ("one of the snapshots did not look for it" in text) == bool(unknown)


def test_what_is_too_large_is_unknown(rng: random.Random, tmp_path: Path) -> None:
    """Check that a snapshot says for which findings it did not look, and that a comparison does not call them gone."""
    count = rng.randrange(150_000, 200_000)
    made = (
        f"import sys; held = [[b'%08d' % (n % 4000) + bytes(900)] for n in range({count})];"
        "print(flush=True); sys.stdin.readline()"
    )
    with running([sys.executable, "-c", made], tmp_path) as target:
        files = [str(tmp_path / name) for name in ("with.heap", "without.heap")]
        for file, owners in zip(files, (True, False)):
            with open_heap(target.pid) as heap:
                heap.save(file, owners=owners)
        changed = {change["id"]: change for change in ask("diff", *files)["findings"]}
    assert changed["equal-strings"] == {"id": "equal-strings", "state": "unknown", "bytes": None}
