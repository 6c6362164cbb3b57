"""``heap pools --detail``: sizes against sys.getsizeof(), arenas against pools found independently."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from reference import pymalloc
from support.library import heap_of
from support.programs import KINDS, ask, python_program, running
from support.repr_programs import every_python, program

from gdbheap.allocators.pymalloc.allocator import PymallocAllocator

pytestmark = pytest.mark.cases(3)

PERCENTS = (1, 10, 25, 50, 75, 100)


def told(target: str) -> dict[int, tuple[int, int]]:
    """Return {block size: (objects with a known size, requested bytes)}; the wasted bytes must be the rest."""
    classes = ask("pools", target, "--detail")["rows"]
    assert all(row["wasted"] == row["told"] * row["size"] - row["asked"] for row in classes)
    return {row["size"]: (row["told"], row["asked"]) for row in classes}


@every_python
def test_asked_equals_getsizeof(python: str, rng: random.Random, tmp_path: Path) -> None:
    """Check the objects that are gone between two stops, by size class: their number and requested bytes."""
    command = program(python, "sized", rng.getrandbits(32), rng.randrange(200, 20_000), tmp_path / "truth")
    with running(command, tmp_path) as target:
        before = told(str(target.pid))
        target.go_on()
        after = told(str(target.pid))
    gone = {size: tuple(a - b for a, b in zip(row, after.get(size, (0, 0)))) for size, row in before.items()}
    truth = {int(size): tuple(row) for size, row in json.loads((tmp_path / "truth").read_text()).items()}
    assert {size: row for size, row in gone.items() if any(row)} == truth


@pytest.mark.parametrize("kind", KINDS)
def test_arenas_by_size_class(kind: str, rng: random.Random, tmp_path: Path) -> None:
    """Check how many arenas have blocks of a class, or of no other, how full they are, and which are the emptiest."""
    with running(python_program(kind, "pools", rng.getrandbits(32), 100_000), tmp_path) as target:
        answer = ask("pools", str(target.pid))
        found = list(pymalloc.pools(target.pid, answer["pool_size"]))
        with heap_of(str(target.pid)) as heap:
            starts = [arena.address for arena in heap.allocator(PymallocAllocator).pymalloc.arenas]
    size = answer["arena_size"]
    held = {start: [pool for pool in found if start <= pool.address < start + size] for start in starts}
    assert sum(map(len, held.values())) == len(found)
    for row in answer["rows"]:
        having = [pools for pools in held.values() if any(pool.size == row["size"] for pool in pools)]
        alone = [pools for pools in having if {pool.size for pool in pools} == {row["size"]}]
        blocks = sum(len(pool.used) for pools in alone for pool in pools)
        assert (row["arenas"], row["alone"], row["alone_blocks"]) == (len(having), len(alone), blocks)
    used = {start: sum(pool.size * len(pool.used) for pool in pools) for start, pools in held.items() if pools}
    limits = zip((0, *PERCENTS), PERCENTS)
    fill = [[u for u in used.values() if low * size < 100 * u <= high * size] for low, high in limits]
    expected = [(high, len(group), sum(group)) for high, group in zip(PERCENTS, fill)]
    assert [(row["percent"], row["arenas"], row["used"]) for row in answer["fill"]] == expected
    emptiest = sorted(used, key=lambda start: (used[start], start))[:5]
    assert [(row["address"], row["bytes"]) for row in answer["emptiest"]] == [
        (start, used[start]) for start in emptiest
    ]
    for row in answer["emptiest"]:
        shares: dict[int, list[int]] = {}
        for pool in held[row["address"]]:
            share = shares.setdefault(pool.size, [0, 0])
            share[0], share[1] = share[0] + 1, share[1] + len(pool.used)
        assert [[share["size"], share["pools"], share["used_count"]] for share in row["classes"]] == [
            [size, *shares[size]] for size in sorted(shares)
        ]
        assert row["blocks"] == sum(share[1] for share in shares.values())


@every_python
def test_what_pins_an_arena(python: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the few objects left in an arena are counted by class, unless five other classes have more."""
    with running(program(python, "pinned", rng.getrandbits(32), tmp_path / "truth"), tmp_path) as target:
        answer = ask("pools", str(target.pid), "--detail")
        addresses = json.loads((tmp_path / "truth").read_text())
    for row in answer["emptiest"]:
        inside = [a for a in addresses if row["address"] <= a < row["address"] + answer["arena_size"]]
        named = [pin for pin in row["pins"] if pin["what"] == "__main__.Left"]
        assert sum(pin["blocks"] for pin in named) == len(inside) or (not named and len(row["pins"]) == 5)
        assert sum(pin["blocks"] for pin in row["pins"]) <= row["blocks"]
    assert any(pin["what"] == "__main__.Left" for row in answer["emptiest"] for pin in row["pins"])
