"""A made-up kind of contents next to a real Python: every answer includes these contents."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.programs import RELEASE, c_program, release_program, running

from gdbheap import _native
from gdbheap.answers import at, block_kinds, chunks, owners, pyobjects, refs, retained, unreachable, why
from gdbheap.contents.content import Content, ContentHolder
from gdbheap.contents.registry import CONTENTS
from gdbheap.export.batches import values_of
from gdbheap.export.gathered import Gathered, gather
from gdbheap.export.heapsnapshot import write_graph
from gdbheap.first_page import ledger
from gdbheap.heap import Heap
from gdbheap.snapshots.snapshot import take
from gdbheap.targets.process import stopped

MARBLE = 0x5EED0FA11AB1E5
NAME, BAG, KIND = "marble of glass", "the bag of marbles", "bag"


class Marbles(Content):
    """Blocks that begin with a certain word, and the address of the first of them."""

    first: int = 0
    is_rooted = True

    @property
    def is_here(self) -> bool:
        """Return whether the address of the first marble is known."""
        return self.first != 0

    def named_blocks(
        self, heaps: _native.Heaps, progress: Callable[[int, int], object] | None
    ) -> Sequence[tuple[int, str]]:
        """Return all blocks that begin with the word."""
        return [(address, NAME) for address, _size, offset in _native.blocks_with(heaps, [MARBLE]) if offset == 0]

    def holders(self) -> Sequence[ContentHolder]:
        """Return the bag, from the first block on."""
        return [ContentHolder(BAG, KIND, [self.first])]

    def roots(self) -> Sequence[ContentHolder]:
        """Return the bag, because no reference in memory leads to it."""
        return self.holders() if self.is_rooted else []


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int, int, int]]:
    """Yield a Python process that keeps marbles: its id, their number, the bytes of each, and the address of the
    first."""
    count, size = random.randrange(500, 900), random.randrange(3200, 4800, 16) + 8
    with running(release_program(RELEASE, "keeps_marbles", count, size), tmp_path_factory.mktemp("marbles")) as target:
        yield target.pid, count, size, int(target.stderr, 16)


@pytest.fixture(scope="module")
def heap(made: tuple[int, int, int, int]) -> Iterator[Heap]:
    """Yield the heap of the process, with its marbles, for all answers that change nothing."""
    known = type("Known", (Marbles,), {"first": made[3]})
    with stopped(made[0]) as process:
        found = Heap(process, contents=(*CONTENTS, known))
        assert found.is_python and any(isinstance(each, Marbles) for each in found.contents)
        yield found


def fits(found: int, count: int, size: int) -> bool:
    """Return whether ``count`` blocks of ``size`` bytes can have ``found`` bytes: malloc may add a few to a block, if
    the rest would be smaller than a chunk."""
    return count * (size + 8) <= found <= count * (size + 8) + 16 * (count // 50)


def rows_of(found: Gathered, table: str) -> list[tuple[Any, ...]]:
    """Return the rows of a table."""
    batches = found.tables[table]()
    return [row for batch in batches for row in zip(*(values_of(cells, batch.count) for cells in batch.columns))]


def test_owners(heap: Heap, made: tuple[int, int, int, int]) -> None:
    """Check that the bag owns all marbles, and that the first page has the bag with its finding."""
    _pid, count, size, first = made
    (row,) = [row for row in owners.owners(heap, None, None).groups if row.root == BAG]
    assert (row.kind, row.count, row.what) == (KIND, count, NAME) and fits(row.bytes, count, size)
    node = heap.references.find(first)
    assert node is not None and owners.held(heap.paths, node).chain == f"data of {BAG}"
    page = ledger.ledger(heap, budget=math.inf)
    assert page.holders[0].path == BAG and page.holders[0].bytes == row.bytes


def test_blocks_by_kind(heap: Heap, made: tuple[int, int, int, int]) -> None:
    """Check that the blocks are counted and listed by their kind."""
    count, size = made[1:3]
    sums = {row.type: (row.count, row.bytes) for row in block_kinds.block_kinds(heap).rows}
    assert sums[NAME][0] == count and fits(sums[NAME][1], count, size)
    listed = chunks.chunks(heap, chunks.Selection(type="marble*"), top=3)
    assert (listed.count, {row.what for row in listed.rows}) == (count, {NAME})
    roots = {row.name: (row.count, row.bytes) for row in pyobjects.pyobjects(heap).roots}
    assert roots[BAG] == sums[NAME]


def test_one_of_them(heap: Heap, made: tuple[int, int, int, int]) -> None:
    """Check the kind of a block, its holder, and its references."""
    first = made[3]
    (after,) = [row for row in at.at(heap, first).refers if row.what == NAME]
    assert at.at(heap, first).owner == at.Owner(None, None, NAME)
    found = why.why(heap, after.address)
    assert [step.type for step in found.rows] == [NAME] * len(found.rows) and found.count == 2
    assert found.rows[0].edge == f"data of {BAG}"
    assert [row.type for row in refs.refs(heap, after.address, None).rows] == [NAME]
    assert at.at(heap, after.address, path=True).path == f"data of {BAG}, through a block of {made[2] + 8:,} bytes"


def test_retained(heap: Heap, made: tuple[int, int, int, int]) -> None:
    """Check that the bag retains all marbles."""
    _pid, count, size, _first = made
    rows = retained.retained(heap, retained.OBJECT, 50).rows
    (row,) = [row for row in rows if row.chain == f"data of {BAG}"]
    assert fits(row.retained, count, size)


def test_unreachable(heap: Heap, made: tuple[int, int, int, int]) -> None:
    """Check that no marble is lost, and that all marbles are lost, with their names, if the bag is not reported as a
    root.
    """
    count = made[1]
    assert not [row for row in unreachable.unreachable(heap).rows if row.content == NAME]
    lost = type("Lost", (Marbles,), {"first": made[3], "is_rooted": False})
    other = Heap(heap.target, contents=(*CONTENTS, lost))
    rows = [row for row in unreachable.unreachable(other).rows if row.content == NAME]
    assert sum(row.count for row in rows) >= 0.99 * count


def test_snapshot_and_export(heap: Heap, made: tuple[int, int, int, int], tmp_path: Path) -> None:
    """Check that a snapshot has the bag, and that tables and a graph have the names of its blocks."""
    count, size = made[1:3]
    kept = take(heap).snapshot
    assert kept.holders and kept.holders[0].path == BAG
    found = gather(heap, lambda finding: (None, None))
    (types,) = [row for row in rows_of(found, "types") if row[0] == NAME]
    assert types[1] == count and fits(types[2], count, size)
    assert [row[3] for row in rows_of(found, "blocks")].count(NAME) == count
    named = gather(heap, lambda finding: (None, None), (), True).graph
    assert named is not None
    with (tmp_path / "graph").open("w+") as stream:
        write_graph(stream, named)
        stream.seek(0)
        graph = json.load(stream)
    names = [graph["strings"][number] for number in graph["nodes"][1::7]]
    assert names.count(NAME) == count and BAG in names


def test_without_python(rng: random.Random, tmp_path: Path) -> None:
    """Check that the bag is a holder in a program in C too, and that marbles are lost without it."""
    count, size = rng.randrange(500, 900), rng.randrange(3200, 4800, 16) + 8
    with running(c_program("keeps_marbles", count, size), tmp_path) as target, stopped(target.pid) as process:
        first = int(target.stderr, 16)
        known = type("Known", (Marbles,), {"first": first})
        heap = Heap(process, contents=(*CONTENTS, known))
        lost = Heap(process, contents=(*CONTENTS, type("Lost", (Marbles,), {"first": first, "is_rooted": False})))
        (row,) = [row for row in owners.owners(heap, None, None).groups if row.root == BAG]
        assert (row.kind, row.count, row.what) == (KIND, count, NAME) and fits(row.bytes, count, size)
        assert ledger.ledger(heap, budget=math.inf).holders[0].path == BAG
        found = why.why(heap, first)
        assert (found.type, [step.edge for step in found.rows]) == (NAME, [BAG])
        assert not [row for row in unreachable.unreachable(heap).rows if row.type == NAME]
        assert sum(row.count for row in unreachable.unreachable(lost).rows if row.type == NAME) >= count - 1
        rows = rows_of(gather(heap, lambda finding: (None, None), ["blocks"]), "blocks")
    assert [row[3] for row in rows].count(NAME) == count
