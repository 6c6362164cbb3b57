"""``heap unreachable`` finds exactly the lost blocks of C, C++ and Rust programs.

The truth is each program's own table, which tests/test_planted.py compares with LeakSanitizer and valgrind. glibc's own
blocks (the buffers of stdio, thread caches, the vectors of thread-local data) are in none of these tables.
"""

from __future__ import annotations

import random
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from support import kernel, planted
from support.planted import BY_LAYOUT, CYCLE, DIRECT, IN_REGISTER, INTERIOR, LOST, ON_STACK, PROGRAMS, Planted
from support.programs import KERNEL_CORE, PROCESS, ask, gdbheap, running

pytestmark = pytest.mark.cases(10)

# The maximum number of addresses in a row.
LISTED = 1000


@pytest.mark.parametrize("form", [PROCESS, KERNEL_CORE])
@pytest.mark.parametrize("name", PROGRAMS)
def test_lost_blocks_are_those_of_the_program(name: str, form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check each block by its address, in rows of the sizes of their chunks; the heads keep their structures."""
    command = planted.command(name, rng.getrandbits(31), tmp_path / "table")
    with running(command, tmp_path) as target:
        table = planted.table_of(tmp_path / "table")
        answer = ask("unreachable", target.as_form(form))
    lost = [row for row in table if row.kind in LOST]
    certain = [row for row in answer["rows"] if row["group"] == "lost_blocks"]
    assert all(row["type"] is None or row["type"] for row in certain)
    check_rows(certain, lost)
    check_circles(certain, table)
    check_stray([row for row in answer["rows"] if row["group"] == "doubtful"], table)
    check_heads(answer["heads"], lost)


@pytest.mark.parametrize("name", PROGRAMS)
def test_without_the_programs_file(name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check a core without the headers of a missing program: its data keep the same blocks."""
    own, *arguments = planted.command(name, rng.getrandbits(31), tmp_path / "table")
    program = Path(shutil.copy(own, tmp_path / "program"))
    with running([str(program), *arguments], tmp_path) as target:
        table = planted.table_of(tmp_path / "table")
        Path(f"/proc/{target.pid}/coredump_filter").write_text("0x21")
        core = target.kernel_core()
    program.unlink()
    answer = ask("unreachable", str(core))
    assert any("(program)" in warning for warning in answer["warnings"])
    lost = [row for row in answer["rows"] if row["group"] == "lost_blocks"]
    check_rows(lost, [row for row in table if row.kind in LOST])
    check_stray([row for row in answer["rows"] if row["group"] == "doubtful"], table)


def test_a_core_that_lacks_memory(rng: random.Random, tmp_path: Path) -> None:
    """Check a truncated core: each block may be held by the missing part, so nothing is reported as lost."""
    with running(planted.command("lists.c", rng.getrandbits(31), tmp_path / "table"), tmp_path) as target:
        core = target.kernel_core()
    stack = last_written(core)
    cut = tmp_path / "cut"
    cut.write_bytes(core.read_bytes()[: stack.offset])
    found = ask("unreachable", str(cut), status=1)
    assert found["lacking"] >= stack.file_size and found["not_examined"] and not found["rows"]
    shown = gdbheap("unreachable", str(cut)).stdout
    assert "cannot free" not in shown and "not examined: " in shown
    whole = ask("", str(cut), "--detail", status=1)
    assert not any(finding["id"] == "lost-blocks" for finding in whole["findings"])
    address = ask("unreachable", str(core))["rows"][0]["addresses"][0]
    assert "garbage" not in gdbheap("why", str(cut), hex(address)).stdout


def last_written(core: Path) -> kernel.Segment:
    """Return the last private segment with bytes in the file."""
    return [one for one in kernel.segments(core) if one.file_size and one.start < 1 << 63][-1]


def check_rows(rows: list[dict[str, Any]], lost: list[Planted]) -> None:
    """Check that the rows have these blocks, by size, count and address."""
    expected = defaultdict(set)
    for block in lost:
        expected[block.chunk].add(block.address)
    counts: dict[int, int] = defaultdict(int)
    found = defaultdict(set)
    for row in rows:
        assert row["bytes"] == row["size"] * row["count"]
        assert len(row["addresses"]) == min(row["count"], LISTED)
        counts[row["size"]] += row["count"]
        found[row["size"]] |= set(row["addresses"])
    assert counts == {size: len(blocks) for size, blocks in expected.items()}
    for size, blocks in expected.items():
        assert found[size] <= blocks and (len(blocks) > LISTED or found[size] == blocks)


def check_circles(rows: list[dict[str, Any]], table: list[Planted]) -> None:
    """Check that blocks that keep one another are marked so, and blocks without any reference too."""
    by_why = {
        why: {address for row in rows if row["why"] == why for address in row["addresses"]}
        for why in ("lost blocks point to one another", "nothing points to it")
    }
    circles, alone = by_why.values()
    assert circles <= {row.address for row in table if row.kind == CYCLE}
    assert alone <= {row.address for row in table if row.kind == DIRECT}
    assert bool(circles) == any(row.kind == CYCLE for row in table)


def check_stray(rows: list[dict[str, Any]], table: list[Planted]) -> None:
    """Check that only blocks reached by words into their middle, and those that threads or layouts hold, are
    reported separately.

    glibc's own blocks, which no table has, may be among them: the text of dlerror() is one, as only a thread's data
    lead into it.
    """
    planted_at = {row.address for row in table}
    found = {address for row in rows for address in row["addresses"]} & planted_at
    inside = {row.address for row in table if row.kind == INTERIOR}
    used = {row.address for row in table if row.kind in (ON_STACK, IN_REGISTER, BY_LAYOUT)}
    assert inside <= found <= inside | used


def check_heads(heads: list[dict[str, Any]], lost: list[Planted]) -> None:
    """Check that each structure has its head, with the bytes and blocks of the whole structure. Any block of a circle
    may be its head.
    """
    groups = defaultdict(list)
    for block in lost:
        groups[block.group].append(block)
    by_address = {head["address"]: head for head in heads}
    for blocks in groups.values():
        own = {block.address for block in blocks if block.kind in (DIRECT, CYCLE)}
        found = [by_address[address] for address in own if address in by_address]
        assert len(found) == 1, [hex(address) for address in own]
        whole = sum(block.chunk for block in blocks)
        assert (found[0]["retained"], found[0]["count"]) == (whole, len(blocks))
        sizes = {block.address: block.chunk for block in blocks}
        assert found[0]["size"] == sizes[found[0]["address"]]
    assert len(heads) == len(groups)
