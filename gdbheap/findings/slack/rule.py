"""Lists and byte arrays with much unused capacity, and dicts and sets whose tables are too large."""

from __future__ import annotations

import math
from dataclasses import field

from gdbheap.allocators.registry import MALLOC
from gdbheap.contents.python.objects.census import ESTIMATE_POOLS, Objects
from gdbheap.contents.python.objects.hash_tables import MAX_TABLE_SURPLUS, Table, looks_sparse, tables_of
from gdbheap.contents.python.objects.slack import Slack, find_slack
from gdbheap.dataclass import dataclass
from gdbheap.findings.finding import SAMPLE_CAUTION, UNLISTED, Evidence, Figures, Finding

# Buffers of two pages or more are large.
MIN_LARGE_BUFFER = 8192
GROWING = ("list", "bytearray")
# The bytes of each slot of a table.
#
# A slot of a dict takes two or four bytes of the index, and two thirds of an entry of 16 or 24 bytes. In Python 2.7 it
# takes an entry of 24 bytes. A slot of a set takes an entry of 16 bytes.
PER_SLOT = {"dict": (38 / 3, 44 / 3, 18, 20, 24), "set": (16,)}
# At most this many of the largest tables are read. All other tables are assumed to be almost empty.
MAX_TABLES = 256
# A type with a smaller percentage of all unused capacity is not named.
MIN_PERCENT_SHOWN = 5


@dataclass(frozen=True)
class UnusedCapacity(Figures):
    """Python containers with unused capacity, of which there are ``lists``, ``bytearrays``, ``dicts`` and ``sets``.

    ``pages``: the bytes of unused capacity in whole pages. ``resident``: the resident bytes of all unused capacity.
    ``type``: the type with the most unused capacity. ``address``: the container of this type with the most; ``most``:
    its unused bytes. ``shown``: (type, number) of the types that the text names."""

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
    """Return a list with a finding about the resident bytes of unused capacity.

    The bytes are counted only if there may be enough for a finding. The list is empty if the finding's bytes are
    unknown or too few.
    """
    names = [] if evidence.objects is None else _worthwhile(evidence, evidence.objects)
    if evidence.objects is None or not names:
        return []
    rows = [row for row in find_slack(evidence.heap.target, evidence.objects, names) if row.count]
    size = sum(row.small + row.pages for row in rows)
    if not evidence.worth(size):
        return []
    return [Finding("slack", size, _figures(rows, size))]


def _figures(rows: list[Slack], size: int) -> UnusedCapacity:
    most = max(rows, key=lambda row: row.small + row.pages)
    lists, arrays, dicts, sets = (_count(rows, name) for name in (*GROWING, *PER_SLOT))
    shown = [(row.type, row.count) for row in rows if 100 * (row.small + row.pages) >= MIN_PERCENT_SHOWN * size]
    pages = sum(row.pages for row in rows)
    return UnusedCapacity(lists, arrays, dicts, sets, pages, most.address, most.most, most.type, shown, size)


def _count(rows: list[Slack], name: str) -> int:
    return sum(row.count for row in rows if row.type == name)


def _worthwhile(evidence: Evidence, objects: Objects) -> list[str]:
    """Return the types that may have enough unused capacity for a finding."""
    buffers, in_pages = _buffers(evidence)
    # Lists and byte arrays never leave more than half of a buffer unused.
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
    """Return (size in bytes, number) of the large blocks in use: a list for malloc, and a list for all other
    allocators.
    """
    found: tuple[list[tuple[int, int]], list[tuple[int, int]]] = [], []
    for allocator in evidence.heap.allocators:
        found[not isinstance(allocator, MALLOC)].extend(
            row for row in allocator.used_sizes() if row[0] >= MIN_LARGE_BUFFER
        )
    return found


def _is_table(size: int, name: str) -> bool:
    """Return whether a block of ``size`` bytes can be the table of a dict or set.

    Such a table has a power of two as its number of slots, and only a few bytes besides."""
    return any(size - each * (1 << int(math.log2(size / each))) < MAX_TABLE_SURPLUS for each in PER_SLOT[name])


def _dense(evidence: Evidence, objects: Objects, table: Table) -> int:
    """Return how many bytes lie in large blocks that cannot be sparse tables, although their size is that of a table.

    Such a block is not a table, or its table is well filled. Return 0 if debug hooks change the sizes of blocks."""
    if objects.layout.hook:
        return 0
    space = evidence.heap.target.space
    blocks = [row for row in evidence.largest_blocks(MIN_LARGE_BUFFER, MAX_TABLES) if _is_table(row[1], table.name)]
    return sum(size for address, size in blocks if not looks_sparse(space, table, address, size))


def _sampled(evidence: Evidence, objects: Objects) -> int:
    """Return the unused capacity in small containers, in bytes, as estimated from a sample."""
    return sum(row.small for row in find_slack(evidence.heap.target, objects, GROWING, ESTIMATE_POOLS))
