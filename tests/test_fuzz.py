"""The fuzzer of cores, bounded: a number of mutants without a finding, and proof that it can find faults."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import SEED
from fuzz.books import unbalanced
from fuzz.cores import make
from fuzz.work import Tally, Worker

MUTANTS = 50


@pytest.fixture(scope="module")
def cores(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return small cores of a C program and of a CPython."""
    return make(tmp_path_factory.mktemp("cores"), random.Random(f"{SEED} cores"), few=True)


@pytest.fixture
def worker() -> Iterator[Worker]:
    """Yield a process that runs mutants."""
    found = Worker()
    yield found
    found.remove()


def test_mutants(cores: list[Path], worker: Worker) -> None:
    """Check that every answer parses and adds up, and that every refusal is one line; no crash, hang or traceback."""
    tally = Tally()
    for number in range(MUTANTS):
        worker.run(cores[number % len(cores)], f"{SEED} {number}", tally)
    assert not tally.findings, tally.findings[:3]
    assert tally.mutants == MUTANTS and tally.answered > MUTANTS


def test_it_finds(cores: list[Path], tmp_path: Path) -> None:
    """Check that a crash, a hang and a file that is no core become findings, and that the restarted worker
    continues."""
    tally = Tally()
    slow = Worker(seconds=0.001)
    try:
        (found,) = slow.run(cores[0], "0", tally)
        assert found.noun == "hang" and "worker.py" in found.what
    finally:
        slow.remove()
    worker = Worker()
    try:
        assert worker.process is not None
        worker.process.kill()
        worker.process.wait()
        (found,) = worker.run(cores[0], "0", tally)
        assert found.noun == "crash, status -9"
        assert worker.run(cores[0], "0", tally) == [] and len(tally.findings) == 2
    finally:
        worker.remove()


def test_books() -> None:
    """Check that a line is found whose children do not add up to it, and a byte without an owner."""
    row = {"virtual": 10, "resident": 5, "swapped": 0}
    lines = [{"id": "a", "parent": None, **row}, {"id": "a.b", "parent": "a", **row}]
    assert unbalanced("", {"ledger": lines}, 10) == []
    assert len(unbalanced("", {"ledger": lines}, 11)) == 1
    lines[1] = {**lines[1], "resident": 4}
    assert len(unbalanced("", {"ledger": lines}, 10)) == 1
