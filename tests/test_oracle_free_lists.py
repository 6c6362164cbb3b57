"""Objects on the interpreter's free lists do not count as live, and their number is the one that
sys._debugmallocstats() prints.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from pathlib import Path

import pytest
from support.library import heap_of
from support.programs import FORMS, RELEASES, Running, release_program, running, since

pytestmark = pytest.mark.cases(4)

ROW = re.compile(r"^ *([\d,]+) free (?:\d+-sized )?Py(\w+?)Objects \*", re.MULTILINE)
NAMES = {"CFunction": "builtin_function_or_method"}
# A frame that its code keeps is on no list; the links of floats are where others have their type, up to 3.13.
UNTOLD = ("frame", "dictkeys")
LINKED_BY_COUNT = since("3.14")


def told(text: str) -> dict[str, int]:
    """Return {type: objects on its free lists} of sys._debugmallocstats()."""
    found: Counter[str] = Counter()
    for count, name in ROW.findall(text):
        found[NAMES.get(name, name.lower())] += int(count.replace(",", ""))
    return dict(found)


def counted(target: str) -> tuple[dict[str, int], dict[str, int]]:
    """Return {type: live objects} and {type: objects on free lists}."""
    live: Counter[str] = Counter()
    idle: Counter[str] = Counter()
    with heap_of(target) as heap:
        for row in heap.python.census.rows:
            live[heap.python.objects.names.name(row.address)] += row.live.count
            idle[heap.python.objects.names.name(row.address)] += row.idle.count
    return live, idle


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("release", RELEASES)
def test_free_lists(release: str, form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the objects that were deleted between two stops are gone; those that the interpreter keeps are
    reported separately."""
    with running(release_program(release, "freelists", rng.getrandbits(32), tmp_path / "truth"), tmp_path) as target:
        before, _ = counted(str(target.pid))
        target.go_on()
        told_here = lists(target, release)
        after, idle = counted(target.as_form(form))
    truth = json.loads((tmp_path / "truth").read_text())
    assert {name: before[name] - after[name] for name in truth} == truth
    assert {name: idle[name] for name in told_here} == told_here


def lists(target: Running, release: str) -> dict[str, int]:
    """Return the interpreter's figures for the types whose free objects are reported separately."""
    found = told(target.stderr)
    assert bool(found) == (release != "2.7")
    without = UNTOLD if release in LINKED_BY_COUNT else (*UNTOLD, "float")
    return {name: count for name, count in found.items() if name not in without}
