"""What does pymalloc hold in each size class, as ``sys._debugmallocstats()`` counts?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gdbheap import _native
from gdbheap.answers.describing import describe_blocks
from gdbheap.heap import Heap
from gdbheap.objects.repr import BRIEF

PERCENTS = (1, 10, 25, 50, 75, 100)
MOST_ARENAS = 5
MOST_PINS = 10


@dataclass(frozen=True)
class PoolClass:
    """One size class: block size in bytes, pools that are not empty, blocks in use, blocks available in those pools.

    ``arenas`` have blocks of it; ``alone`` of them hold no other blocks, and these ``alone_blocks``. With detail:
    ``told`` objects tell their size, ``asked`` is what they asked for, ``wasted`` what they got beyond that."""

    size: int
    pools: int
    used: int
    free: int
    arenas: int = 0
    alone: int = 0
    alone_blocks: int = 0
    told: int | None = None
    asked: int | None = None
    wasted: int | None = None


@dataclass(frozen=True)
class Fill:
    """The arenas whose used bytes are at most ``percent`` of the arena, and more than the row before says: their
    number and those bytes."""

    percent: int
    arenas: int
    used: int


@dataclass(frozen=True)
class ClassShare:
    """What a size class has in one arena: block size, pools, blocks in use."""

    size: int
    pools: int
    used: int


@dataclass(frozen=True)
class Pin:
    """A used block: its address and size, what it is, and a short text if it is an object that has one."""

    address: int
    size: int
    what: str
    text: str | None


@dataclass(frozen=True)
class ArenaUse:
    """An arena that holds blocks: its used ``bytes`` and ``blocks``, by size class, and the first few of them."""

    index: int
    address: int
    blocks: int
    bytes: int
    classes: list[ClassShare]
    pins: list[Pin]


@dataclass(frozen=True)
class Pools:
    """The answer of ``heap pools``; ``free_pools`` are ``sys._debugmallocstats()``' "unused pools". ``emptiest`` are the
    arenas with the fewest used bytes."""

    arena_size: int
    pool_size: int
    arenas: int
    free_pools: int
    classes: list[PoolClass]
    fill: list[Fill] = field(default_factory=list)
    emptiest: list[ArenaUse] = field(default_factory=list)


def pools(heap: Heap, detail: bool = False) -> Pools:
    """Every size class that has pools, by size. ``detail``: also what objects asked for, and what pins arenas.

    Raises NotAPython or Unsupported."""
    python = heap.python
    spread, fill, emptiest = _native.occupancy(python.pools, PERCENTS, MOST_ARENAS)
    spreads = {size: rest for size, *rest in spread}
    asked = _asked(heap) if detail else {}
    rows = [PoolClass(*row, *spreads[row[0]], *asked.get(row[0], _unknown(asked))) for row in python.pools.classes()]
    uses = [_use(heap, row, detail) for row in emptiest]
    fills = [Fill(*row) for row in fill]
    return Pools(python.arena_size, python.pool_size, len(python.arenas), python.free_pools, rows, fills, uses)


def _unknown(asked: dict[int, tuple[int, int, int]]) -> Sequence[int | None]:
    return (0, 0, 0) if asked else (None, None, None)


def _asked(heap: Heap) -> dict[int, tuple[int, int, int]]:
    """(objects that tell their size, bytes asked for, bytes beyond that) of each size class."""
    objects = heap.objects_or_none
    if objects is None:
        return {}
    rows = objects.asked_sizes(set(heap.census().contested), heap.classifying)
    return {size: (count, asked, count * size - asked) for size, count, asked in rows}


def _use(heap: Heap, row: tuple[int, int, int, list[tuple[int, int, int]]], detail: bool) -> ArenaUse:
    index, address, size, shares = row
    classes = [ClassShare(*share) for share in shares]
    pins = _pins(heap, _native.used_blocks(heap.target.space, heap.python.pools, address, MOST_PINS)) if detail else []
    return ArenaUse(index, address, sum(share.used for share in classes), size, classes, pins)


def _pins(heap: Heap, blocks: list[tuple[int, int]]) -> list[Pin]:
    words = describe_blocks(heap, blocks)
    objects = heap.objects_or_none
    inside = objects.objects_in(blocks) if objects is not None else [None] * len(blocks)
    texts = [objects.text(found, BRIEF) if objects and found and found.alive else None for found in inside]
    return [Pin(address, size, words[address], text) for (address, size), text in zip(blocks, texts)]
