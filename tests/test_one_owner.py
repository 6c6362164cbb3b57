"""All answers name the same owner of a block (``support.attribution``)."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from support.attribution import differences
from support.installed import python_with
from support.library import heap_of
from support.programs import KINDS, SOURCES, ask, c_program, gdbheap, python_program, running

# Blocks of each program that are compared one by one.
COMPARED = 40


def with_structures(rng: random.Random, _folder: Path) -> list[str]:
    """Return a program whose objects hold C structures: parsers, regular expressions, databases."""
    return python_program(KINDS[0], "extensions", rng.getrandbits(32), 2)


def with_numpy(rng: random.Random, folder: Path) -> list[str]:
    """Return a program with arrays and views of them."""
    return [python_with("numpy"), str(SOURCES / "owners.py"), str(rng.getrandbits(32)), "300", str(folder / "truth")]


def in_c(rng: random.Random, folder: Path) -> list[str]:
    """Return a program of blocks that refer to one another."""
    return c_program("ended", rng.getrandbits(30), 3, 30, folder / "table")


@pytest.mark.parametrize("program", [with_structures, with_numpy, in_c])
def test_one_owner(program: Callable[[random.Random, Path], list[str]], rng: random.Random, tmp_path: Path) -> None:
    """Check that no block has two owners, and that the counts of ``pyobjects`` for each type are its blocks."""
    with running(program(rng, tmp_path), tmp_path) as target, heap_of(str(target.pid)) as heap:
        assert differences(heap, rng, COMPARED) == []


@pytest.mark.parametrize("kind", KINDS)
def test_small_blocks_that_two_objects_share(kind: str, rng: random.Random, tmp_path: Path) -> None:
    """Check small blocks with two possible owners: one of the two has a row with all of them, and names the other."""
    # Together larger than a module of the interpreter.
    count, size = rng.randrange(500, 2000), rng.randrange(2000, 8000)
    with running(python_program(kind, "shared_blocks", count, size), tmp_path) as target:
        rows = ask("retained", str(target.pid), "--top=5")["rows"]
    (row,) = [row for row in rows if row["at_most"] is not None]
    assert count * size <= row["at_most"] <= count * (size + 32) + row["retained"] + 8 * 2 * (count + 10)
    names = {row["path"], *row["other_holders"]}
    assert names == {"sys.modules['__main__'].one", "sys.modules['__main__'].other"}


def test_a_holder_by_its_name(rng: random.Random, tmp_path: Path) -> None:
    """Check that a name that ``owners`` prints, or that source code would use, is accepted like the address."""
    with running(python_program(KINDS[1], "shared_blocks", rng.randrange(200, 2000), 4000), tmp_path) as target:
        words = str(target.pid)
        (row,) = [row for row in ask("owners", words)["rows"] if "['__main__']" in row["path"]]
        name = row["path"].partition("'].")[2]
        assert name in ("one", "other")
        for typed in (row["path"], name):
            assert ask("at", words, typed)["object"]["address"] == row["address"]
            assert ask("why", words, typed)["address"] == row["address"]
        done = gdbheap("retained", words, f"{name}s")
    assert done.returncode == 2 and f"'{name}s' is neither an address" in done.stderr, done.stderr
