"""The owner of each block: as many bytes as ``__sizeof__`` counts, of the right owner, and almost nothing without
one."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from support.installed import python_with
from support.library import heap_of
from support.programs import FORMS, KINDS, SOURCES, ask, gdbheap, interpreter_of, running

pytestmark = pytest.mark.cases(3)

NUMPY = "with numpy"
MIN_NAMED = 0.97
MAX_UNCLASSIFIED = 0.005


def interpreter(kind: str) -> str:
    """Return an interpreter of that kind, or one that has numpy."""
    return python_with("numpy") if kind == NUMPY else interpreter_of(kind)


def program(kind: str, name: str, *arguments: object) -> list[str]:
    """Return the command that runs tests/programs/NAME.py."""
    return [interpreter(kind), str(SOURCES / f"{name}.py"), *map(str, arguments)]


def allocated(size: int) -> int:
    """Return the smallest block for a request: pymalloc's, or beyond 512 bytes glibc's."""
    return (size + 15) & ~15 if size <= 512 else (size + 8 + 15) & ~15


def in_chunks(size: int) -> int:
    """Return the smallest chunk for a request, if every request goes to glibc."""
    return max(32, (size + 8 + 15) & ~15)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", [*KINDS, NUMPY])
def test_as_many_bytes_as_getsizeof_says(kind: str, form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check random populations: counts are equal, and buffers are what ``__sizeof__`` counts, rounded as by the
    allocators."""
    command = program(kind, "owners", rng.getrandbits(32), 1500, tmp_path / "truth")
    with running(command, tmp_path) as target:
        truth = json.loads((tmp_path / "truth").read_text())["sizes"]
        found = {row["type"]: row for row in ask("pyobjects", target.as_form(form), "--top=1000000")["rows"]}
    for name, (count, sizes) in truth.items():
        least = sum(map(in_chunks if name == "__main__.Plain" else allocated, sizes))
        chunks = sum(size > 512 or name == "__main__.Plain" for size in sizes)
        row = found[name]
        assert row["count"] == count, name
        # A chunk may have 16 bytes more than it needs. Memory reached by words in an array's data (np.empty leaves
        # earlier contents) has its own figure, and is in no object's size.
        assert 0 <= row["buffers"] - row["reached"] - least <= 16 * chunks, (name, row, least)


@pytest.mark.parametrize("kind", [*KINDS, NUMPY])
def test_owners_are_those_that_point_there(kind: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that each block of each object of the population has this object as its owner."""
    command = program(kind, "owners", rng.getrandbits(32), 1500, tmp_path / "truth")
    with running(command, tmp_path) as target, heap_of(str(target.pid)) as heap:
        truth = dict(json.loads((tmp_path / "truth").read_text())["owners"])
        owners = heap.python.owners_of(list(truth))
    wrong = [(hex(at), owner, owners[at]) for at, owner in truth.items() if address_of(owners[at]) != owner]
    assert not wrong, wrong[:10]
    assert len(truth) > 1000


def address_of(owner: Any) -> Any:
    """Return the address of an owner, None without one."""
    return None if owner is None else owner.address


def balance(answer: dict[str, Any]) -> int:
    """Return used bytes less the explained bytes; 0 if the sums agree."""
    parts = [answer[key]["bytes"] for key in ("free_lists", "interpreter", "unclassified", "other_chunks")]
    parts += [root["bytes"] for root in answer["roots"]]
    return int(answer["all_used"]["bytes"] - sum(parts) - answer["total"]["bytes"])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_little_is_left_over(kind: str, form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check threads with objects of many extension modules: the sums agree, and nearly all memory has an owner."""
    with running(program(kind, "extensions", rng.getrandbits(32), 8), tmp_path) as target:
        text = target.as_form(form)
        answer, pools = ask("pyobjects", text, "--top=1000000"), ask("pools", text)
        assert gdbheap("check", text).returncode == 0
    assert balance(answer) == 0
    unknown = answer["unclassified"]["bytes"] + answer["other_chunks"]["bytes"]
    assert unknown <= (1 - MIN_NAMED) * answer["all_used"]["bytes"]
    assert answer["unclassified"]["count"] <= MAX_UNCLASSIFIED * sum(row["used_count"] for row in pools["rows"])


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_free_has_no_owner(kind: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that fields that lead to freed blocks own nothing, that the sums agree, and that lists have no such
    items."""
    count = rng.randrange(50, 500)
    with running(program(kind, "given_back", rng.getrandbits(32), count), tmp_path) as target:
        answer = ask("pyobjects", str(target.pid), "--top=1000000")
    assert balance(answer) == 0
    with running([interpreter(kind), "-c", "import os, ctypes, random; os.read(0, 1)"], tmp_path) as target:
        plain = ask("pyobjects", str(target.pid), "--top=1000000")
    items, others = (next(row["buffers"] for row in one["rows"] if row["type"] == "list") for one in (answer, plain))
    assert items - others < count * 400 / 2
