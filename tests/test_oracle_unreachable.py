"""``heap unreachable`` finds the planted cycles and the planted leaks, all of them and nothing else."""

from __future__ import annotations

import array
import random
from pathlib import Path

import pytest
from graphs import BUILDS, started
from kernel import maps
from library import heap_of
from programs import Running, ask

from gdbheap.answers.unreachable import unreachable

LARGE = 4 << 20


@pytest.mark.parametrize("build", BUILDS)
def test_what_nothing_keeps_alive(build: str, rng: random.Random, tmp_path: Path) -> None:
    """What was planted since the first look, and the leaks to which no word leads. (Some releases leak a module when
    they start.)"""
    with started(build, tmp_path, "garbage", rng.getrandbits(32), tmp_path / "truth") as target:
        objects_before, blocks_before = found_in(target)
        target.go_on()
        objects, blocks = found_in(target)
        planted, lost = (set(map(int, line.split())) for line in (tmp_path / "truth").read_text().splitlines())
        lost = {address - 1 for address in lost}
        left_over = led_to(target, lost - blocks)
        answer = ask("unreachable", str(target.pid))
    assert objects - objects_before == planted, (len(objects - planted), len(planted - objects))
    # A word that is left over on a stack may still lead to one or two.
    assert blocks - blocks_before == lost - left_over
    assert answer["objects"]["count"] == len(objects)
    assert answer["blocks"]["count"] == len(blocks)


def found_in(target: Running) -> tuple[set[int], set[int]]:
    """Return the addresses of the objects and of the blocks that are listed."""
    with heap_of(str(target.pid)) as heap:
        rows = unreachable(heap, 1 << 30).rows
    objects = {address for row in rows if row.type is not None for address in row.addresses}
    return objects, {address for row in rows if row.type is None for address in row.addresses}


def led_to(target: Running, addresses: set[int]) -> set[int]:
    """Return those of some blocks into which a word leads, on a stack, in static data or in whatever is no larger."""
    with heap_of(str(target.pid)) as heap:
        nodes = [heap.references.find(address) for address in addresses]
    sizes = {node.address: node.size for node in nodes if node is not None}
    low, high = min(addresses, default=0), max((address + size for address, size in sizes.items()), default=0)
    words = outer_words(target.pid, low, high)
    return {address for address, size in sizes.items() if any(address <= word < address + size for word in words)}


def outer_words(pid: int, low: int, high: int) -> set[int]:
    """Return the words in [low, high) of the process's smaller mappings, without its main heap."""
    found: set[int] = set()
    with Path(f"/proc/{pid}/mem").open("rb") as memory:
        for mapped in maps(pid):
            if mapped.perms.startswith("rw") and mapped.path != "[heap]" and mapped.end - mapped.start < LARGE:
                memory.seek(mapped.start)
                words = array.array("Q", memory.read(mapped.end - mapped.start))
                found.update(word for word in words if low <= word < high)
    return found
