"""Lost objects that keep each other alive by counts are called cycles; lost parents that children know are not."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.programs import SOURCES, ask, running

CXX = ["g++", "-std=c++14", "-O1", str(SOURCES / "shared_cycles.cc"), "-o"]
RUST = ["rustc", "--edition=2021", "-O", str(SOURCES / "counted_cycles.rs"), "-o"]


def lost(compiler: list[str], kind: str, count: int, folder: Path) -> tuple[str, str]:
    """Return the text and the advice of the finding about a program that loses ``count`` objects of this kind."""
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"no {compiler[0]}")
    program = str(folder / "cycles")
    subprocess.run([*compiler, program], check=True)
    with running([program, kind, str(count)], folder) as target:
        found = ask("", str(target.pid))["findings"]
    (row,) = [row for row in found if row["id"] == "lost-blocks"]
    return row["text"], row["advice"]


@pytest.mark.parametrize("kind", ["made", "new", "self", "list"])
def test_cycles_of_shared_ptr(rng: random.Random, tmp_path: Path, kind: str) -> None:
    """Check that all cycles are counted, except some that a stale pointer reaches."""
    count = rng.randrange(300, 500)
    text, advice = lost(CXX, kind, count, tmp_path)
    found = re.search(r"([\d,]+) cycles of std::shared_ptr objects", text)
    assert found is not None and count - 3 <= int(found[1]) <= count, text
    assert "std::weak_ptr" in advice


@pytest.mark.parametrize("kind", ["rc", "arc"])
def test_cycles_of_rc(rng: random.Random, tmp_path: Path, kind: str) -> None:
    """Check that all cycles of Rust's Rc are counted."""
    count = rng.randrange(300, 500)
    text, advice = lost(RUST, kind, count, tmp_path)
    found = re.search(r"([\d,]+) cycles of Rc or Arc objects", text)
    assert found is not None and count - 3 <= int(found[1]) <= count, text
    assert "Weak" in advice


def test_cycles_that_stale_pointers_join(rng: random.Random, tmp_path: Path) -> None:
    """Check that cycles of Arc are recognized although unused room of a Vec points from one to another."""
    text, advice = lost(RUST, "family", rng.randrange(300, 500), tmp_path)
    found = re.search(r"of Rc or Arc objects keep themselves alive by reference counts, with ([\d.]+) MiB", text)
    assert found is not None and float(found[1]) > 300 * 2500 * 8 / (1 << 20) * 0.9, text
    assert "Weak" in advice


@pytest.mark.parametrize(("compiler", "kind"), [(CXX, "made"), (RUST, "arc")], ids=["cxx", "rust"])
def test_many_cycles(rng: random.Random, tmp_path: Path, compiler: list[str], kind: str) -> None:
    """Check that the text gives the number of examined cycles and of all, if there are too many to examine."""
    count = rng.randrange(2500, 2700)
    text, advice = lost(compiler, kind, count, tmp_path)
    found = re.search(r"([\d,]+) cycles of .* the ([\d,]+) largest of the ([\d,]+) blocks that keep the others", text)
    assert found is not None, text
    cycles, looked_at, heads = (int(number.replace(",", "")) for number in found.groups())
    assert count - 3 <= heads <= count and 500 <= cycles <= looked_at <= 1000, text
    assert "weak" in advice.lower()


@pytest.mark.parametrize("compiler", [CXX, RUST], ids=["cxx", "rust"])
def test_lost_parents(rng: random.Random, tmp_path: Path, compiler: list[str]) -> None:
    """Check that lost parents do not count as kept by counts."""
    text, advice = lost(compiler, "parent", rng.randrange(300, 500), tmp_path)
    assert "cycle" not in text and "unless it computes" in text and "weak" not in advice.lower()
