"""mimalloc as a library: every block against the program's own table, ``malloc_usable_size`` and
``mi_heap_visit_blocks``.

The libraries are those that are here: the system's, those built by ``scripts/mimallocs.sh``, and those of Debian's
other suites (``scripts/suites.sh``).
"""

from __future__ import annotations

import bisect
import os
import random
import re
import struct
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from support import kernel, programs
from support.installed import python_with
from support.ledger_lines import check_families, line_of, roots, virtual_size
from support.library import heap_of
from support.mimallocs import NAMES, check_blocks, library, need_threads, newest
from support.other_sizes import others
from support.programs import KERNEL_CORE, Running, ask, gdbheap, running
from support.tables import held, program

from gdbheap import _native
from gdbheap import open as open_heap
from gdbheap.allocators.mimalloc.library import MimallocLibraries
from gdbheap.allocators.mimalloc.locate import find_roots

# Each thread has a vector for its thread-local data, and may have taken a block that is not in the table yet.
IN_MOTION = 2
# Their map has a header, and an arena begins before its mi_arena_t.
WITH_MAP = [name for name in NAMES if name.endswith(".so.3.6")]
every_library = pytest.mark.parametrize("name", NAMES)


def started(threads: int, name: str, rng: random.Random, folder: Path) -> AbstractContextManager[Running]:
    """Start held_now.c with that library and wait until it rests."""
    preloaded = library(name)
    return running(program(threads, 20_000, rng, folder, preloaded), folder, {"LD_PRELOAD": preloaded})


def test_segments_that_are_kept_for_later(rng: random.Random, tmp_path: Path) -> None:
    """Check that empty segments that are not yet given back are free memory of mimalloc's, not of the program's own."""
    command = programs.c_program("peaks", 1, rng.randrange(250_000, 350_000), 0)
    with running(command, tmp_path, {"LD_PRELOAD": library(NAMES[0])}) as target:
        answer = ask("", str(target.pid))
    lines = {line["id"]: line for line in answer["ledger"]}
    assert lines["libmimalloc.free"]["resident"] > answer["rss"]["bytes"] * 0.9
    assert not {"other-held", "mapped-memory"} & {row["id"] for row in answer["findings"]}


