"""A variable of a running function, and an attribute of an object in it, have the same name in every CPython."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from support.programs import ask, gdbheap, interpreters, running, since

# Classes with and without a dict for each instance, and classes of Python 2 that do not derive from object.
SLOTS = "class Box(object): __slots__ = 'texts',"
CLASSES = {"old": "class Box: pass", "new": "class Box(object): pass", "slots": SLOTS}
PROGRAM = """
import signal
{cls}
def main():
    box = Box()
    box.texts = ["text %d" % number for number in range({count})]
    names = ["name %d" % number for number in range({count})]
    signal.pause()
main()
"""
COUNT = 80_000
PYTHONS = [found.executable for release in since("2.7") for found in interpreters(release)]


@pytest.mark.cases(4)
@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("python", PYTHONS, ids=lambda path: path.replace("/bin/", " ").split("/")[-1])
def test_names(python: str, kind: str, rng: random.Random, tmp_path: Path) -> None:
    """Check the names in 'heap owners' and on the first page: the variable, and the attribute as in source code."""
    count = rng.randrange(COUNT, 2 * COUNT)
    script = tmp_path / "boxes.py"
    script.write_text(PROGRAM.format(cls=CLASSES[kind], count=count))
    expected = {f"local variable {path}" for path in ("box in main() at {} .texts", "names in main() at {}")}
    with running([python, str(script)], tmp_path) as target:
        rows = ask("owners", str(target.pid))["rows"]
        holders = ask("", str(target.pid))["holders"]
        shown = gdbheap("owners", str(target.pid)).stdout
    for names in ([row["path"] for row in rows[:2]], [row["path"] for row in holders[:2]]):
        assert {re.sub(r"boxes\.py:\d+", "{}", name) for name in names} == expected, names
    assert "holds it at" not in shown and "__dict__" not in shown and "main() at boxes.py:" in shown
