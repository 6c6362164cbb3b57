"""The state of the garbage collector, found by its shape, equals that of the gc module."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from support.library import heap_of
from support.programs import FORMS, RELEASES, release_program, running, since

pytestmark = pytest.mark.cases(5)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("release", since("3.7"))
def test_state(release: str, form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check the switch, the thresholds, the older counts, and whether objects are frozen."""
    with running(release_program(release, "collector", rng.getrandbits(30), tmp_path / "truth"), tmp_path) as target:
        with heap_of(target.as_form(form)) as heap:
            found = heap.python.collector
    truth = json.loads((tmp_path / "truth").read_text())
    assert found is not None
    assert found.enabled == truth["enabled"]
    assert list(found.thresholds) == truth["thresholds"]
    assert list(found.counts[1:]) == truth["counts"][1:]
    assert found.frozen == truth["frozen"]
    assert found.is_off == (not truth["enabled"] or truth["thresholds"][0] == 0)


@pytest.mark.parametrize("release", [release for release in RELEASES if release in ("2.7", "3.6")])
def test_unknown(release: str, tmp_path: Path) -> None:
    """Check that no state is reported for releases whose switch lies elsewhere."""
    with running(release_program(release, "faults", 1, "healthy"), tmp_path) as target:
        with heap_of(str(target.pid)) as heap:
            assert heap.python.collector is None
