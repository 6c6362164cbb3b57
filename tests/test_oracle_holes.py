"""``heap holes`` for a program with a known set of holes: exactly those, with size, neighbours and residency."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from reference.glibc import HEAP_MAX
from support import kernel
from support.programs import FORMS, GCORE, PROCESS, ask, c_program, python_program, running

pytestmark = pytest.mark.cases(4)

MAIN, THREAD, ENDED = PLACES = (0, 1, 2)
NOTHING, TRIM, ADVISE = 0, 1, 2
# glibc, sysmalloc(): the end of a full heap, two fence posts of 16 bytes.
FENCE = 32


@dataclass(frozen=True)
class Block:
    """A block of the program: its chunk's header and size, and whether it is held."""

    chunk: int
    size: int
    held: bool

    @property
    def heap(self) -> int:
        """Return the thread's heap that contains it."""
        return self.chunk & -HEAP_MAX


@dataclass(frozen=True)
class Hole:
    """Adjacent blocks that are not held; ``before`` and ``after`` are the touching neighbours, None at an end of the
    heap."""

    address: int
    size: int
    before: Block | None
    after: Block | None


def blocks(path: Path) -> list[Block]:
    """Return the program's table, by address; a remainder at the end of an earlier heap was used later."""
    records = struct.iter_unpack("<3Q", path.read_bytes())
    found = [Block(pointer - 16, usable + 8, bool(held)) for pointer, usable, held in records]
    return sorted(found, key=lambda block: block.chunk)


def with_remainders(found: list[Block], pid: int) -> list[Block]:
    """Add the remainders at the ends of full thread heaps: from the last block to the fence, free.

    An empty heap is gone, except the first; the last one may be all top chunk.
    """
    held = {block.heap for block in found if block.held}
    there = {heap for heap in {block.heap for block in found} if heap in held or is_there(pid, heap)}
    top = top_of_thread(pid, min(there))
    tops = range(top, (top & -HEAP_MAX) + HEAP_MAX)
    found = [block for block in found if block.heap in there and block.chunk not in tops]
    complete = []
    for block, after in zip(found, [*found[1:], None]):
        complete.append(block)
        if after is not None and block.heap == after.heap:
            assert touches(block, after), "the program's blocks leave a gap"
        elif block.heap != top & -HEAP_MAX:
            left = block.heap + kernel.read_u64(pid, block.heap + 16) - FENCE - block.chunk - block.size
            complete += [Block(block.chunk + block.size, left, False)] if left >= FENCE else []
    return complete


def is_there(pid: int, address: int) -> bool:
    """Return whether there is memory at an address."""
    try:
        kernel.read_u64(pid, address)
    except OSError:
        return False
    return True


def top_of_thread(pid: int, heap: int) -> int:
    """Return the top chunk of a thread's arena: heap_info begins with the arena, whose top is at 96 (glibc 2.36)."""
    return kernel.read_u64(pid, kernel.read_u64(pid, heap) + 96)


def holes_of(found: list[Block]) -> list[Hole]:
    """Return the maximal runs of touching blocks that are not held."""
    runs: list[list[Block]] = []
    for block in found:
        if runs and touches(runs[-1][-1], block) and not block.held and not runs[-1][-1].held:
            runs[-1].append(block)
        else:
            runs.append([block])
    neighbours = zip([None, *runs[:-1]], runs, [*runs[1:], None])
    return [as_hole(before, run, after) for before, run, after in neighbours if not run[0].held]


def touches(block: Block, after: Block) -> bool:
    """Return whether two blocks are adjacent."""
    return block.chunk + block.size == after.chunk


def as_hole(before: list[Block] | None, run: list[Block], after: list[Block] | None) -> Hole:
    """Return a run as a hole; a neighbour counts only when it touches."""
    first, last = run[0], run[-1]
    return Hole(
        first.chunk + 16,
        last.chunk + last.size - first.chunk,
        before[-1] if before and touches(before[-1], first) else None,
        after[0] if after and touches(last, after[0]) else None,
    )


def expected(path: Path, place: int, pid: int) -> list[Hole]:
    """Return the holes that the program left, largest first."""
    found = blocks(path)
    if place == ENDED:
        found.pop()  # the tcache of the last block was emptied: the block is part of the top chunk
    complete = found if place == MAIN else with_remainders(found, pid)
    return sorted(holes_of(complete), key=lambda hole: -hole.size)


def program(
    rng: random.Random, directory: Path, place: int, release: int, gaps: int = 120, largest: int = 300_000
) -> Any:
    """Start holes.c; its table is ``directory``/table."""
    arguments = (rng.getrandbits(30), gaps, largest, place, release, directory / "table")
    return running(c_program("holes", *arguments), directory)


def check(answer: dict[str, Any], truth: list[Hole], minimum: int) -> None:
    """Compare addresses, sizes, order, neighbours and sums."""
    truth = [hole for hole in truth if hole.size >= minimum]
    rows = answer["rows"]
    assert {row["address"]: row["size"] for row in rows} == {hole.address: hole.size for hole in truth}
    assert [row["size"] for row in rows] == [hole.size for hole in truth], "largest first"
    assert (answer["count"], answer["total"]["bytes"]) == (len(truth), sum(hole.size for hole in truth))
    by_address = {hole.address: hole for hole in truth}
    for row in rows:
        check_neighbours(row, by_address[row["address"]])


def check_neighbours(row: dict[str, Any], hole: Hole) -> None:
    """Compare a held neighbour's address and size; at an end of the heap is nothing, the top chunk or a fence."""
    for key, block in (("before", hole.before), ("after", hole.after)):
        named = row[key]
        if block is not None and block.held:
            assert (named["address"], named["size"]) == (block.chunk + 16, block.size), (key, row)
        else:
            assert named is None or named["what"] in ("top", "fencepost"), (key, row)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("minimum", [64 * 1024])
