"""Slices that alone keep long arrays, checked against numpy and the program's own figures."""

from __future__ import annotations

import json
import random
from pathlib import Path

from support.installed import python_with
from support.kernel import rollup
from support.programs import SOURCES, ask, interpreter_of, running

MIB = 1 << 20
ONE_BUFFER = """
import sys
def load():
    whole = memoryview(MADE)
    return [whole[number * 100:number * 100 + 64] for number in range(COUNT)]
class Pages: pass
pages = Pages()
pages.parts = load()
print(flush=True); sys.stdin.readline()
"""
HEADS = """
import sys
heads = [memoryview(b"%08d" % number + bytes(SIZE))[:16] for number in range(12)]
sys.stdin.readline()
"""


def test_slices_that_keep_arrays(rng: random.Random, tmp_path: Path) -> None:
    """Check that each array's row names the views that alone keep it, and that the finding has their bytes, which
    copies give back."""
    command = [python_with("numpy"), str(SOURCES / "views.py"), str(rng.getrandbits(30)), str(tmp_path / "truth")]
    with running(command, tmp_path) as target:
        truth = json.loads((tmp_path / "truth").read_text())
        rows = {row["address"]: row for row in ask("owners", str(target.pid), "--by=array", "--top=all")["rows"]}
        (found,) = [row for row in ask("", str(target.pid))["findings"] if row["id"] == "small-views"]
        together = [
            row
            for row in ask("retained", str(target.pid), "--top=all")["rows"]
            if row["address"] is None and row["type"] == "numpy.ndarray"
        ]
        before = rollup(target.pid)[0]
        target.go_on()
        freed = before - rollup(target.pid)[0]
    for address, shown in {**truth["alone"], **truth["two"]}.items():
        row = rows[int(address)]
        assert row["kept_by"]["shown"] == shown and row["path"].endswith((".base", ".obj"))
        # A memory view points into the array's buffer as well.
        assert row["retained"] >= (row["bytes"] if address in truth["alone"] else 0)
    assert {rows[int(one)]["kept_by"]["count"] for one in truth["alone"]} == {1}
    assert {rows[int(one)]["kept_by"]["count"] for one in truth["two"]} == {2}
    assert rows[truth["held"][0]]["kept_by"] is None
    figures = found["figures"]
    # The views of the mixed pairs are with the memory views'.
    assert any(row["count"] >= len(truth["alone"]) and row["retained"] <= figures["kept"] for row in together)
    assert figures["views"] == len(truth["alone"]) + 2 * len(truth["two"]) and figures["shown"] == truth["shown"]
    assert truth["kept"] <= figures["kept"] <= 1.01 * truth["kept"]
    # Freed memory at the heap's top may stay.
    assert freed >= 0.9 * found["bytes"]
    assert ".copy()" in found["advice"]


def test_said_once_that_it_is_the_same(rng: random.Random, tmp_path: Path) -> None:
    """Check that no finding says that memory may be shared if the holder's finding says that it is the same as the
    views'."""
    script = HEADS.replace("SIZE", str(rng.randrange(3 << 20, 5 << 20)))
    with running([interpreter_of("stripped"), "-I", "-c", script], tmp_path) as target:
        found = {row["id"]: row for row in ask("", str(target.pid))["findings"]}
    views, holder = found["small-views"], found["holder"]
    assert (views["within"], holder["within"]) == (None, "small-views")
    assert "this memory belongs to the views above" in holder["advice"]
    assert "may count" not in views["text"] + holder["text"]


def test_views_of_one_buffer_are_one_holder(rng: random.Random, tmp_path: Path) -> None:
    """Check that the list has the memory that its views share, under its own name and in one sum, in each answer,
    and no single view."""
    size, count = rng.randrange(20 * MIB, 40 * MIB), rng.randrange(2000, 9000)
    script = ONE_BUFFER.replace("MADE", f"bytearray(b'x' * {size})").replace("COUNT", str(count))
    with running([interpreter_of("stripped"), "-I", "-c", script], tmp_path) as target:
        page = ask("", str(target.pid))
        first = ask("owners", str(target.pid))["rows"][0]
    row = page["holders"][0]
    assert (row["path"], row["is_most"]) == ("pages.parts", True) and size <= row["bytes"] <= size + 400 * count
    assert (first["path"], first["bytes"]) == ("sys.modules['__main__'].pages.parts", row["bytes"])


def test_views_of_what_was_never_written(tmp_path: Path) -> None:
    """Check that views that keep a buffer together keep no memory that the program never touched."""
    script = ONE_BUFFER.replace("MADE", f"bytes({64 * MIB})").replace("COUNT", "1000")
    with running([interpreter_of("stripped"), "-I", "-c", script], tmp_path) as target:
        page = ask("", str(target.pid))
        resident = rollup(target.pid)[0]
    assert resident < 32 * MIB and all(row["bytes"] < resident for row in page["findings"])
