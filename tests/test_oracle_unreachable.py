"""``heap unreachable`` finds exactly the planted cycles and leaks."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import pytest
from reference.glibc import HEAP_MAX
from support.graphs import BUILDS, started
from support.library import heap_of
from support.programs import Running, ask, python_program, running

from gdbheap.answers.unreachable import unreachable

pytestmark = pytest.mark.cases(3)


@dataclass
class Found:
    """The addresses of objects in cycles, of lost blocks, and of blocks to which only weak words point."""

    objects: set[int]
    blocks: set[int]
    by_stray: set[int]


@pytest.mark.parametrize("build", BUILDS)
def test_what_nothing_keeps_alive(build: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that exactly the objects planted since the first reading are found.

    (Some releases leak a module when they start.)

    A stale word on the stack of a running thread may lead to a block that this thread lost, and then the answer says
    so; nothing leads to blocks that an ended thread lost. (But in a heap at a multiple of 4 GiB every small number
    beside the upper half of an old address looks like an address.)
    """
    with started(build, tmp_path, "garbage", rng.getrandbits(32), tmp_path / "truth") as target:
        before = found_in(target)
        target.go_on()
        after = found_in(target)
        answer = ask("unreachable", str(target.pid))
    planted, here, there = (set(map(int, line.split())) for line in (tmp_path / "truth").read_text().splitlines())
    objects, blocks, by_stray = (
        getattr(after, name) - getattr(before, name) for name in ("objects", "blocks", "by_stray")
    )
    assert objects == planted, (len(objects - planted), len(planted - objects))
    certain = {address for address in there if address % (4 << 30) >= HEAP_MAX}
    assert certain <= blocks, (len(certain - blocks), len(there))
    assert blocks | by_stray == here | there, (len(blocks - here - there), len(by_stray - here), len(here - blocks))
    assert not blocks & by_stray
    assert answer["cycles"]["objects"] == answer["cycles"]["collectable_objects"] == len(after.objects)
    assert answer["lost_blocks"]["blocks"] == len(after.blocks)


def found_in(target: Running) -> Found:
    """Return the addresses that are listed."""
    with heap_of(str(target.pid)) as heap:
        rows = unreachable(heap, 1 << 30).rows
    objects = {address for row in rows if row.group == "cycles" and row.type is not None for address in row.addresses}
    blocks, by_stray = (
        {address for row in rows if row.type is None and row.group == group for address in row.addresses}
        for group in ("lost_blocks", "doubtful")
    )
    return Found(objects, blocks, by_stray)


def test_the_same_each_time(rng: random.Random, tmp_path: Path) -> None:
    """Check that rows of equal size have a fixed order, which does not depend on a run's hashes."""
    with running(python_program("unstripped", "equal_rings", rng.randrange(2, 20)), tmp_path) as target:
        first, *others = (ask("unreachable", str(target.pid)) for _ in range(4))
    assert len({row["why"] for row in first["rows"] if row["type"] == "tuple" and row["group"] == "cycles"}) == 4
    assert [other["rows"] == first["rows"] for other in others] == [True] * 3
