"""Python with another malloc than glibc's: objects and buffers outside of all walks, checked against the
interpreter's own sums; addresses checked against its own functions."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from support.other_allocators import by_name, library
from support.populations import census
from support.programs import KERNEL_CORE, PROCESS, ask, gdbheap, release_program, running

SMALL, ROUNDED, PARTS = 512, 15, 2
RELEASES = ("3.6", "3.8", "3.10", "3.12", "3.13")
OWN, TEXT, DATA, PLAIN = "--type=__main__.*", "__main__.Text", "__main__.Data", "__main__.Plain"

# int.__sizeof__() and str.__sizeof__() leave out the bytes that a subclass adds to its objects.
ADDED = {"__main__.Large": 16, "__main__.Named": 16}


def start(rng: random.Random, folder: Path, release: str, name: str, mode: str = "pymalloc", *more: str) -> Any:
    """Start elsewhere.py on this release of CPython with this malloc; its table is written to ``folder``/table."""
    number = rng.randrange(100, 200)
    command = release_program(release, "elsewhere", rng.getrandbits(30), number, folder / "table", *more)
    return running(command, folder, {"LD_PRELOAD": library(name), "PYTHONMALLOC": mode})


def told(folder: Path) -> dict[str, Any]:
    """Return the figures that the program wrote."""
    return dict(json.loads((folder / "table").read_text()))


def check_sums(answer: dict[str, Any], folder: Path, rounded: int) -> None:
    """Check each type's objects to the number, and their bytes and buffers except for the allocator's rounding."""
    rows = {row["type"]: row for row in answer["rows"]}
    for name, (count, size) in told(folder)["types"].items():
        found = rows[name]
        if name == "tuple":
            assert found["count"] > count and found["own"] > size
            continue
        assert found["count"] == count, name
        # sys.getsizeof() leaves out the values of an instance's attributes.
        if name != PLAIN:
            more = found["bytes"] - size
            assert 0 <= more <= (rounded + ADDED.get(name, 0)) * count, (name, more)


@by_name
def test_large_objects_and_buffers(name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check every object of every type with all its buffers, with each malloc; no block has unknown contents."""
    with start(rng, tmp_path, "3.11", name) as target:
        answer = ask("pyobjects", str(target.pid), "--top=100000")
        text = gdbheap("pyobjects", str(target.pid)).stdout
    check_sums(answer, tmp_path, PARTS * ROUNDED)
    large = sum(size for kind, (_count, size) in told(tmp_path)["types"].items() if kind != PLAIN)
    assert large // 2 < answer["elsewhere"]["bytes"] < answer["all_used"]["bytes"]
    assert answer["unclassified"]["count"] + answer["other_chunks"]["count"] < 10
    rest = [answer[key]["bytes"] for key in ("free_lists", "interpreter", "unclassified", "other_chunks")]
    whole = answer["total"]["own"] + answer["total"]["buffers"] + sum(root["bytes"] for root in answer["roots"])
    assert whole + sum(rest) == answer["all_used"]["bytes"]
    assert "an allocator whose blocks gdbheap cannot list" in text


@pytest.mark.parametrize("release", RELEASES)
def test_releases(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check the objects and buffers of every release with another malloc."""
    with start(rng, tmp_path, release, "tcmalloc") as target:
        check_sums(ask("pyobjects", str(target.pid), "--top=100000"), tmp_path, PARTS * ROUNDED)


@pytest.mark.parametrize("form", [PROCESS, KERNEL_CORE])
def test_instances_and_addresses(form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that ``--list`` has each object once, with the table's sums, and that ``heap at`` and ``heap why`` know
    object and buffer."""
    with start(rng, tmp_path, "3.12", "tcmalloc") as running_target:
        target = running_target.as_form(form)
        listed, table = ask("pyobjects", target, OWN, "--list"), ask("pyobjects", target, OWN)
        objects = {row["address"]: row for row in listed["rows"]}
        address, buffer, size = rng.choice([row for row in told(tmp_path)["buffers"] if row[2] > SMALL])
        inside = ask("at", target, hex(buffer + rng.randrange(size)))
        large = rng.choice([row for row in objects.values() if row["type"] == TEXT and row["size"] > SMALL])
        found, why = ask("at", target, hex(large["address"] + 40)), ask("why", target, hex(large["address"]))
    assert inside["block"]["address"] == buffer and inside["block"]["size"] >= size
    assert (inside["block"]["allocator"], inside["block"]["state"]) == ("tcmalloc", "used")
    assert (inside["owner"]["address"], inside["owner"]["type"]) == (address, "__main__.Numbers")
    assert objects[address]["buffers"] >= size
    assert found["object"]["address"] == large["address"] and found["object"]["type"] == TEXT
    assert "held" in why["expression"] and why["retained"] >= large["size"]
    assert listed["count"] == table["total"]["count"] == len(objects)
    assert listed["total"]["own"] == table["total"]["own"]


@pytest.mark.parametrize("release", ["3.10", "3.11", "3.13"])
def test_without_pymalloc(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that every object of every type is found, with exact bytes, by following references, where blocks cannot be
    walked.
    """
    with start(rng, tmp_path, release, "tcmalloc", "malloc") as target:
        answer = ask("pyobjects", str(target.pid), "--top=100000")
        rows = census(str(target.pid))
        assert census(target.as_form(KERNEL_CORE)) == rows
    check_sums(answer, tmp_path, 0)
    assert answer["all_used"] == answer["elsewhere"]


def test_what_cannot_be(rng: random.Random, tmp_path: Path) -> None:
    """Check that a buffer with a size beyond all memory is left out, and that the rest of the answer is complete."""
    with start(rng, tmp_path, "3.11", "tcmalloc", "pymalloc", "damage") as target:
        found = ask("pyobjects", str(target.pid), f"--type={DATA}")["total"]
        done = gdbheap("pyobjects", str(target.pid))
    said = told(tmp_path)
    count, size = said["types"][DATA]
    assert found["count"] == count and done.returncode == 0
    assert 0 <= found["bytes"] + said["damaged"] - size <= PARTS * ROUNDED * count
