"""A snapshot: the answers about a process or a core at one moment, without the contents of its memory.

It stores answers unchanged, so comparing two snapshots compares the answers of the commands.
"""

from __future__ import annotations

import math
import time
from contextlib import suppress
from dataclasses import field, replace
from typing import Any

from gdbheap import __version__, _native
from gdbheap.answers.arenas import Arenas, arenas
from gdbheap.answers.holders import holders
from gdbheap.answers.holes import Holes, holes
from gdbheap.answers.mappings import ListedMapping, mappings
from gdbheap.answers.pyobjects import PyObjects, pyobjects
from gdbheap.answers.retained import OBJECT, retained
from gdbheap.answers.retained_rows import RetainedRow
from gdbheap.dataclass import dataclass
from gdbheap.documents import MAX_TEXT
from gdbheap.errors import GdbheapError, Unsupported, or_none
from gdbheap.findings.holder.rule import MainHolder
from gdbheap.findings.stored import of_file
from gdbheap.first_page.ledger import Ledger, ledger_and_holders
from gdbheap.first_page.main_holders import BLOCKS_A_SECOND, MainHolders
from gdbheap.heap import Heap
from gdbheap.host.headroom import group_limit
from gdbheap.remarks import Remark
from gdbheap.snapshots.blocks import BlockTable, list_blocks
from gdbheap.text import quoted

__all__ = [
    "SizeCount", "Snapshot", "SnapshotWithBlocks", "ThreadName", "WrittenSnapshot", "as_written", "budget_of", "take",
    "time_of",
]  # fmt: skip

MIN_HOLE_BYTES, MAX_HOLES = 64 << 10, 1000
MAX_OWNERS = MAX_HOLDERS = 200
# Paths need the graph of references. With more blocks than this, building it takes longer than everything else.
MAX_GRAPH_BLOCKS = 2_000_000


@dataclass(frozen=True)
class SizeCount:
    """The number of blocks of one size that an allocator has handed out.

    ``size``: the bytes of one block, as the allocator counts them. ``count``: the number of blocks.
    """

    allocator: str
    size: int
    count: int


@dataclass(frozen=True)
class ThreadName:
    """A thread: its id in the kernel, and its name ("" if unknown)."""

    tid: int
    name: str


@dataclass(frozen=True)
class Snapshot:
    """The answers about a process or a core at one moment. An answer is None or empty if it does not apply to the
    target.

    ``time``: seconds since 1970; for a core, when its file was last written.
    ``target``: the facts that identify the process.
    ``limit``: the bytes that the control group allows the process, None if there is no limit or it is unknown.
    ``holes``: the largest ones, with the blocks around them.
    ``owners``: the objects that retain the most, with their paths; None if the graph was not built.
    ``holders``: the largest MAX_HOLDERS holders of memory in use; None if they were not searched for, and in older
    files.
    ``mappings``: None in older files.
    """

    time: float
    version: str
    target: dict[str, Any]
    ledger: Ledger
    limit: int | None = None
    partial: bool = False
    warnings: list[str | Remark] = field(default_factory=list)
    damaged: int = 0
    arenas: Arenas | None = None
    holes: Holes | None = None
    sizes: list[SizeCount] = field(default_factory=list)
    objects: PyObjects | None = None
    owners: list[RetainedRow] | None = None
    threads: list[ThreadName] = field(default_factory=list)
    mappings: list[ListedMapping] | None = None
    blocks: BlockTable | None = None
    holders: list[MainHolder] | None = None


@dataclass(frozen=True)
class SnapshotWithBlocks:
    """A snapshot, and its blocks if they were listed. The blocks are not in the record because they are too many.

    ``is_kept``: whether the snapshot was read from a file.
    """

    snapshot: Snapshot
    columns: _native.BlockColumns | None = None
    is_kept: bool = False


@dataclass(frozen=True)
class WrittenSnapshot:
    """The answer of ``heap snapshot``: the file that was written, and how many rows of each kind it has."""

    file: str
    size: int
    time: float
    line_count: int
    type_count: int
    hole_count: int
    owner_count: int | None
    block_count: int | None = None


