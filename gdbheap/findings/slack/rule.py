"""Lists and byte arrays that have room for much more than they hold, and dicts and sets whose tables have."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from gdbheap.allocators.finding import MALLOC
from gdbheap.contents.python.objects.census import ESTIMATE_POOLS, Objects
from gdbheap.contents.python.objects.hash_tables import MAX_TABLE_SURPLUS, Table, looks_sparse, tables_of
from gdbheap.contents.python.objects.slack import Slack, find_slack
from gdbheap.findings.finding import SAMPLE_CAUTION, UNLISTED, Evidence, Figures, Finding

# Two pages.
MIN_LARGE_BUFFER = 8192
GROWING = ("list", "bytearray")
# Bytes of a slot and what belongs to it: two or four of its index and two thirds of an entry of 16 or 24; in Python 2.7
# an entry of 24. Sets have entries of 16.
PER_SLOT = {"dict": (38 / 3, 44 / 3, 18, 20, 24), "set": (16,)}
# The largest tables are looked at, at most this many; the others may be nearly empty.
MAX_TABLES = 256
# A type that has less of the room is not named.
MIN_PERCENT_SHOWN = 5


@dataclass(frozen=True)
class Room(Figures):
    """How many containers of each kind have room, its bytes in whole ``pages``, and of the one that has the ``most``
    of the ``type`` that has the most the ``address``. ``shown``: (type, how many) of those worth naming; ``resident``:
    bytes of all room."""

    ids = ("slack",)
    lists: int
    bytearrays: int
    dicts: int
    sets: int
    pages: int
    address: int
    most: int
    type: str
    shown: list[tuple[str, int]]
    resident: int = field(metadata=UNLISTED)


def find(evidence: Evidence) -> list[Finding]:
    """What they have allocated beyond it, and is resident: counted where it may be worth it."""
    names = [] if evidence.objects is None else _worthwhile(evidence, evidence.objects)
    if evidence.objects is None or not names:
        return []
    rows = [row for row in find_slack(evidence.heap.target, evidence.objects, names) if row.count]
    size = sum(row.small + row.pages for row in rows)
    if not evidence.worth(size):
        return []
    return [Finding("slack", size, _figures(rows, size))]


def _figures(rows: list[Slack], size: int) -> Room:
    most = max(rows, key=lambda row: row.small + row.pages)
    lists, arrays, dicts, sets = (_count(rows, name) for name in (*GROWING, *PER_SLOT))
    shown = [(row.type, row.count) for row in rows if 100 * (row.small + row.pages) >= MIN_PERCENT_SHOWN * size]
    pages = sum(row.pages for row in rows)
    return Room(lists, arrays, dicts, sets, pages, most.address, most.most, most.type, shown, size)


def _count(rows: list[Slack], name: str) -> int:
    return sum(row.count for row in rows if row.type == name)


def _worthwhile(evidence: Evidence, objects: Objects) -> list[str]:
    """The types that may have enough room."""
    buffers, in_pages = _buffers(evidence)
    # They have never more than half of a buffer to spare.
    large = sum(size * count for size, count in [*buffers, *in_pages])
    is_growing = evidence.worth(large // 2) or evidence.worth(SAMPLE_CAUTION * _sampled(evidence, objects))
    names = list(GROWING if is_growing else ())
    for table in tables_of(objects.release):
        size = sum(size * count for size, count in buffers if _is_table(size, table.name))
        size += sum(size * count for size, count in in_pages)
        if evidence.worth(size) and evidence.worth(size - _dense(evidence, objects, table)):
            names.append(table.name)
    return names


def _buffers(evidence: Evidence) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """(size, how many) of malloc's large blocks, and of those of other allocators."""
    found: tuple[list[tuple[int, int]], list[tuple[int, int]]] = [], []
    for allocator in evidence.heap.allocators:
        found[not isinstance(allocator, MALLOC)].extend(
            row for row in allocator.used_sizes() if row[0] >= MIN_LARGE_BUFFER
        )
    return found


def _is_table(size: int, name: str) -> bool:
    """Whether a table of a power of two of slots has this size."""
    return any(size - each * (1 << int(math.log2(size / each))) < MAX_TABLE_SURPLUS for each in PER_SLOT[name])


def _dense(evidence: Evidence, objects: Objects, table: Table) -> int:
    """Bytes of the largest blocks of a table's size that are no table, or one that is well filled."""
    if objects.layout.hook:
        return 0
    space = evidence.heap.target.space
    blocks = [row for row in evidence.largest_blocks(MIN_LARGE_BUFFER, MAX_TABLES) if _is_table(row[1], table.name)]
    return sum(size for address, size in blocks if not looks_sparse(space, table, address, size))


def _sampled(evidence: Evidence, objects: Objects) -> int:
    """What a sample says of room in smaller ones."""
    return sum(row.small for row in find_slack(evidence.heap.target, objects, GROWING, ESTIMATE_POOLS))
