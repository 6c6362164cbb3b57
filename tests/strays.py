"""Measure how much of a C tree is credited to a wrong owner if static data has numbers that are addresses in it.

``python tests/strays.py --starts=100`` starts 100 programs (tests/programs/stray.py) and prints a row for each kind;
tests/test_stray_words.py starts a few.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import SEED
from support.installed import python_with
from support.programs import SOURCES, Running, ask, interpreters, running
from tabulate import tabulate

FULL = "--top=1000000"
FIXED = 2
# The value at which reference counts of static objects begin in 3.11, and the word of 1.0f.
COUNTS, ONE = 999_999_999, 0x3F80_0000
# The types whose objects hold the tree, the requirements of the program, and its way of allocating.
KINDS = {
    "sqlite3": ("sqlite3.", "", ""),
    "expat": ("pyexpat.", "", "malloc"),
    "lxml": ("lxml.", "lxml", ""),
}


@dataclass(frozen=True)
class Shares:
    """The bytes that the tree added: by malloc, by the owner's types, by roots and without a name."""

    grown: int
    owned: int
    others: int

    @property
    def false(self) -> float:
        """Return the share that the owner lacks, or that a wrong owner has."""
        return max(self.others, self.grown - self.owned, 0) / self.grown


def fixed(package: str = "") -> str:
    """Return a CPython linked at a fixed address, whose heap lies below 4 GiB. Skip the test if there is none."""
    found = [python_with(package)] if package else [one.executable for one in interpreters()]
    for python in found:
        with open(python, "rb") as file:
            header = file.read(18)
        if header[16] == FIXED:
            return python
    pytest.skip("no CPython here is linked at a fixed address")


@contextlib.contextmanager
def hung(python: str, kind: str, number: int, size: int, seed: int, folder: Path) -> Iterator[Running]:
    """Yield the program before it makes its tree."""
    mode = KINDS[kind][2]
    command = [python, str(SOURCES / "stray.py"), kind, str(number), str(size), str(seed)]
    with running(command, folder, {"PYTHONMALLOC": mode} if mode else {}) as target:
        yield target


def grown(target: Running) -> int:
    """Return the bytes that malloc handed out for the tree."""
    return int(json.loads(target.stderr.splitlines()[-1])["grown"])


def named(target: Running, prefix: str) -> tuple[int, int]:
    """Return the bytes of the objects whose type names begin with ``prefix``, and the bytes of roots and of blocks
    without a name.
    """
    answer = ask("pyobjects", str(target.pid), FULL)
    own = sum(row["bytes"] for row in answer["rows"] if row["type"].startswith(prefix))
    rest = [*answer["roots"], answer["interpreter"], answer["unclassified"], answer["other_chunks"]]
    return own, sum(row["bytes"] for row in rest)


def measured(kind: str, number: int, size: int, seed: int, folder: Path) -> Shares:
    """Return the shares of one start."""
    prefix, package, _mode = KINDS[kind]
    with hung(fixed(package), kind, number, size, seed, folder) as target:
        own, others = named(target, prefix)
        target.go_on()
        own_later, others_later = named(target, prefix)
        return Shares(grown(target), own_later - own, others_later - others)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=100)
    parser.add_argument("--mib", type=int, default=40)
    options = parser.parse_args()
    rng, rows = random.Random(SEED), []
    turns = [(kind, number) for kind in KINDS for number in (COUNTS, ONE)]
    found: dict[tuple[str, int], list[float]] = {turn: [] for turn in turns}
    for start in range(options.starts):
        kind, number = turns[start % len(turns)]
        with tempfile.TemporaryDirectory() as folder:
            shares = measured(kind, number, options.mib << 20, rng.getrandbits(32), Path(folder))
        found[kind, number].append(shares.false)
    for (kind, number), shares_of in found.items():
        if shares_of:
            over = sum(share > 0.001 for share in shares_of)
            mean, worst = sum(shares_of) / len(shares_of), max(shares_of)
            rows.append([kind, f"{number:#x}", len(shares_of), over, f"{100 * mean:.3f} %", f"{100 * worst:.3f} %"])
    print(tabulate(rows, ["tree", "over", "starts", "beyond 0.1 %", "mean", "worst"], tablefmt="github"))


if __name__ == "__main__":
    main()