@every_library
def test_one_thread(name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check every block, and no other: as many as the library visits itself; the ledger is the kernel's."""
    with started(1, name, rng, tmp_path) as target:
        visited, rows = held(tmp_path)
        with heap_of(str(target.pid)) as heap:
            used = check_blocks(heap, rows)
            (root,) = heap.allocator(MimallocLibraries).roots
        assert used == len(rows)
        # Up to 3.1 full pages are not visited, since they have no owner.
        assert visited == used or (root.form.name.startswith(("3.0", "3.1")) and visited < used)
        answer = ask("", str(target.pid))
        check_families(answer["ledger"])
        assert (roots(answer["ledger"], "resident"), roots(answer["ledger"], "swapped")) == kernel.rollup(target.pid)
        assert roots(answer["ledger"], "virtual") == virtual_size(target)
        line = line_of(answer, "libmimalloc.used")
        check_pages(line["resident"], rows)
        assert "other-allocator" not in [finding["id"] for finding in answer["findings"]]


@pytest.mark.parametrize("name", WITH_MAP or [None])
def test_unknown(name: str | None, rng: random.Random, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a release whose structures are unknown is named, and that nothing else is reported about its blocks:
    all known forms with a map are taken away, except one that does not fit.
    """
    if name is None:
        pytest.skip("no mimalloc 3.6 (scripts/suites.sh sid)")
    others = [form for form in _native.mimalloc_forms() if form.name == "3.3" or not form.has_map]
    monkeypatch.setattr(_native, "mimalloc_forms", lambda: others)
    with started(1, name, rng, tmp_path) as target:
        with heap_of(str(target.pid)) as heap:
            roots = find_roots(heap.target)
        assert roots.roots == [] and [Path(row.module.path).name for row in roots.refused] == [Path(name).name]
        with open_heap(target.pid) as answers:
            (found,) = [row for row in answers.findings() if row.id == "other-allocator"]
    assert "mimalloc" in found.text


def check_pages(resident: int, rows: list[tuple[int, int, int]]) -> None:
    """Check that the written bytes of held blocks are resident and in blocks in use."""
    written = sum(requested for _pointer, _usable, requested in rows)
    assert written <= resident + len(rows) * 16, (written, resident)


@every_library
def test_threads(name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check eight threads that free each other's blocks, four of which have ended, and the same in a core."""
    need_threads(name)
    with started(8, name, rng, tmp_path) as target:
        _visited, rows = held(tmp_path)
        with heap_of(str(target.pid)) as heap:
            used = check_blocks(heap, rows)
            sizes = heap.allocator(MimallocLibraries).used_sizes()
        assert len(rows) <= used <= len(rows) + IN_MOTION * 8
        core = target.as_form(KERNEL_CORE)
    with heap_of(core) as heap:
        assert check_blocks(heap, rows) == used
        assert heap.allocator(MimallocLibraries).used_sizes() == sizes


# Milliseconds until freed pages are returned, by the names of releases.
DELAYS = ("MIMALLOC_RESET_DELAY", "MIMALLOC_DECOMMIT_DELAY", "MIMALLOC_PURGE_DELAY")


@pytest.fixture
def emptied(rng: random.Random, tmp_path: Path) -> Iterator[Running]:
    """Yield a program that has freed most of its blocks; no memory of them is returned before it collects, however
    long freeing takes."""
    environment = {"LD_PRELOAD": newest(), **dict.fromkeys(DELAYS, str(1000 * programs.PATIENCE))}
    with running(program(1, 20_000, rng, tmp_path), tmp_path, environment) as target:
        target.go_on("drop")
        yield target


def test_answers_agree(emptied: Running, rng: random.Random, tmp_path: Path) -> None:
    """Check the answers about one heap against the table: blocks, sizes, holes, pins, the map, and the graph."""
    _visited, rows = held(tmp_path)
    pid = str(emptied.pid)
    with heap_of(pid) as heap:
        found = [heap.allocator(MimallocLibraries).find(pointer) for pointer, *_ in rows]
        blocks = {block.address for block in found if block is not None}
    for pointer, usable, _requested in rng.sample(rows, 5):
        block = ask("at", pid, hex(pointer))["block"]
        assert block["allocator"] == "libmimalloc" and block["state"] == "used"
        assert block["address"] <= pointer and pointer + usable == block["address"] + block["size"]
    listed = ask("chunks", pid, "--state=used", "--sort=address", "--top=0")
    assert {row["address"] for row in listed["rows"] if row["allocator"] == "libmimalloc"} == blocks
    (sizes,) = others(ask("sizes", pid, "--top=0"))
    assert sizes["total"]["used_count"] == len(blocks) and sizes["allocator"] == "libmimalloc"
    check, drawn = ask("check", pid), ask("map", pid)
    assert check["ok"] and check["page_count"] > 0 and "libmimalloc" in {group["kind"] for group in drawn["rows"]}
    holes = [row for row in ask("holes", pid, "--min=1", "--top=0")["rows"] if row["allocator"] == "libmimalloc"]
    starts = sorted(blocks)
    inside = [bisect.bisect_left(starts, row["address"] + row["size"]) for row in holes]
    assert holes and all(not at or starts[at - 1] < row["address"] for at, row in zip(inside, holes)), (
        "a block in use begins in a hole"
    )
    pins = ask("pins", pid, "--top=0")["rows"]
    members = {row["address"] for pin in pins if pin["allocator"] == "libmimalloc" for row in pin["members"]}
    assert members and members <= blocks
    # The table is in shared memory, which is not searched for pointers: only blocks that a stack still has are reached.
    lost = ask("unreachable", pid, "--top=1")
    assert lost["damage"] == [] and 0.9 * len(blocks) <= lost["lost_blocks"]["blocks"] <= len(blocks)


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("secure")] or [None])
def test_asked_for(name: str | None, rng: random.Random, tmp_path: Path) -> None:
    """Check the requested sizes that padded blocks record, block by block and in total, against the program's table;
    the bytes of an aligned block before its pointer were requested too."""
    if name is None:
        pytest.skip("no mimalloc with padding (scripts/mimallocs.sh)")
    with started(1, name, rng, tmp_path) as target:
        _visited, rows = held(tmp_path)
        pid = str(target.pid)
        with heap_of(pid) as heap:
            found = heap.allocator(MimallocLibraries)
            blocks = {row: block for row in rows if (block := found.find(row[0])) is not None}
        told = {block.address: usable + pointer - block.address for (pointer, usable, _), block in blocks.items()}
        listed = ask("chunks", pid, "--state=used", "--top=0")["rows"]
        (sizes,) = others(ask("sizes", pid, "--top=0"))
        text = gdbheap("sizes", pid).stdout
        pointer, usable, _requested = rng.choice(rows)
        block = ask("at", pid, hex(pointer))["block"]
    assert len(told) == len(rows) and block["asked"] == usable + pointer - block["address"]
    own = {row["address"]: row["asked"] for row in listed if row["allocator"] == "libmimalloc"}
    assert {address: own[address] for address in told} == told
    assert sizes["asked"] == sum(own.values()) and "asked for" in text
    # The library itself adds a little to aligned blocks and very small ones.
    exact = sum(usable == requested for _pointer, usable, requested in rows)
    assert all(usable >= requested for _pointer, usable, requested in rows) and exact > 0.9 * len(rows)


