"""Sizes that a damaged target claims of its own structures: the ledger has no byte that is not mapped."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from images.heap import HEAP_MAX, HEAPS, MAPS, PAGE, STACKS, Image
from images.layouts import GLIBCS
from support import kernel
from support.library import heap_of

from gdbheap.first_page.ledger import ledger

# Of struct pthread in an image: stackblock, stackblock_size, guardsize.
STACK_BLOCK = 0x690


def longer_stack(image: Image, rng: random.Random) -> None:
    """A thread's own record says that its stack is longer than what is mapped."""
    _tid, pointer, _sp = rng.choice([thread for thread in image.memory.threads if thread[1] >= STACKS])
    size = image.memory.word(pointer + STACK_BLOCK + 8)
    image.memory.put(pointer + STACK_BLOCK + 8, size + PAGE * rng.randrange(1, 20))


def longer_heap(image: Image, rng: random.Random) -> None:
    """A thread's heap says that it is larger than what is mapped, and the rest of its reserve is gone."""
    pieces = [piece for piece in image.memory.pieces if HEAPS <= piece.start < MAPS and piece.data]
    # A chunk with a mapping of its own may lie in front of the heap.
    heap, end = rng.choice([(-(-piece.start // HEAP_MAX) * HEAP_MAX, piece.end) for piece in pieces])
    assert image.memory.word(heap + 16) == end - heap
    image.memory.pieces = [piece for piece in image.memory.pieces if piece.start != end]
    image.memory.put(heap + 16, end - heap + PAGE * rng.randrange(1, 20))


def no_reserve(image: Image, rng: random.Random) -> None:
    """What a thread's heap has not used yet is not mapped."""
    reserves = [piece for piece in image.memory.pieces if not piece.data and HEAPS <= piece.start]
    gone = rng.choice(reserves)
    image.memory.pieces = [piece for piece in image.memory.pieces if piece is not gone]


@pytest.mark.parametrize("damage", [longer_stack, longer_heap, no_reserve], ids=lambda damage: damage.__name__)
def test_nothing_beyond_the_mappings(
    damage: Callable[[Image, random.Random], None], rng: random.Random, tmp_path: Path
) -> None:
    """The ledger's roots add up to the mappings, whatever a structure says of its own size."""
    for glibc in (GLIBCS[0], GLIBCS[-1]):
        image = Image(glibc, rng)
        damage(image, rng)
        core = image.save(tmp_path / "core")
        mapped = sum(segment.size for segment in kernel.segments(core))
        with heap_of(str(core)) as heap:
            answer = ledger(heap)
            assert sum(line.virtual for line in answer.ledger if line.parent is None) == mapped
            assert bool(heap.damage) == (damage is longer_heap), heap.damage
