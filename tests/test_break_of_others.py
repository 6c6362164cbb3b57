"""Memory that a program gets by sbrk() between two parts of malloc's is named, and counts as in use."""

from __future__ import annotations

import random
from pathlib import Path

from support.programs import ask, build, gdbheap, running

MIB = 1 << 20


def test_break_of_others(rng: random.Random, tmp_path: Path) -> None:
    """Check that memory from sbrk() is a finding with its bytes, and that blocks reached only from this memory are not
    lost.
    """
    size, count = rng.randrange(30, 50) * MIB, rng.randrange(300, 500)
    with running([str(build("breaks")), str(size), str(count)], tmp_path) as target:
        kept = int(target.stderr)
        found = ask("", str(target.pid))
        headline = gdbheap(str(target.pid), "--bytes").stdout.splitlines()[0]
    names = [row["id"] for row in found["findings"]]
    assert "lost-blocks" not in names
    (row,) = [row for row in found["findings"] if "memory from brk()" in row["text"]]
    assert abs(row["bytes"] - size) < MIB
    in_use = int(headline.partition("resident. ")[2].split()[0].replace(",", ""))
    assert size + kept - MIB < in_use < size + kept + 2 * MIB
