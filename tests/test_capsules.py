"""A capsule passes an address on: what it leads to belongs to others that lead there, too."""

from __future__ import annotations

import json
from pathlib import Path

from support.installed import python_with
from support.programs import SOURCES, ask, running


def test_memory_of_a_pool(tmp_path: Path) -> None:
    """An array has the memory with its items, and no promise is made of that; the rest of the pool is the session's."""
    places = tmp_path / "places"
    with running([python_with("numpy"), str(SOURCES / "capsules.py"), str(places)], tmp_path) as target:
        shown, other = json.loads(places.read_text())
        rows = {row["address"]: row for row in ask("owners", str(target.pid), "--by=block", "--min=100K")["rows"]}
        kept = ask("retained", str(target.pid), "--top=20")["rows"]
    assert "['outputs']" in rows[shown]["chain"] and "['session']" in rows[other]["chain"]
    (row,) = [row for row in kept if "outputs" in (row["path"] or "")]
    assert row["at_most"] >= 500_000 > row["retained"]
