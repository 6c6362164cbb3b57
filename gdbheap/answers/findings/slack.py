"""Lists and byte arrays that have room for much more than they hold, and dicts and sets whose tables have."""

from __future__ import annotations

import math

from gdbheap.allocators.finding import MALLOC
from gdbheap.answers.findings.finding import Evidence, Finding
from gdbheap.python.census import Objects
from gdbheap.python.slack import Slack, find_slack
from gdbheap.python.tables import LOOSE, Table, looks_sparse, tables_of
from gdbheap.words import counted, size_text

# Two pages; the pools of each size that are sampled; and by what factor the sample may be too low.
LARGE, SAMPLED, CAUTION = 8192, 64, 2
GROWING = ("list", "bytearray")
# Bytes of a slot and what belongs to it: two or four of its index and two thirds of an entry of 16 or 24; in Python 2.7
# an entry of 24. Sets have entries of 16.
PER_SLOT = {"dict": (38 / 3, 44 / 3, 18, 20, 24), "set": (16,)}
# The largest tables that are looked at; the others may be nearly empty.
LARGEST = 256
# What has less of it is not told of.
LEAST_SHARE = 20


def find(evidence: Evidence) -> list[Finding]:
    """What they have allocated beyond it, and is resident: counted where it may be worth it."""
    names = [] if evidence.objects is None else _worthwhile(evidence, evidence.objects)
    if evidence.objects is None or not names:
        return []
    rows = [row for row in find_slack(evidence.heap.target, evidence.objects, names) if row.count]
    size = sum(row.small + row.pages for row in rows)
    if not evidence.worth(size):
        return []
    most = max(rows, key=lambda row: row.small + row.pages)
    last = f"the most, {size_text(most.most)}, in the {most.type} at {most.address:#x}"
    figures = {f"{name}s": sum(row.count for row in rows if row.type == name) for name in (*GROWING, *PER_SLOT)}
    figures |= {"pages": sum(row.pages for row in rows), "address": most.address, "most": most.most}
    told = [row for row in rows if (row.small + row.pages) * LEAST_SHARE >= size]
    advice = "; ".join(words for names, words in ADVICE if any(row.type in names for row in told))
    return [Finding("slack", size, f"{_text(told, size)}; {last}", f"{advice}; {WHO}", figures)]


ADVICE = (
    (
        GROWING,
        "replace what grows no more by its copy x[:], which has no room beyond, or by tuple(x) or bytes(x); make what "
        "is filled once in one step",
    ),
    (("dict",), "replace a dict that was emptied by dict(x), not by x.copy(), which may keep the table"),
    (("set",), "replace a set that was emptied by set(x)"),
)
WHY = (
    (GROWING, "lists and byte arrays keep what they made as they grew until they shrink below half"),
    (tuple(PER_SLOT), "dicts and sets keep their tables however few entries are left"),
)
WHO = "'heap why ADDRESS' says who holds it"


def _text(rows: list[Slack], size: int) -> str:
    what = " and ".join(counted(row.count, row.type) for row in rows)
    why = " and ".join(words for names, words in WHY if any(row.type in names for row in rows))
    return f"{what} with room beyond what they hold, {size_text(size)} of it resident: {why}"


def _worthwhile(evidence: Evidence, objects: Objects) -> list[str]:
    """Those types of which there may be enough."""
    buffers, in_pages = _buffers(evidence)
    # They have never more than half of a buffer to spare.
    large = sum(size * count for size, count in [*buffers, *in_pages])
    is_growing = evidence.worth(large // 2) or evidence.worth(CAUTION * _sampled(evidence, objects))
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
        found[not isinstance(allocator, MALLOC)].extend(row for row in allocator.used_sizes() if row[0] >= LARGE)
    return found


def _is_table(size: int, name: str) -> bool:
    """Whether a table of a power of two of slots has this size."""
    return any(size - each * (1 << int(math.log2(size / each))) < LOOSE for each in PER_SLOT[name])


def _dense(evidence: Evidence, objects: Objects, table: Table) -> int:
    """Bytes of the largest blocks that have a table's size and are none, or one that is in use."""
    if objects.layout.hook:
        return 0
    space = evidence.heap.target.space
    blocks = [row for row in evidence.largest_blocks(LARGE, LARGEST) if _is_table(row[1], table.name)]
    return sum(size for address, size in blocks if not looks_sparse(space, table, address, size))


def _sampled(evidence: Evidence, objects: Objects) -> int:
    """What a sample says of room in smaller ones."""
    return sum(row.small for row in find_slack(evidence.heap.target, objects, GROWING, SAMPLED))
