"""The first page names the variable that holds the blocks that pin free memory, and no command without an answer."""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path
from typing import Any

from support.programs import ask, build, c_program, gdbheap, running

MIB = 1 << 20
# One object in 300 stays, so that no arena of pymalloc becomes empty.
KEEPS = """
import sys
everything = [(str(number) * 3, number * 1.5) for number in range({})]
kept = everything[::300]
del everything
sys.stdin.readline()
"""


def finding(page: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the only finding with that id."""
    (found,) = [row for row in page["findings"] if row["id"] == name]
    return dict(found)


def commands_of(page: dict[str, Any]) -> list[str]:
    """Return every line that the page offers to paste."""
    return [*page["next"], *(line for row in page["findings"] for line in row["commands"])]


def test_holes_between_blocks_of_a_variable(rng: random.Random, tmp_path: Path) -> None:
    """Check that the finding names the table of the blocks after the holes, and that the page offers 'heap pins'
    nowhere: it would say that nothing is worth fixing."""
    count = rng.randrange(40, 90)
    with running([str(build("pinning")), str(count), str(MIB)], tmp_path) as target:
        page, pins = ask("", str(target.pid)), gdbheap("pins", str(target.pid)).stdout
    found = finding(page, "free-chunks")
    held = r"the blocks after (\d+ of )?the 32 largest holes are held by 'long_lived' in pinning"
    assert re.search(held, found["text"])
    assert pins.startswith("Nothing worth fixing")
    assert not any(" pins" in text for text in [found["advice"], *commands_of(page)])


def test_the_largest_hole(rng: random.Random, tmp_path: Path) -> None:
    """Check that the largest hole is named if no hole has the asked size, and that it is the first of the whole
    list."""
    with running(c_program("linked", rng.randrange(200, 400), 0, rng.randrange(1 << 10, 30 << 10)), tmp_path) as target:
        listed = ask("holes", str(target.pid), "--min=1")["rows"]
        found = ask("holes", str(target.pid), "--min=1G")
        line = gdbheap("holes", str(target.pid), "--min=1G").stdout
        option = line.split("'")[1]
        again = ask("holes", str(target.pid), option)
    assert not found["rows"] and found["largest_hole"] == listed[0]["size"] == max(row["size"] for row in listed)
    assert again["rows"][0] == listed[0] and again["largest_hole"] == found["largest_hole"]


def test_pages_between_blocks_of_a_variable(rng: random.Random, tmp_path: Path) -> None:
    """Check that the finding about pinned pages names the table of the blocks, and that 'heap pins' has an answer."""
    count, size = rng.randrange(9_000, 15_000), rng.randrange(3000, 3600)
    with running([str(build("pinning")), str(count), str(size)], tmp_path) as target:
        page = ask("", str(target.pid))
        pins = gdbheap("pins", str(target.pid), "--allocator=glibc").stdout
    found = finding(page, "pinned-pages")
    held = r"(all \d+ examined blocks|of \d+ examined blocks, \d+) are held by 'long_lived' in pinning"
    assert re.search(held, found["text"]), found
    assert any(" pins " in line for line in found["commands"]) and pins.startswith("Removing")


def test_a_fair_sample_of_two_variables(rng: random.Random, tmp_path: Path) -> None:
    """Check that the examined blocks of two tables are as many as the free bytes between the blocks of each table, and
    that the finding has the bytes that 'heap pins' promises."""
    light, heavy, size = rng.randrange(3000, 6000), rng.randrange(3000, 6000), rng.randrange(2600, 3000)
    with running(c_program("two_pinning", light, heavy, size), tmp_path) as target:
        page, pins = ask("", str(target.pid)), ask("pins", str(target.pid), "--allocator=glibc")
    found = finding(page, "pinned-pages")
    row = r"of (\d+) examined blocks, (\d+) are held by '(light|heavy)' in two_pinning, (\d+) by '(light|heavy)' in two"
    shown = re.search(row, found["text"])
    assert shown is not None, found["text"]
    examined, most, least = int(shown[1]), int(shown[2]), int(shown[4])
    counts = {shown[3]: most, shown[5]: least}
    assert most >= least and most + least == examined == 32, found["text"]
    assert abs(counts["light"] - examined * light / (light + heavy)) <= 3, (counts, light, heavy, size)
    sums = pins["sums"][0]
    assert found["figures"]["would_free"] == sums["would_free"] == found["bytes"] + sums["bytes"]
    assert "Freeing the blocks would return" in found["text"]


def test_arenas_of_a_python_variable(rng: random.Random, tmp_path: Path) -> None:
    """Check that the finding about pymalloc's arenas names the list of the objects that stay."""
    script = KEEPS.format(rng.randrange(300_000, 600_000))
    with running([sys.executable, "-c", script], tmp_path, {"PYTHONMALLOC": "pymalloc"}) as target:
        page, text = ask("", str(target.pid)), gdbheap("", str(target.pid), "--bytes").stdout
    found = finding(page, "pymalloc-arenas")
    assert re.search(r"(examined blocks|examined blocks, \d+) are held by kept\b", found["text"]), found["text"]
    # No call returns free pages of arenas that are in use: they stay, and the table says the same.
    lines = {line["id"]: line for line in page["ledger"]}
    assert lines["pymalloc.free"]["whole"] > 0 and lines["pymalloc.free"]["reclaimable"] == 0
    assert lines["pymalloc.used"]["reclaimable"] is None
    total = next(line for line in text.splitlines() if line.startswith("total")).split()
    assert f"{page['reclaimable']:,}" in total
