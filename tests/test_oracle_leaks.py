"""``heap unreachable`` distinguishes cycles, lost references, lost blocks and doubtful blocks.

It is checked against the program's own collector (gc.DEBUG_SAVEALL keeps what it would have freed), and against the
table of an extension module that leaks.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from pathlib import Path

import pytest
from support.library import heap_of
from support.planted_holders import extension
from support.programs import RELEASE, RELEASES, SOURCES, Running, ask, gdbheap, interpreter_of_release, running

from gdbheap.answers.unreachable import Lost, Unreachable, unreachable

pytestmark = pytest.mark.cases(3)

# Types of objects that hang on cycles but are unknown to the collector.
UNTRACKED = {"bytes", "str", "bytearray", "int", "float", "tuple", "dict", "unicode", "long", "range_iterator"}
Groups = dict[str, set[int]]
# The interpreter keeps words of objects that it took off its free lists: 4 in 3.11, 3 in 3.6, none in 2.7.
MAX_STALE = 12
# Some releases lose a small block themselves: 3.7 loses one.
MAX_OWN = 2


def start(release: str, folder: Path, seed: int, *lost: int) -> list[str]:
    """Return the command of tests/programs/leaks.py."""
    python = interpreter_of_release(release).executable
    leaking = str(extension(python, "leaking_extension"))
    return [python, "-s", str(SOURCES / "leaks.py"), str(seed), str(folder), leaking, *map(str, lost)]


def addresses(rows: list[Lost]) -> Groups:
    """Return the addresses of rows by group; cycles that the collector does not free are "kept"."""
    found: Groups = defaultdict(set)
    for row in rows:
        is_kept = row.group == "cycles" and "gc.collect()" in row.why
        found["kept" if is_kept else row.group].update(row.addresses)
    return found


def look(target: Running) -> Unreachable:
    """Return everything that is listed."""
    with heap_of(str(target.pid)) as heap:
        return unreachable(heap, 1 << 30)


def truth_of(folder: Path) -> Groups:
    """Return the planted addresses, by kind."""
    found: Groups = defaultdict(set)
    for name in ("cycles", "lost"):
        for line in (folder / name).read_text().splitlines():
            kind, address = line.split()
            found[kind].add(int(address))
    return found


@pytest.mark.parametrize("release", RELEASES)
def test_groups(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that each object and block is in its group, and that exactly the cycles that the collector finds are
    collectable."""
    with running(start(release, tmp_path, rng.getrandbits(30)), tmp_path) as target:
        before = look(target)
        target.go_on()
        answer = look(target)
        shown = gdbheap("unreachable", str(target.pid)).stdout
        target.go_on()
        collected = {int(word) for word in (tmp_path / "collected").read_text().split()}
    truth, earlier, found = truth_of(tmp_path), addresses(before.rows), addresses(answer.rows)
    types = {address: row.type for row in answer.rows for address in row.addresses}
    whys = {address: row.why for row in answer.rows for address in row.addresses}
    assert truth["collected"] | truth["failure"] <= collected
    # Python 2 sets aside only objects with a finalizer.
    freed = collected - truth["finalizer"] - {address for address in collected if "__del__" in whys.get(address, "")}
    assert freed <= found["cycles"], len(freed - found["cycles"])
    # Blocks of C code that only objects of cycles lead to have no type.
    assert {types[address] for address in found["cycles"] - collected} <= UNTRACKED | {None}
    kept = truth["untracked"] | truth["finalizer"] | truth["frozen"]
    assert kept <= found["kept"] and not (kept - truth["finalizer"]) & collected
    lost = truth["reference"] | truth["held"]
    missed = lost - found["lost_references"]
    assert len(missed) <= MAX_STALE, len(missed)
    assert truth["block"] <= found["lost_blocks"] | found["doubtful"]
    new = found["lost_blocks"] - earlier["lost_blocks"]
    assert 10 * len(new & truth["block"]) >= 9 * len(truth["block"])
    assert len(new - truth["block"]) <= MAX_OWN, {hex(address): whys[address] for address in new - truth["block"]}
    assert re.search(r"local `(failure|error)` of failing\(\) ", " ".join(shown.split()))


@pytest.mark.parametrize("release", RELEASES)
def test_sums(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the sums are those of the rows, and that all else is in no group of lost memory."""
    with running(start(release, tmp_path, rng.getrandbits(30)), tmp_path) as target:
        target.go_on()
        answer = ask("unreachable", str(target.pid), "--top=all")
    for group, key in [("cycles", "objects"), ("lost_references", "objects"), ("lost_blocks", "blocks")]:
        rows = [row for row in answer["rows"] if row["group"] == group]
        assert answer[group]["bytes"] == sum(row["bytes"] for row in rows)
        counted = [row["count"] for row in rows if key == "blocks" or row["type"] is not None]
        assert answer[group][key] == sum(counted) > 0
    assert all(row["bytes"] == row["size"] * row["count"] + row["buffers"] for row in answer["rows"])


def test_findings(rng: random.Random, tmp_path: Path) -> None:
    """Check that each kind of leak is a finding with its bytes and its next step, and that none promises that
    gc.collect() frees it."""
    count, size = rng.randrange(3000, 4000), rng.randrange(3000, 4000)
    with running(start(RELEASE, tmp_path, rng.getrandbits(30), count, size), tmp_path) as target:
        target.go_on()
        answer = ask("", str(target.pid), "--detail", "--max-stop=100")
    found = {row["id"]: row for row in answer["findings"]}
    lost, blocks = found["lost-references"], found["lost-blocks"]
    assert count * size <= lost["bytes"] <= 1.1 * count * size
    assert 2 * count * size <= blocks["bytes"] <= 1.1 * 2 * count * size
    assert "leaking_extension" in lost["advice"] and "gc.collect() does not free them" in lost["advice"]
    (catch,) = (line for line in blocks["commands"] if " catch " in line)
    least, most = map(int, re.findall(r"--m(?:in|ax)=(\d+)", catch))
    assert least <= size <= most
    assert "cycles" not in found
