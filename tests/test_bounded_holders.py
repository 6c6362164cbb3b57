"""Holders in a program with too many blocks for the time: those that reference counts prove, and the rest."""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.library import heap_of
from support.programs import ask, gdbheap, running

from gdbheap.contents.python.objects.proven_holders import KeptObjects
from gdbheap.first_page.first_holders import LOOKED_AT_A_SECOND
from gdbheap.first_page.main_holders import BLOCKS_A_SECOND

PROGRAM = Path(__file__).parent / "programs" / "partly_held.py"
# The blocks of a bare interpreter: modules, functions and their names.
INTERPRETER_BLOCKS = 15_000
MIB = 1 << 20


@contextmanager
def planted(way: str, count: int, directory: Path) -> Iterator[tuple[str, dict[str, int]]]:
    """Yield a process that holds ``count`` strings in the given ``way``, and its own figures of their bytes."""
    with running([sys.executable, str(PROGRAM), way, str(count)], directory) as target:
        yield str(target.pid), json.loads(target.stderr)


def budget(count: int) -> str:
    """Return a budget that is too small for the graph of ``count`` blocks, but enough to look at them."""
    assert count * LOOKED_AT_A_SECOND / BLOCKS_A_SECOND > 2 * (count + INTERPRETER_BLOCKS)
    return f"--budget={count / BLOCKS_A_SECOND:.4f}"


def names(answer: dict[str, Any]) -> list[str]:
    """Return the paths of the holders."""
    return [row["path"] for row in answer["holders"]]


def test_the_largest_holder_is_found_in_time(tmp_path: Path, rng: random.Random) -> None:
    """Check that a variable, an attribute and a tree have at least the strings that only they reach, and no others.

    The JSON document states the bytes that were not examined.
    """
    count = rng.randrange(40_000, 45_000)
    for way, path in {"one": "cache", "attribute": "store.found", "tree": "tree"}.items():
        with planted(way, count, tmp_path) as (pid, truth):
            # A node of the tree consists of four blocks.
            answer = ask("", pid, budget(3 * count if way == "tree" else count))
        row = answer["holders"][0]
        # The root of the tree itself has almost no bytes.
        assert names(answer) == ["tree.below" if way == "tree" else path]
        assert row["at_least"]
        assert truth["bytes"] <= row["bytes"] <= truth["most"]
        assert way == "tree" or row["count"] == count and row["parts"][0]["what"] == "str"
        assert answer["not_looked"] > count and 0 < answer["not_examined"] < answer["summary"]["used"]
        assert answer["next"][0].startswith(f"gdbheap {pid} --budget=1 ")


def test_what_was_found_until_then(tmp_path: Path, rng: random.Random) -> None:
    """Check that a holder has only the strings that were examined, if the time ends early."""
    count = rng.randrange(200_000, 210_000)
    seconds = 1.5 * count / LOOKED_AT_A_SECOND / 2
    with planted("local", count, tmp_path) as (pid, truth):
        answer = ask("", pid, f"--budget={seconds:.4f}")
    (row,) = answer["holders"]
    assert row["path"].startswith("local variable found") and row["at_least"]
    assert truth["bytes"] // 8 < row["bytes"] < truth["bytes"]
    assert answer["not_examined"] >= truth["bytes"] - row["bytes"]


@pytest.mark.parametrize("way", ["shared", "lost"])
def test_what_nobody_is_proven_to_hold_is_not_ranked(way: str, tmp_path: Path, rng: random.Random) -> None:
    """Check that strings of two lists, and unreachable strings, have no holder and count as not examined."""
    count = rng.randrange(40_000, 45_000)
    with planted(way, count, tmp_path) as (pid, truth):
        answer = ask("", pid, budget(count))
    # The lists themselves have a holder.
    assert set(names(answer)) <= {"first", "second"} and all(row["bytes"] < 9 * count for row in answer["holders"])
    assert answer["not_examined"] >= truth["bytes"]


def test_other_references_are_named(tmp_path: Path, rng: random.Random) -> None:
    """Check that neither of two names counts as the only holder of a list, and that the holder's name mentions the
    other one.
    """
    count = rng.randrange(40_000, 45_000)
    with planted("named", count, tmp_path) as (pid, truth):
        page = gdbheap(pid, budget(count)).stdout
    (line,) = [line for line in page.splitlines() if line.startswith("at least ")]
    assert "  first and 1 more reference  " in line
    size = float(line.split()[2])
    assert line.split()[3] == "MiB" and truth["bytes"] <= (size + 0.05) * MIB and (size - 0.05) * MIB <= truth["most"]
    assert "\nNot examined: " in page


def test_nothing_is_proven_that_the_whole_graph_refutes(tmp_path: Path, rng: random.Random) -> None:
    """Check that no object keeps more than it retains in the whole graph, and that most keep as much."""
    with planted("one", rng.randrange(2000, 3000), tmp_path) as (pid, _truth), heap_of(pid) as heap:
        kept = KeptObjects(heap.python.objects, heap.python.interpreter.threads, 1 << 30, math.inf, 1)
        rows = [row for row in kept.rows.values() if row.address]
        graph = heap.python.references.graph
        numbers = [graph.find(row.address) for row in rows]
        found = graph.retained([number for number in numbers if number is not None])
    assert kept.is_done and None not in numbers
    more = [row for row, retained in zip(rows, found) if row.bytes > retained]
    assert len(more) < len(rows) // 100
    assert sum(row.bytes == retained for row, retained in zip(rows, found)) > len(rows) // 2
