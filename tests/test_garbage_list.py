"""Objects in gc.garbage: the finding has the bytes that following its advice frees."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.programs import RELEASES, ask, interpreter_of_release, running

# Cycles that only gc.garbage keeps. A line on standard input makes the program follow the advice.
PROGRAM = (
    "import gc, sys\n"
    "class Old{base}:\n"
    "    {finalizer}\n"
    "def fill():\n"
    "    for n in range({count}):\n"
    "        one = Old(); one.data = bytearray(b'x') * 40000; one.me = one\n"
    "{debug}\n"
    "fill(); gc.collect(); gc.set_debug(0)\n"
    "assert len(gc.garbage) >= {count}\n"
    "sys.stdout.write('made\\n'); sys.stdout.flush(); sys.stdin.readline()\n"
    "{advice}\n"
    "gc.collect(); sys.stdout.write('done\\n'); sys.stdout.flush(); sys.stdin.readline()\n"
)
BREAK = "for x in gc.garbage: getattr(x, '__dict__', {}).clear()\ndel x, gc.garbage[:]"
SAVED = ("pass", "gc.set_debug(gc.DEBUG_SAVEALL)", "gc.garbage[:] = []")
FINALIZED = ("def __del__(self): pass", "", BREAK)
CASES = [*((release, SAVED) for release in RELEASES), ("2.7", FINALIZED)]


@pytest.mark.cases(4)
@pytest.mark.parametrize(("release", "case"), CASES)
def test_garbage_list(release: str, case: tuple[str, str, str], rng: random.Random, tmp_path: Path) -> None:
    """Check that the finding names the list, and that following the advice frees at least four fifths of its bytes."""
    count = rng.randrange(400, 600)
    finalizer, debug, advice = case
    code = PROGRAM.format(count=count, finalizer=finalizer, debug=debug, advice=advice, base="")
    with running([interpreter_of_release(release).executable, "-c", code], tmp_path) as target:
        (found,) = [row for row in ask("", str(target.pid))["findings"] if row["id"] == "garbage-list"]
        before = ask("", str(target.pid))["in_use"]
        target.go_on()
        page = ask("", str(target.pid))
    assert found["figures"]["objects"] >= count and count * 40_000 <= found["bytes"] < 1.2 * count * 40_000
    assert before - page["in_use"] >= 0.8 * found["bytes"]
    assert "garbage-list" not in {row["id"] for row in page["findings"]}
    assert "gc.garbage" in found["text"] and ("__del__()" in found["advice"]) == (release == "2.7")
