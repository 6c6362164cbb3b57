"""Equal values that cannot be shared: values of two interpreters, and values of two workers that may change them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from support.kernel import rollup
from support.programs import ask, gdbheap, python_program, release_program, running, since

COUNT = 20_000


@pytest.mark.cases(1)
@pytest.mark.parametrize("release", since("3.12"))
def test_copies_within_an_interpreter(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that only duplicates within one interpreter count as copies; each interpreter has its own pools."""
    command = release_program(release, "values_of_interpreters", rng.getrandbits(30), COUNT)
    with running(command, tmp_path) as target:
        twice = int(target.stderr.split()[-1])
        rows = ask("duplicates", str(target.pid), "--type=str", "--top=all")["rows"]
        page = ask("", str(target.pid))
    copied = [row for row in rows if "repeated value" in (row["text"] or "")]
    assert len(copied) == twice and {row["count"] for row in copied} <= {2}
    assert "equal-strings" not in {row["id"] for row in page["findings"]}


def test_what_workers_may_change_is_not_promised(rng: random.Random, tmp_path: Path) -> None:
    """Check that preloading is promised to save one copy of the strings, but not of the byte arrays, which the
    workers may change. The page and the answer about the family say the same about gc.freeze()."""
    with running(python_program("stripped", "equal_workers", rng.getrandbits(30)), tmp_path) as target:
        strings, arrays = json.loads(target.stderr.splitlines()[-1])
        answer = json.loads(gdbheap(str(target.pid), "--children", "--json").stdout)
        text = gdbheap(str(target.pid), "--children").stdout
    (advice,) = [row for row in answer["savings"] if row["id"] == "preload"]
    # Up to a tenth of pymalloc's blocks may be rounding and pool headers; a page may also have other objects.
    assert 0.8 * strings <= advice["saves"] == advice["least_saved"] <= 1.25 * strings
    assert advice["most_saved"] >= 0.8 * (strings + arrays)
    assert "is certain" not in text and "saves at least" in text


def test_findings_about_the_same_bytes(rng: random.Random, tmp_path: Path) -> None:
    """Check the three findings about a table of equal strings that is shared with a worker.

    Their sums are larger than the table, so each but one names the finding that its bytes may belong to. gc.freeze() is
    said to stop only the collector.
    """
    with running(python_program("stripped", "forked_table", rng.getrandbits(30)), tmp_path) as target:
        findings = ask("", str(target.pid))["findings"]
        resident, _swapped = rollup(target.pid)
    found = {row["id"]: row for row in findings}
    assert {"after-fork", "equal-strings", "holder"} <= found.keys()
    assert sum(row["bytes"] for row in findings) > resident
    assert sum(row["bytes"] for row in findings if row["within"] is None) <= resident
    assert (
        found["equal-strings"]["within"] == "holder"
        and "'holder' may count the same bytes" in found["equal-strings"]["text"]
    )
    assert found["after-fork"]["within"] and "may count the same bytes" in found["after-fork"]["text"]
    advice = found["after-fork"]["advice"]
    assert "reference count" in advice and "prevents only the collector's writes" in advice
