"""Memory that a program mapped for itself, and what of it is said to be held by whom."""

from __future__ import annotations

import random
from pathlib import Path

from support.library import heap_of
from support.programs import ask, c_program, running


def test_mappings_by_who_leads_there(rng: random.Random, tmp_path: Path) -> None:
    """What the program's static data lead to is a finding of as many bytes as it touched; the rest is nobody's."""
    with running(c_program("keeper", rng.getrandbits(30), rng.randrange(20, 60)), tmp_path) as target:
        answer = ask("", str(target.pid))
        with heap_of(str(target.pid)) as heap:
            found = {held.name: held.ranges for held in heap.held}
        rows = [line.split() for line in target.stderr.splitlines()]
        regions = [(int(at, 16), int(size), kept == "1") for at, size, kept in rows]
        asked = rng.sample(regions, 8)
        words = {at: ask("at", str(target.pid), hex(at))["mapping"]["owner"] for at, _size, _kept in asked}
    kept = sorted((at, at + size) for at, size, is_kept in regions if is_kept)
    assert found == {"keeper": kept}
    (finding,) = (finding for finding in answer["findings"] if finding["id"] == "other-held")
    assert finding["bytes"] == sum(end - start for start, end in kept) and "keeper" in finding["text"]
    expected = {at: "other, led to from keeper" if is_kept else "other" for at, _size, is_kept in asked}
    assert words == expected
