"""The findings about holders are the same for a process and for its core, whose resident memory is unknown."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.programs import FORMS, PROCESS, Interpreter, ask, interpreters, running, since

PROGRAM = """
import signal
class Store(object):
    def __init__(self, count):
        self.rows = [["row %d" % number, bytearray(50)] for number in range(count)]
first, second, third = Store({first}), Store({second}), Store({third})
signal.pause()
"""
COUNT = 60_000
PYTHONS = [found for release in since("2.7") for found in interpreters(release)]


@pytest.mark.cases(3)
@pytest.mark.parametrize("form", [form for form in FORMS if form != PROCESS])
@pytest.mark.parametrize("python", PYTHONS, ids=lambda python: python.executable.split("/")[-1])
def test_findings(python: Interpreter, form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that holders with a quarter of the memory have findings in both, and that a smaller one has none."""
    count = rng.randrange(COUNT, 2 * COUNT)
    script = tmp_path / "stores.py"
    script.write_text(PROGRAM.format(first=2 * count, second=count, third=count // 10))
    with running([python.executable, str(script)], tmp_path) as target:
        live = ask("", str(target.pid))
        core = ask("", target.as_form(form))
    found = [[row["text"] for row in answer["findings"] if row["id"] == "holder"] for answer in (live, core)]
    assert [text.split(" (")[0] for text in found[0]] == [text.split(" (")[0] for text in found[1]], found
    assert len(found[0]) == 2 and "first.rows" in found[0][0] and "second.rows" in found[0][1]
