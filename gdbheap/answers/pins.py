"""Which few blocks, if they were gone, would free the most pages?

A pin is a group of blocks that keeps at least twice its own bytes: the resident whole pages that ``malloc_trim(0)``
could release only if all of the group went, beyond what it would release as it is (see ``trim``); in pymalloc the
arena, which is unmapped with its last block. In glibc's arenas blocks make a group when they share a page that they
fill at most by half. No two groups have a block in common, so what several would free adds up."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gdbheap import _native
from gdbheap.answers.describing import describe_blocks
from gdbheap.answers.trim import given_tops, kept_ranges
from gdbheap.errors import GdbheapError
from gdbheap.heap import Heap
from gdbheap.target.target import PAGE_SIZE

MOST_GROUPS = 100_000
MOST_BLOCKS = 400_000
MOST_MEMBERS = 1000
MOST_WORDS = 3
CACHED = "free, in a thread's cache"
PLACE = re.compile(r" at 0x[0-9a-f]+")
GLIBC, PYMALLOC = "glibc", "pymalloc"

Row = tuple[int, int, int, int, int]
Totals = tuple[int, int, int, int]


@dataclass(frozen=True)
class Member:
    """A block of a group: malloc's pointer (of an object's block, where the block starts), size, and what it is."""

    address: int
    size: int
    what: str


@dataclass(frozen=True)
class Pin:
    """A group of blocks, often of one: the first one's address, the bytes of all, and what they are. ``would_free``:
    the bytes of resident pages that go when all of them are gone (all pages, where residency is not known).
    ``members``: the blocks, at most 1,000."""

    address: int
    size: int
    what: str
    allocator: str
    would_free: int
    blocks: int
    members: list[Member]


@dataclass(frozen=True)
class Kind:
    """Blocks that are the same thing, over all groups that were looked into: how many, their bytes, in how many
    groups; of these how many hold nothing else (``alone``), and what those would free."""

    what: str
    allocator: str
    blocks: int
    bytes: int
    groups: int
    alone: int
    would_free: int


@dataclass(frozen=True)
class Sums:
    """All pins of one allocator: groups, blocks, their bytes, what they would free. ``described``: so many blocks
    were looked into for ``kinds``, those of the groups that keep the most."""

    allocator: str
    groups: int
    blocks: int
    bytes: int
    would_free: int
    described: int


@dataclass(frozen=True)
class Pins:
    """The answer of ``heap pins``, what keeps the most beyond its own bytes first. The sums are over all pins of at
    least ``minimum`` bytes, also when the list is cut."""

    pins: list[Pin]
    sums: list[Sums]
    kinds: list[Kind]
    minimum: int
    resident_known: bool


def pins(heap: Heap, minimum: int = PAGE_SIZE, allocator: str | None = None) -> Pins:
    """Every pin that would free ``minimum`` bytes or more, of one allocator or both.

    Raises Unsupported without glibc's malloc."""
    parts = [(name, *found) for name, found in _groups(heap, minimum) if allocator in (None, name)]
    rows = sorted(
        ((name, row) for name, rows, _ in parts for row in rows), key=lambda pair: (pair[1][3] - pair[1][4], pair[1])
    )
    members = _members(heap, rows)
    words = describe_blocks(heap, [block[:2] for blocks in members for block in blocks if block[2]])
    named = [[Member(at, size, words[at] if used else CACHED) for at, size, used in blocks] for blocks in members]
    found = [_pin(name, row, blocks) for (name, row), blocks in zip(rows, named)]
    described = Counter(name for (name, _), blocks in zip(rows, named) for _ in blocks)
    sums = [Sums(name, *totals, described[name]) for name, _, totals in parts]
    return Pins(found, sums, _kinds(zip(found, named)), minimum, heap.target.pages is not None)


def _groups(heap: Heap, minimum: int) -> list[tuple[str, tuple[list[Row], Totals]]]:
    pages, kept = heap.target.pages, kept_ranges(heap.target)
    chunks = heap.walked.walk()
    found = [(GLIBC, _native.pins_of_chunks(chunks, pages, kept, given_tops(heap), minimum, MOST_GROUPS))]
    try:
        pools = heap.python.pools
    except GdbheapError:
        return found
    return [*found, (PYMALLOC, _native.pins_of_arenas(pools, pages, kept, minimum, MOST_GROUPS))]


def _members(heap: Heap, rows: Sequence[tuple[str, Row]]) -> list[list[tuple[int, int, bool]]]:
    """(address, size, used) of the blocks of each group, until there are too many of them."""
    found: list[list[tuple[int, int, bool]]] = []
    left = MOST_BLOCKS
    for name, row in rows:
        blocks = _blocks(heap, name, row) if row[2] <= left else []
        left -= len(blocks)
        found.append(blocks)
    return found


def _blocks(heap: Heap, name: str, row: Row) -> list[tuple[int, int, bool]]:
    start, end, count = row[:3]
    if name == GLIBC:
        return _native.held_chunks(heap.chunks, start, end, count)
    return [(*block, True) for block in _native.used_blocks(heap.target.space, heap.python.pools, start, count)]


def _pin(name: str, row: Row, members: list[Member]) -> Pin:
    start, _end, blocks, size, freed = row
    address = members[0].address if members else start
    return Pin(address, size, _summary(members), name, freed, blocks, members[:MOST_MEMBERS])


def kind(what: str) -> str:
    """A description without addresses, so that equal things are equal."""
    return PLACE.sub("", what)


def _summary(members: list[Member]) -> str:
    if len(members) <= 1:
        return members[0].what if members else "not looked into"
    counts = Counter(kind(member.what) for member in members).most_common()
    words = [f"{count:,} x {what}" for what, count in counts[:MOST_WORDS]]
    more = sum(count for _, count in counts[MOST_WORDS:])
    return ", ".join([*words, f"{more:,} others"] if more else words)


def _kinds(groups: Iterable[tuple[Pin, list[Member]]]) -> list[Kind]:
    """What the groups consist of, what has the most blocks first."""
    rows: dict[tuple[str, str], list[int]] = {}
    for pin, members in groups:
        sizes: dict[str, list[int]] = {}
        for member in members:
            sizes.setdefault(kind(member.what), []).append(member.size)
        for what, of_kind in sizes.items():
            row = rows.setdefault((what, pin.allocator), [0, 0, 0, 0, 0])
            alone = len(sizes) == 1
            more = (len(of_kind), sum(of_kind), 1, int(alone), pin.would_free if alone else 0)
            row[:] = [old + new for old, new in zip(row, more)]
    kinds = [Kind(what, allocator, *row) for (what, allocator), row in rows.items()]
    return sorted(kinds, key=lambda row: (-row.would_free, -row.blocks, row.what))
