"""A made-up allocator with two blocks: every answer has its figures."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pytest
from images.heap import Image
from images.layouts import GLIBCS

from gdbheap import _native
from gdbheap.allocators.allocator import (
    Allocator,
    Block,
    HoleRow,
    KeepReason,
    LedgerLine,
    Member,
    Piece,
    PinRow,
    PinSums,
    State,
    WalkedBlocks,
    WalkedCounts,
)
from gdbheap.allocators.line_ids import UNEXPLAINED, PartId
from gdbheap.allocators.registry import KINDS
from gdbheap.answers import at, heap_map, holes, pins
from gdbheap.answers.accounting.describing import describe_blocks
from gdbheap.answers.accounting.partition import OTHERS
from gdbheap.answers.check import check
from gdbheap.first_page import ledger
from gdbheap.heap import Heap
from gdbheap.report.text.style import Style
from gdbheap.report.words import check as check_report
from gdbheap.report.words import heap_map as map_report
from gdbheap.report.words import holes as holes_report
from gdbheap.report.words import ledger as ledger_report
from gdbheap.report.words import pins as pins_report
from gdbheap.targets.core import Core
from gdbheap.targets.ranges import Ranges
from gdbheap.targets.target import Damage

ROOT = Path(__file__).resolve().parent.parent
START, SIZE, BLOCK = 0x6A0000000000, 0x40000, 0x1000
PRESENT = 1
FIRST, LAST = (START + 64, BLOCK), (START + SIZE - BLOCK, BLOCK)


class TwoBlocks(Allocator):
    """A header of 64 bytes, a block in use, a hole, and a block in use that is the allocator's own."""

    name, title = "twin", "the twin allocator"
    lines = (
        LedgerLine("twin.used", "twin", "twins", State.USED),
        LedgerLine("twin.free", "twin", "what lies between twins", State.FREE),
        LedgerLine("twin.overhead", "twin", "the cradle", State.OVERHEAD),
    )
    why_holes_stay = "Twins give back nothing."
    groups = ("pair is", "pairs are")
    emptied = "would be orphaned"

    @property
    def damage(self) -> list[Damage]:
        """Return one damaged place."""
        return self._damage

    _damage: list[Damage] = []

    def ranges(self) -> Ranges:
        """Return the allocator's whole mapping."""
        return [(START, START + SIZE)]

    def pieces(self) -> Iterable[Piece]:
        """Return the header, and the rest with its blocks."""
        return [Piece(START, FIRST[0], "twin.overhead"), Piece(FIRST[0], START + SIZE, None)]

    def sweep(self, sweep: _native.Sweep, start: int, number: Callable[[str], int]) -> int:
        """Add both blocks and the hole."""
        sweep.add(start, sum(FIRST), number("twin.used"))
        sweep.add(sum(FIRST), LAST[0], number("twin.free"))
        sweep.add(LAST[0], START + SIZE, number("twin.used"))
        return START + SIZE

    def find(self, address: int) -> Block | None:
        """Return the block, used or free."""
        for start, size in (FIRST, LAST):
            if start <= address < start + size:
                return Block(start, size, "used", self.name, None, None, start + size)
        if sum(FIRST) <= address < LAST[0]:
            return Block(sum(FIRST), LAST[0] - sum(FIRST), "free", self.name, None, "the only list", LAST[0])
        return None

    def own_part(self, address: int) -> str | None:
        """Return the header."""
        return "cradle of twins" if START <= address < FIRST[0] else None

    def structures(self) -> dict[int, str]:
        """Return the last block."""
        return {LAST[0]: "the twins' own table"}

    def used_sizes(self) -> list[tuple[int, int]]:
        """Return two blocks of one size."""
        return [(BLOCK, 2)]

    def give(self, blocks: WalkedBlocks) -> None:
        """Do nothing: no object is here."""

    def holes(self, minimum: int) -> Iterator[HoleRow]:
        """Yield the hole between the blocks."""
        if LAST[0] - sum(FIRST) >= minimum:
            start, end = sum(FIRST), LAST[0]
            before, after = (SimpleNamespace(address=at, size=size, state="used") for at, size in (FIRST, LAST))
            yield SimpleNamespace(start=start, end=end, address=start, arena=None, before=before, after=after)

    def pins(self, kept: Ranges, minimum: int, most: int) -> PinSums:
        """Return both blocks, which together keep the whole mapping."""
        sums = {"blocks": 2, "bytes": 2 * BLOCK, "freed": SIZE}
        row = SimpleNamespace(start=START, end=START + SIZE, **sums)
        return SimpleNamespace(rows=[row] if SIZE >= minimum else [], totals=SimpleNamespace(groups=1, **sums))

    def members(self, row: PinRow) -> list[Member]:
        """Return both blocks."""
        return [SimpleNamespace(address=at, size=size, used=True) for at, size in (FIRST, LAST)]

    def returnable(self) -> int | None:
        """Return that nothing can be given back."""
        return 0

    def kept(self, free: int, whole: int) -> list[KeepReason]:
        """Return a reason why all free bytes stay."""
        return [KeepReason("twin.cradle", free, "in the cradle")]

    def check(self) -> WalkedCounts:
        """Return one damaged place, and one that a thread is changing."""
        self._damage = [Damage(START, "rattle", "1", "2", transient=True)]
        return WalkedCounts({"chunks": 2})


