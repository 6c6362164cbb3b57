"""A reference keeps a block from being lost, wherever in the block it points.

A word that may be a reference, such as a tagged one, makes the block doubtful. Words in the padding of a block and on
stacks of ended threads keep nothing.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.installed import python_with
from support.programs import KERNEL_CORE, PROCESS, SOURCES, ask, c_program, running

ALL = "--top=all"


@pytest.mark.parametrize("words", [101, 102])
def test_circles_of_shared_pointers(words: int, rng: random.Random, tmp_path: Path) -> None:
    """Check that all lost nodes are lost or doubtful, whether their size leaves padding or not, and that all other
    nodes are neither.

    malloc does not divide a chunk that is 16 bytes too large: the rest in a few nodes is not recognised as padding.
    """
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    program = tmp_path / "cycles"
    subprocess.run([compiler, "-O1", "-s", str(SOURCES / "cycles.cc"), "-o", str(program)], check=True)
    count = rng.randrange(400, 900)
    command = [str(program), str(rng.getrandbits(30)), str(count), str(words), str(tmp_path / "table")]
    with running(command, tmp_path) as target:
        answer = ask("unreachable", str(target.pid), ALL)
    kinds = [line.split() for line in (tmp_path / "table").read_text().splitlines()]
    least = min(int(size) for _kind, _at, size in kinds)
    lost = {int(at) for kind, at, size in kinds if kind == "lost" and int(size) == least}
    kept = {int(at) for kind, at, _size in kinds if kind == "kept"}
    certain, doubtful = (addresses(answer, by_stray) for by_stray in (False, True))
    assert lost <= certain | doubtful
    assert not kept & (certain | doubtful)


@pytest.mark.parametrize("form", [PROCESS, KERNEL_CORE])
def test_ended_threads_hold_nothing(form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that blocks are lost if only stacks that glibc keeps lead to them, and that these stacks are a line of
    the ledger."""
    threads, count = rng.randrange(2, 12), rng.randrange(5, 60)
    with running(c_program("ended", rng.getrandbits(30), threads, count, tmp_path / "table"), tmp_path) as target:
        text = target.as_form(form)
        answer, first = ask("unreachable", text, ALL), ask("", text)
    lost = {int(line) for line in (tmp_path / "table").read_text().split()}
    assert len(lost) == threads * count
    assert addresses(answer, False) == lost
    (line,) = [line for line in first["ledger"] if line["id"] == "ended-stacks"]
    assert line["virtual"] >= max(line["resident"], 1)


@pytest.mark.parametrize("form", [PROCESS, KERNEL_CORE])
def test_numbers_hold_nothing(form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that a block whose address is only in an array of numbers is doubtful, and that an array of structures
    leads to its blocks."""
    arguments = [str(rng.getrandbits(30)), str(rng.randrange(20, 300)), str(tmp_path / "table")]
    with running([python_with("numpy"), str(SOURCES / "numbered.py"), *arguments], tmp_path) as target:
        answer = ask("unreachable", target.as_form(form), ALL)
    table = [line.split() for line in (tmp_path / "table").read_text().splitlines()]
    numbers, structs = ({~int(at) for kind, at in table if kind == wanted} for wanted in ("number", "struct"))
    assert numbers <= addresses(answer, True)
    assert not structs & (addresses(answer, True) | addresses(answer, False))


def addresses(answer: dict[str, Any], by_stray: bool) -> set[int]:
    """Return the addresses of the rows that weak evidence leads to, or of the others."""
    rows = [row for row in answer["rows"] if (row["group"] == "doubtful") == by_stray]
    return {address for row in rows for address in row["addresses"]}


# Words that prove that a block is in use; others may be numbers, or stale.
CERTAIN = ("shared", "memfd", "far")


@pytest.mark.parametrize("form", [PROCESS, KERNEL_CORE])
@pytest.mark.parametrize("way", ["list", "table", "boxed", "counted", *CERTAIN])
@pytest.mark.cases(3)
def test_what_some_word_leads_to_is_not_lost(way: str, form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that no kept block is lost, and that all lost ones are lost or doubtful, most of them for certain."""
    command = c_program("pointing", rng.getrandbits(30), rng.randrange(200, 900), way, tmp_path / "table")
    with running(command, tmp_path) as target:
        answer = ask("unreachable", target.as_form(form), ALL)
    table = [line.split() for line in (tmp_path / "table").read_text().splitlines()]
    kept, lost = ({int(at) for kind, at in table if kind == wanted} for wanted in ("kept", "lost"))
    certain, doubtful = (addresses(answer, by_stray) for by_stray in (False, True))
    assert not kept & certain
    assert not (kept & doubtful and way in CERTAIN)
    assert lost <= certain | doubtful
    # Links of formerly free chunks are at most in the thousand blocks between them, two in each.
    assert len(lost & certain) > len(lost) / 10


@pytest.mark.cases(1)
@pytest.mark.parametrize("form", [PROCESS, KERNEL_CORE])
def test_lists_through_last_members_beside_python(form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that blocks of C code in a list that is linked through their last members are at most doubtful, and that
    blocks in no list are lost.
    """
    arguments = [str(rng.getrandbits(30)), str(rng.randrange(200, 900)), str(tmp_path / "table")]
    with running([sys.executable, str(SOURCES / "last_members.py"), *arguments], tmp_path) as target:
        answer = ask("unreachable", target.as_form(form), ALL)
    table = [line.split() for line in (tmp_path / "table").read_text().splitlines()]
    kept, lost = ({int(at) for kind, at in table if kind == wanted} for wanted in ("kept", "lost"))
    assert not kept & addresses(answer, False)
    # A block of an interpreter's may have a stale copy of any of their addresses.
    assert len(lost & addresses(answer, False)) > len(lost) / 2


def test_last_bases_are_references(rng: random.Random, tmp_path: Path) -> None:
    """Check that an object is neither lost nor doubtful if a vector points to its base, which is at its very end."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    program = tmp_path / "bases"
    subprocess.run([compiler, "-O1", "-s", str(SOURCES / "bases.cc"), "-o", str(program)], check=True)
    with running([str(program), str(rng.randrange(200, 900)), str(tmp_path / "table")], tmp_path) as target:
        answer = ask("unreachable", str(target.pid), ALL)
    views = {int(line) for line in (tmp_path / "table").read_text().split()}
    assert not views & (addresses(answer, True) | addresses(answer, False))