def as_written(read: Snapshot) -> Snapshot:
    """Return a snapshot that was read from a file, made safe to use.

    Lists that are compared row by row are cut to the number of rows that gdbheap writes. Commands are removed, because
    they may have been put into the file to make a user paste them. A warning that is a text is quoted, and the values
    of other warnings are made harmless.
    """
    holes = None if read.holes is None else replace(read.holes, rows=read.holes.rows[:MAX_HOLES])
    owners = None if read.owners is None else read.owners[:MAX_OWNERS]
    holders = None if read.holders is None else read.holders[:MAX_HOLDERS]
    ledger = replace(read.ledger, findings=of_file(read.ledger.findings), next=[])
    warnings = [quoted(told, MAX_TEXT) if isinstance(told, str) else told.harmless for told in read.warnings]
    return replace(read, ledger=ledger, holes=holes, owners=owners, holders=holders, warnings=warnings)


def budget_of(with_owners: bool | None) -> float:
    """Return the seconds of CPU time that may be spent on finding holders.

    ``with_owners``: True: no limit. False: 0. None: a short time.
    """
    if with_owners is None:
        return MAX_GRAPH_BLOCKS / BLOCKS_A_SECOND
    return math.inf if with_owners else 0


def take(
    heap: Heap, with_owners: bool | None = None, with_blocks: bool = False, held: MainHolders | None = None
) -> SnapshotWithBlocks:
    """Take a snapshot of everything that can be compared later.

    ``with_owners``: whether to build the graph of references; None: only if that is quick. ``with_blocks``: also list
    each block. ``held``: the holders, if they were found before.
    """
    objects = or_none(lambda: pyobjects(heap, most=0), Unsupported)
    blocks, columns = list_blocks(heap) if with_blocks and heap.target.refusal is None else (None, None)
    owners = _owners(heap, with_owners) if objects is not None else None
    if blocks is not None and columns is not None and owners is not None:
        named = holders(heap, owners)
        blocks = replace(blocks, holders=[holder for holder, _node in named])
        columns = columns.held(heap.references.graph, [node for _holder, node in named])
    target = heap.target
    books, found = ledger_and_holders(heap, True, False, budget_of(with_owners) if held is None else 0)
    if held is None:
        held = found
    else:
        books = replace(books, holders=held.rows, not_looked=held.not_looked, not_examined=held.not_examined)
    snapshot = Snapshot(
        time=time_of(heap),
        version=__version__,
        target={**target.describe(), **heap.versions},
        ledger=books,
        limit=group_limit(target.proc) if target.proc else None,
        arenas=or_none(lambda: arenas(heap), Unsupported),
        holes=or_none(lambda: holes(heap, MIN_HOLE_BYTES, MAX_HOLES), Unsupported),
        sizes=_sizes(heap),
        objects=objects,
        owners=owners,
        threads=[ThreadName(thread.tid, thread.name) for thread in target.threads],
        mappings=mappings(target),
        blocks=blocks,
        holders=_to_compare(held),
        # The next fields are read last, because the answers above add to them.
        partial=heap.partial,
        warnings=list(heap.warnings),
        damaged=len(heap.damage),
    )
    return SnapshotWithBlocks(snapshot, columns)


def time_of(heap: Heap) -> float:
    """Return when a target was read, in seconds since 1970; for a core, when its file was last written."""
    return time.time() if heap.target.modified is None else heap.target.modified


def _to_compare(held: MainHolders) -> list[MainHolder] | None:
    """Return the largest holders, for comparisons.

    Return None if they were not searched for, or if not all references were read. In the second case each snapshot
    would find other holders.
    """
    if held.every is None or held.not_examined or any(row.at_least for row in held.every):
        return None
    return sorted(held.every, key=lambda row: -row.bytes)[:MAX_HOLDERS]


def _sizes(heap: Heap) -> list[SizeCount]:
    if heap.target.refusal is not None:
        return []
    sums: dict[tuple[str, int], int] = {}
    for allocator in heap.allocators:
        for size, count in allocator.used_sizes():
            sums[allocator.name, size] = sums.get((allocator.name, size), 0) + count
    return [SizeCount(name, size, count) for (name, size), count in sorted(sums.items()) if count]


def _owners(heap: Heap, wanted: bool | None) -> list[RetainedRow] | None:
    blocks = sum(store.used.count for store in heap.python.census.stores)
    if wanted is False or (wanted is None and blocks > MAX_GRAPH_BLOCKS):
        return None
    with suppress(GdbheapError):
        # An incomplete graph proves other facts in each snapshot, so two snapshots could not be compared.
        return None if heap.python.references.graph.is_cut else retained(heap, OBJECT, MAX_OWNERS).rows
    return None