@pytest.fixture
def heap(rng: random.Random, tmp_path: Path) -> Heap:
    """Return a core with glibc's malloc and the allocator's mapping, all of it resident."""
    image = Image(rng.choice(GLIBCS), rng, "sbrk")
    image.memory.map(START, SIZE)
    core = Core(str(image.save(tmp_path / "core")))
    core.pages = _native.Pages.from_runs(core.machine, [(start, end, PRESENT) for start, end in core.mappings.ranges()])
    return Heap(core, kinds=(*KINDS, TwoBlocks))


def test_ledger(heap: Heap) -> None:
    """Check that the allocator's lines add up to its mapping, that its blocks are in use, and that its hole is free
    and stays."""
    answer = ledger.ledger(heap)
    lines = {line.id: line for line in answer.ledger}
    free = LAST[0] - sum(FIRST)
    sizes = {"twin": SIZE, "twin.used": 2 * BLOCK, "twin.free": free, "twin.overhead": 64}
    assert {name: lines[name].virtual for name in sizes} == sizes
    assert {name: lines[name].resident for name in sizes} == sizes
    assert lines["twin.free"].whole == free // 4096 * 4096 and lines["twin.free"].state == "free"
    assert not [line for line in answer.ledger if line.parent is None and line.id == "unexplained" and line.virtual]
    summary = answer.summary
    assert summary is not None and "twin" in summary.allocators
    assert [row.bytes for row in summary.kept if row.id == "twin.cradle"] == [free]
    text = ledger_report.render(answer, Style())
    assert "the twin allocator" in text and "in the cradle" in text and "  what lies between twins" in text


def test_map(heap: Heap) -> None:
    """Check that the map of the heap shows the parts of the made-up allocator."""
    answer = heap_map.heap_map(heap, cell=4096)
    (group,) = [group for group in answer.rows if group.kind == "twin"]
    assert (group.name, group.start, group.end) == ("the twin allocator", START, START + SIZE)
    looks = [map_report.look_of(cell) for cell in group.cells]
    assert (looks[0], set(looks[2:-1]), looks[-1]) == ("used", {"free"}, "used")
    assert "the twin allocator: " in map_report.render(answer, Style(), 0)


def test_holes_and_pins(heap: Heap) -> None:
    """Check that the hole has its neighbours and a reason, and the pin its blocks."""
    answer = holes.holes(heap, 1)
    (hole,) = [hole for hole in answer.rows if hole.allocator == "twin"]
    assert (hole.address, hole.size) == (sum(FIRST), LAST[0] - sum(FIRST))
    assert hole.after is not None and hole.after.what == "the twins' own table"
    assert "Twins give back nothing." in holes_report.render(answer, Style(), 1)
    found = pins.pins(heap, allocator="twin")
    (pin,) = found.rows
    assert (pin.would_free, pin.blocks, [member.address for member in pin.members]) == (SIZE, 2, [FIRST[0], LAST[0]])
    text = pins_report.render(found, Style())
    assert "twin: 1 pair is kept by 2 blocks" in text and "would be orphaned" in text


def test_at_any_address(heap: Heap) -> None:
    """Check the block, used or free, and addresses outside of blocks; none of it is other memory."""
    for address, state in ((FIRST[0] + 5, "used"), (sum(FIRST), "free"), (LAST[0], "used")):
        answer = at.at(heap, address)
        assert answer.block is not None and (answer.block.state, answer.block.allocator) == (state, "twin")
        assert answer.mapping.whose == "twin"
    assert at.at(heap, START).mapping.whose == "cradle of twins"
    assert str(describe_blocks(heap, [LAST])[LAST[0]]) == "the twins' own table"


def test_check(heap: Heap) -> None:
    """Check that the allocator's checks are counted and its damage is reported; a change that a thread is making is
    no damage."""
    chunks = check(Heap(heap.target)).chunks
    answer = check(heap)
    assert answer.chunks == chunks + 2 and answer.ok
    (place,) = heap.damage
    assert check_report.named(place).what == "caught inside malloc: rattle"


def test_what_is_no_other_memory(heap: Heap) -> None:
    """Check that the allocator's mapping is not other memory: neither unowned, nor searched for mmapped chunks."""
    assert all(not start <= START < end for start, end in heap.unowned_ranges() + heap.unwalked_ranges())
    assert (START, START + SIZE) in heap.taken()


class Misspelt(TwoBlocks):
    """An allocator whose blocks count for a line that it does not have."""

    def sweep(self, sweep: _native.Sweep, start: int, number: Callable[[str], int]) -> int:
        """Add the first block."""
        sweep.add(start, START + SIZE, number("twin.usd"))
        return START + SIZE


def test_a_line_that_nobody_has(heap: Heap) -> None:
    """Check that bytes of a line that is not declared are an error, instead of silently unexplained."""
    with pytest.raises(KeyError, match=r"twin\.usd"):
        ledger.ledger(Heap(heap.target, kinds=(*KINDS, Misspelt)))


def test_parts_and_lines() -> None:
    """Check that the parts with lines of allocators are those of the native part, and that the lines are declared."""
    text = (ROOT / "native/core/src/allocators/part.rs").read_text(encoding="utf-8")
    listed = re.findall(r'"([a-z ]+)"', text[text.index("pub const PARTS") :].partition("];")[0])
    assert list(get_args(PartId)) == listed
    for kind in KINDS:
        parts = getattr(kind, "parts", {})
        lines = {line.id for line in kind.lines} | set(OTHERS) | {UNEXPLAINED}
        assert set(parts) <= set(listed) and set(parts.values()) <= lines, kind.name
        assert {line.parent for line in kind.lines} <= lines | {kind.name}, kind.name