def test_given_back(emptied: Running) -> None:
    """Check that the promised bytes are returned when the program follows the advice, unless they are marked as
    doubtful."""
    (found,) = [row for row in ask("", str(emptied.pid))["findings"] if row["id"] == "mimalloc-empty"]
    before = kernel.rollup(emptied.pid)[0]
    emptied.go_on("collect")
    freed = before - kernel.rollup(emptied.pid)[0]
    # Before 2.1.7 it may be any part of it, as the finding says.
    assert freed <= 1.1 * found["bytes"] + (1 << 20), (found, freed)
    assert found["is_doubtful"] == ("before 2.1.7" in found["text"])
    assert found["is_doubtful"] or 0.9 * found["bytes"] <= freed, (found, freed)
    left = [row["id"] for row in ask("", str(emptied.pid))["findings"]]
    assert found["is_doubtful"] or "mimalloc-empty" not in left


def test_arrow_gives_back(tmp_path: Path) -> None:
    """Check that the promised bytes of Arrow's pool are returned by release_unused(), as advised."""
    source = (
        "import pyarrow, sys\n"
        "pool = pyarrow.mimalloc_memory_pool()\n"
        "pyarrow.set_memory_pool(pool)\n"
        "kept = [pyarrow.array(list(range(40_000))) for _ in range(150)][::40]\n"
        "sys.stdin.readline()\n"
        "pool.release_unused()\n"
        "sys.stdin.readline()\n"
    )
    with running([python_with("pyarrow"), "-c", source], tmp_path) as target:
        (found,) = [row for row in ask("", str(target.pid))["findings"] if row["id"] == "mimalloc-empty"]
        before = kernel.rollup(target.pid)[0]
        target.go_on()
        freed = before - kernel.rollup(target.pid)[0]
    assert "release_unused()" in found["advice"]
    assert 0.9 * found["bytes"] <= freed <= 1.1 * found["bytes"] + (1 << 20), (found, freed)


def test_damage(rng: random.Random, tmp_path: Path) -> None:
    """Check a word of a free block that leads nowhere, and a wrong count: each is named close to its place."""
    with running(program(1, 20_000, rng, tmp_path), tmp_path, {"LD_PRELOAD": newest()}) as target:
        with heap_of(str(target.pid)) as heap:
            found = heap.allocator(MimallocLibraries)
            free = [hole.start for hole in found.holes(64) if (row := found.find(hole.start)) and row.list]
            assert free, "no free block that was used before"
        with open(f"/proc/{target.pid}/mem", "r+b", buffering=0) as memory:
            os.pwrite(memory.fileno(), struct.pack("<Q", 0x1234567), rng.choice(free))
        answer = ask("check", str(target.pid), status=1)
        assert [row for row in answer["damage"] if re.search("list of free blocks|used blocks", row["what"])]


def test_python_above(rng: random.Random, tmp_path: Path) -> None:
    """Check that Python's objects are in its blocks, as many as the program counts, and that references connect
    them."""
    counts = tmp_path / "counts"
    environment = {"LD_PRELOAD": newest(), "PYTHONMALLOC": "malloc"}
    source = (
        "import gc, signal, sys\n"
        "class Marked: __slots__ = ('value',)\n"
        f"kept = [Marked() for _ in range({rng.randrange(2000, 9000)})]\n"
        f"open({str(counts)!r}, 'w').write(str(len(kept)))\n"
        "signal.pause()\n"
    )
    command = [programs.interpreter_of("stripped"), "-c", source]
    with running(command, tmp_path, environment) as target:
        answer = ask("pyobjects", str(target.pid), "--top=0")
        (row,) = [row for row in answer["rows"] if row["type"].endswith("Marked")]
        assert row["count"] == int(counts.read_text())
        owners = ask("retained", str(target.pid), "--top=3")
        assert owners["damage"] == []
