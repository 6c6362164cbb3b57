"""A capsule passes on an address. The memory behind it belongs also to other objects that point there."""

from __future__ import annotations

import json
from pathlib import Path

from support.installed import python_with
from support.programs import SOURCES, ask, running


def test_memory_of_a_pool(tmp_path: Path) -> None:
    """Check that an array has the memory of its items, without a promise, and that the session has the rest of the
    pool."""
    places = tmp_path / "places"
    with running([python_with("numpy"), str(SOURCES / "capsules.py"), str(places)], tmp_path) as target:
        shown, other = json.loads(places.read_text())
        rows = {row["address"]: row for row in ask("owners", str(target.pid), "--by=block", "--min=100K")["rows"]}
        kept = ask("retained", str(target.pid), "--top=20")["rows"]
    assert "['outputs']" in rows[shown]["chain"] and "['session']" in rows[other]["chain"]
    (row,) = [row for row in kept if "outputs" in (row["path"] or "")]
    assert row["at_most"] >= 500_000 > row["retained"]