def test_exactly_the_holes(place: int, form: str, minimum: int, rng: random.Random, tmp_path: Path) -> None:
    """Check all holes of at least --min and no others, in the main arena, a thread's, and one whose thread has
    ended."""
    with program(rng, tmp_path, place, NOTHING) as target:
        truth = expected(tmp_path / "table", place, target.pid)
        answer = ask("holes", target.as_form(form), f"--min={minimum}")
    check(answer, truth, minimum)
    assert {row["arena"] for row in answer["rows"]} == {0 if place == MAIN else 1}
    assert {row["allocator"] for row in answer["rows"]} == {"glibc"}


@pytest.mark.parametrize("place", PLACES)
def test_every_hole_down_to_the_smallest(place: int, rng: random.Random, tmp_path: Path) -> None:
    """Check that freed blocks in tcaches and fast bins are holes or parts of holes."""
    with program(rng, tmp_path, place, NOTHING, largest=5000) as target:
        truth = expected(tmp_path / "table", place, target.pid)
        answer = ask("holes", str(target.pid), "--min=16")
    check(answer, truth, 16)
    assert min(hole.size for hole in truth) < 2048


def test_arena_of_several_heaps(rng: random.Random, tmp_path: Path) -> None:
    """Check a thread's arena beyond 64 MiB: each full heap ends in the remainder of its last chunk."""
    with program(rng, tmp_path, THREAD, NOTHING, gaps=120, largest=1_000_000) as target:
        truth = expected(tmp_path / "table", THREAD, target.pid)
        assert len({hole.address // HEAP_MAX for hole in truth}) > 1
        check(ask("holes", str(target.pid), "--min=4K"), truth, 4096)


def test_top_cuts_the_list_and_not_the_sums(rng: random.Random, tmp_path: Path) -> None:
    """Check that --top=3 shows the three largest holes, and that count, bytes and resident bytes are of all that
    match."""
    with program(rng, tmp_path, MAIN, NOTHING) as target:
        whole = ask("holes", str(target.pid), "--min=100K")
        cut = ask("holes", str(target.pid), "--min=100K", "--top=3")
        truth = expected(tmp_path / "table", MAIN, target.pid)
    check(whole, truth, 100 * 1024)
    assert cut["rows"] == whole["rows"][:3]
    assert {**cut, "rows": [], "more": 0} == {**whole, "rows": []} and cut["more"] == whole["count"] - 3


def test_sizes_take_units(rng: random.Random, tmp_path: Path) -> None:
    """Check that --min=1M and --min=1048576 are the same question."""
    with program(rng, tmp_path, MAIN, NOTHING, gaps=40, largest=900_000) as target:
        word, number = (ask("holes", str(target.pid), f"--min={size}") for size in ("1M", "1048576"))
        truth = expected(tmp_path / "table", MAIN, target.pid)
    check(word, truth, 1 << 20)
    assert number["rows"] == word["rows"]


@pytest.mark.parametrize("release", [NOTHING, TRIM, ADVISE])
@pytest.mark.parametrize("place", [MAIN, THREAD])
def test_resident_bytes(place: int, release: int, rng: random.Random, tmp_path: Path) -> None:
    """Check the resident pages inside a hole by the kernel's pagemap, also if its middle was given back."""
    with program(rng, tmp_path, place, release) as target:
        truth = expected(tmp_path / "table", place, target.pid)
        answer = ask("holes", str(target.pid), "--min=64K")
        check(answer, truth, 64 * 1024)
        ours = {row["address"]: row["resident"] for row in answer["rows"]}
        sizes = {row["address"]: row["size"] for row in answer["rows"]}
        theirs = {address: kernel.resident_inside(target.pid, address - 16, size) for address, size in sizes.items()}
    assert ours == theirs
    assert answer["total"]["resident"] == sum(theirs.values())
    assert (sum(theirs.values()) < sum(sizes.values()) - 8192 * len(sizes)) == (release != NOTHING)


@pytest.mark.parametrize("release", [TRIM, ADVISE])
def test_resident_bytes_of_a_core(release: int, rng: random.Random, tmp_path: Path) -> None:
    """Check that the residency of a kernel core comes from its holes; in gdb's core it is unknown."""
    with program(rng, tmp_path, MAIN, release) as target:
        live = ask("holes", str(target.pid), "--min=64K")
        from_gdb = ask("holes", target.as_form(GCORE), "--min=64K")
        from_kernel = ask("holes", str(target.kernel_core()), "--min=64K")
    assert from_kernel["rows"] == live["rows"]
    assert from_kernel["total"]["resident"] == live["total"]["resident"]
    assert [{**row, "resident": None} for row in live["rows"]] == from_gdb["rows"]
    assert from_gdb["total"]["resident"] is None


def test_holes_of_a_fragmented_python(rng: random.Random, tmp_path: Path) -> None:
    """Check a process without its own table: holes are disjoint, aligned, and contain no live object."""
    with running(python_program("stripped", "fragmented", rng.getrandbits(32), 300), tmp_path) as target:
        answer = ask("holes", target.as_form(PROCESS), "--min=64K")
        mappings = kernel.maps(target.pid)
    rows = sorted(answer["rows"], key=lambda row: int(row["address"]))
    assert rows and all(row["size"] % 16 == 0 and row["address"] % 16 == 0 for row in rows)
    assert all(one["address"] + one["size"] <= two["address"] for one, two in zip(rows, rows[1:]))
    assert all(any(m.start <= row["address"] < m.end for m in mappings) for row in rows)
