"""``heap unreachable`` finds the planted cycles and the planted leaks, all of them and nothing else."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from graphs import BUILDS, program
from library import heap_of
from programs import Running, ask, running

from gdbheap.answers.unreachable import unreachable
from gdbheap.objects.references import BY_REMAINS


@pytest.mark.parametrize("build", BUILDS)
def test_what_nothing_keeps_alive(build: str, rng: random.Random, tmp_path: Path) -> None:
    """What was planted since the first look, and the leaks to which no word leads. (Some releases leak a module when
    they start.)"""
    command = program(build, "garbage", rng.getrandbits(32), tmp_path / "truth")
    with running(command, tmp_path) as target:
        objects_before, blocks_before = found_in(target)
        target.go_on()
        objects, blocks = found_in(target)
        planted, lost = (set(map(int, line.split())) for line in (tmp_path / "truth").read_text().splitlines())
        lost = {address - 1 for address in lost}
        left_over = {address for address, phase in phases(target, lost).items() if phase == BY_REMAINS}
        answer = ask("unreachable", str(target.pid))
    assert objects - objects_before == planted, (len(objects - planted), len(planted - objects))
    # A word that is left over on a stack may still lead to one or two.
    assert blocks - blocks_before == lost - left_over and len(left_over) < 3
    assert answer["objects"]["count"] == len(objects)
    assert answer["blocks"]["count"] == len(blocks)


def found_in(target: Running) -> tuple[set[int], set[int]]:
    """Return the addresses of the objects and of the blocks that are listed."""
    with heap_of(str(target.pid)) as heap:
        rows = unreachable(heap, 1 << 30).rows
    objects = {address for row in rows if row.type is not None for address in row.addresses}
    return objects, {address for row in rows if row.type is None for address in row.addresses}


def phases(target: Running, addresses: set[int]) -> dict[int, int]:
    """Return in which phase each block was reached."""
    with heap_of(str(target.pid)) as heap:
        graph = heap.references.graph
        numbers = [graph.find(address) or 0 for address in addresses]
        return dict(zip(addresses, graph.phases(numbers)))
