"""Lines of the ledger's JSON document, and the sums that must hold for them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from support import kernel
from support.programs import Running, c_program

COLUMNS = ("virtual", "resident", "swapped")


def mapped(rng: random.Random, directory: Path) -> list[str]:
    """Return a program with every kind of mapping."""
    file = directory / "mapped"
    file.write_bytes(rng.getrandbits(8 << 20).to_bytes(1 << 20, "little"))
    return c_program("mappings", rng.getrandbits(30), file)


def roots(lines: list[dict[str, Any]], column: str) -> Any:
    """Return the sum of a column over the lines without a parent; None if it is unknown."""
    values = [line[column] for line in lines if line["parent"] is None]
    return None if any(value is None for value in values) else sum(values)


def check_families(lines: list[dict[str, Any]]) -> None:
    """Check that each parent is the sum of its children, in each column."""
    ids = [line["id"] for line in lines]
    assert len(ids) == len(set(ids))
    for line in lines:
        children = [child for child in lines if child["parent"] == line["id"]]
        assert line["parent"] is None or line["parent"] in ids
        for column in COLUMNS if children else ():
            values = [child[column] for child in children]
            total = None if any(value is None for value in values) else sum(values)
            assert line[column] == total, (line, children)
    assert all((line[column] or 0) >= 0 for line in lines for column in COLUMNS), lines
    assert all((line["resident"] or 0) + (line["swapped"] or 0) <= line["virtual"] for line in lines), lines


def line_of(answer: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the line of that id."""
    (line,) = [line for line in answer["ledger"] if line["id"] == name]
    return dict(line)


def virtual_size(target: Running) -> int:
    """Return the sum of the target's mappings."""
    return sum(mapped.end - mapped.start for mapped in kernel.maps(target.pid))
