"""Interpreters with their own pools (CPython 3.12 and later), each against its own figures."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from support import kernel
from support.closures import check_counts, check_objects, reached_in_heaps, some
from support.pool_figures import answered, told
from support.populations import census
from support.programs import FORMS, KERNEL_CORE, ask, release_program, running, since

pytestmark = pytest.mark.cases(1)

SINCE = since("3.12")
HEADLINE = "Small block threshold"
# struct _obmalloc_state, which begins with usedpools: mgmt.raw_allocated_blocks.
RAW_ALLOCATED_BLOCKS = 1088
releases = pytest.mark.parametrize("release", SINCE)


def told_by_each(text: str) -> list[dict[str, object]]:
    """Return the figures of each interpreter that printed them, the main one last."""
    return [told(HEADLINE + part) for part in text.split(HEADLINE)[1:]]


def added(figures: list[dict[str, object]]) -> dict[str, object]:
    """Return the sums of several interpreters' figures."""
    classes: dict[int, tuple[int, ...]] = {}
    for row in figures:
        assert isinstance(row["classes"], dict)
        for size, counts in row["classes"].items():
            classes[size] = tuple(map(sum, zip(classes.get(size, (0, 0, 0)), counts)))
    sums = {key: sum(int(str(row[key])) for row in figures) for key in ("arenas", "free_pools")}
    same = {key: figures[0][key] for key in ("arena_size", "pool_size")}
    return {**sums, **same, "classes": classes}


@releases
@pytest.mark.parametrize("form", FORMS)
def test_pools_of_all_interpreters(release: str, form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that each size class is the sum of the interpreters' figures, and that each interpreter has its share."""
    isolated = rng.randrange(1, 5)
    arguments = (rng.getrandbits(31), rng.randrange(200, 20_000), isolated, rng.randrange(2), "-")
    with running(release_program(release, "subinterpreters", *arguments), tmp_path) as target:
        figures = told_by_each(target.stderr)
        found = re.search(r"blocks in all: (\d+)", target.stderr)
        assert found is not None and len(figures) == isolated + 1
        rows = ask("pools", str(target.pid))["interpreters"]
        raw = sum(kernel.read_u64(target.pid, row["usedpools"] + RAW_ALLOCATED_BLOCKS) for row in rows)
        answer = ask("pools", target.as_form(form))
    assert answer["damage"] == [] and answer["interpreters"] == rows
    assert answered(answer) == added(figures)
    # The int that returned the count is one more.
    assert sum(row["blocks"] for row in rows) + raw == int(found[1]) + 1
    shares = [(row["arenas"], row["blocks"], row["bytes"]) for row in rows]
    expected = [share_of(row) for row in figures]
    assert shares[0] == expected[-1] and sorted(shares[1:]) == sorted(expected[:-1])


def share_of(figures: dict[str, object]) -> tuple[object, int, int]:
    """Return arenas, blocks in use and their bytes."""
    assert isinstance(figures["classes"], dict)
    rows = [(size, used) for size, (_pools, used, _free) in figures["classes"].items()]
    return figures["arenas"], sum(used for _, used in rows), sum(size * used for size, used in rows)


@pytest.mark.cases(1)
@releases
def test_every_reachable_object(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check each interpreter, isolated or with the main one's pools, like a single one."""
    isolated, shared = rng.randrange(1, 4), rng.randrange(1, 3)
    arguments = (rng.getrandbits(31), rng.randrange(200, 5000), isolated, shared, tmp_path / "truth")
    with running(release_program(release, "subinterpreters", *arguments), tmp_path) as target:
        reached: dict[int, str] = {}
        for number in range(1 + isolated + shared):
            own = reached_in_heaps(target.pid, tmp_path / f"truth.{number}")
            own = {a: name for a, name in own.items() if is_alive(target.pid, a)}
            assert len(own) > 1000
            check_objects(str(target.pid), own, some(own, rng))
            reached.update(own)
        answer = ask("pools", str(target.pid))
        assert len(answer["interpreters"]) == 1 + isolated
        ledger = {line["id"]: line["virtual"] for line in ask("", str(target.pid))["ledger"]}
        assert ledger["pymalloc"] == answer["arenas"] * answer["arena_size"]
        rows = census(str(target.pid))
        assert census(target.as_form(KERNEL_CORE)) == rows
    check_counts(reached, rows)


def is_alive(pid: int, thing: int) -> bool:
    """Return whether the program itself, not only its child, holds the object: its reference count is one, and not
    0."""
    return 0 < kernel.read_u64(pid, thing) < 1 << 32
