"""musl's malloc before 1.2.1: every chunk against the program's own table, ``malloc_usable_size``, and the bins.

Needs a musl that ``scripts/musls.sh`` has built.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support import kernel
from support.ledger_lines import check_families, line_of, roots, virtual_size
from support.library import heap_of
from support.oldmalloc import program
from support.programs import KERNEL_CORE, ask, running
from support.tables import held

from gdbheap.allocators.oldmalloc.allocator import OldmallocAllocator
from gdbheap.heap import Heap

NAME = "oldmalloc"
MESSAGES = (b"Symbol not found: ", b"Dynamic loading not supported")
every_link = pytest.mark.parametrize("flags", [(), ("-static", "-s")], ids=["dynamic", "static"])


def check_blocks(heap: Heap, rows: list[tuple[int, int, int]]) -> set[int]:
    """Check that every pointer is that of a block in use that ends at its usable size; return the other blocks in
    use, without the message of dlerror()."""
    found = heap.allocator(OldmallocAllocator)
    for pointer, usable, requested in rows:
        block = found.find(pointer)
        assert block is not None and (block.address, block.state) == (pointer, "used"), (hex(pointer), usable, block)
        assert block.end - pointer == usable >= requested, (hex(pointer), usable, block)
    blocks = {address for address, _size in found.first_used(0, 1 << 62, 1 << 62)}
    assert len(blocks) == sum(count for _size, count in found.used_sizes())
    beyond = blocks - {pointer for pointer, *_ in rows}
    read = heap.target.space.read_available
    return {address for address in beyond if not read(address, 100).startswith(MESSAGES)}


@every_link
@pytest.mark.parametrize("threads", [1, 8])
def test_blocks(flags: tuple[str, ...], threads: int, rng: random.Random, tmp_path: Path) -> None:
    """Check every block and no other, and each free chunk in a bin; the ledger is the kernel's; the same in a core."""
    with running(program(flags, threads, 20_000, rng, tmp_path), tmp_path) as target:
        _visited, rows = held(tmp_path)
        with heap_of(str(target.pid)) as heap:
            assert check_blocks(heap, rows) == set()
            found = heap.allocator(OldmallocAllocator)
            found.check()
            assert found.damage == []
        answer = ask("", str(target.pid))
        check_families(answer["ledger"])
        assert (roots(answer["ledger"], "resident"), roots(answer["ledger"], "swapped")) == kernel.rollup(target.pid)
        assert roots(answer["ledger"], "virtual") == virtual_size(target)
        used = line_of(answer, f"{NAME}.used")["virtual"]
        assert 0 <= used - sum(usable for _pointer, usable, _requested in rows) < 200
        assert answer["warnings"] == []
        listed = ask("chunks", str(target.pid), "--state=used", "--top=0")
        assert {pointer for pointer, *_ in rows} <= {row["address"] for row in listed["rows"]}
        core = target.as_form(KERNEL_CORE)
    with heap_of(core) as heap:
        assert check_blocks(heap, rows) == set()
        found = heap.allocator(OldmallocAllocator)
        found.check()
        assert found.damage == []


def test_damage(rng: random.Random, tmp_path: Path) -> None:
    """Check that an overwritten header of a chunk is named at its place."""
    with running(program((), 1, 20_000, rng, tmp_path), tmp_path) as target:
        _visited, rows = held(tmp_path)
        small = [pointer for pointer, usable, _requested in rows if usable < 10_000]
        chunk = rng.choice(small) - 16
        with open(f"/proc/{target.pid}/mem", "r+b", buffering=0) as memory:
            memory.seek(chunk)
            memory.write(b"\xff" * 8)
        answer = ask("check", str(target.pid), status=1)
        assert [row["address"] for row in answer["damage"]] == [chunk], answer["damage"]
