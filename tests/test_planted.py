"""The tables of the programs that lose blocks on purpose agree to the block with leak checkers: LeakSanitizer, which
scans the same run, and valgrind's memcheck. tests/test_oracle_lost.py relies on these tables.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support import planted
from support.planted import BY_LAYOUT, CYCLE, DIRECT, INDIRECT, INTERIOR, LOST, PROGRAMS, tally

pytestmark = pytest.mark.cases(5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_leak_sanitizer_agrees(name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check the addresses and sizes of the lost blocks, and which of them other lost blocks refer to."""
    seed = rng.getrandbits(31)
    found = planted.lost_by_leak_sanitizer(name, seed, tmp_path / "table")
    rows = planted.table_of(tmp_path / "table")
    expected = {row.address: row.requested for row in rows if row.kind in LOST}
    assert {address: size for address, (size, _) in found.items()} == expected, seed
    direct = {address for address, (_, is_direct) in found.items() if is_direct}
    # In a circle each block is pointed to by another one.
    assert direct == {row.address for row in rows if row.kind == DIRECT}, seed
    assert bool(expected) != name.startswith("nothing_lost")


@pytest.mark.parametrize("name", PROGRAMS)
def test_valgrind_agrees(name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check the number of blocks and bytes. One block of a circle stands for the whole circle.

    Blocks to whose middle a word points count as possibly lost.
    """
    seed = rng.getrandbits(31)
    found = planted.lost_by_valgrind(name, seed, tmp_path / "table")
    rows = planted.table_of(tmp_path / "table")
    circles = {row.group for row in rows if row.kind == CYCLE}
    lost = tally(rows, *LOST)
    definite, indirect = found["DefinitelyLost"], found["IndirectlyLost"]
    assert definite.blocks == tally(rows, DIRECT).blocks + len(circles), seed
    assert (definite.blocks + indirect.blocks, definite.bytes + indirect.bytes) == (lost.blocks, lost.bytes), seed
    assert found["PossiblyLost"] == tally(rows, INTERIOR, BY_LAYOUT), seed
    assert tally(rows, INDIRECT).blocks <= indirect.blocks
