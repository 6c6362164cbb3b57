"""tcmalloc of gperftools: every block against the program's own table and ``malloc_usable_size``, and all of
tcmalloc's own counts (``MallocExtension_GetNumericProperty``).

The libraries are those that are here: the system's two, those built by ``scripts/tcmallocs.sh``, those of Debian's
other suites (``scripts/suites.sh``), and the files that GDBHEAP_TCMALLOCS names.
"""

from __future__ import annotations

import bisect
import os
import random
import struct
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from support import kernel, programs
from support.ledger_lines import check_families, line_of, roots, virtual_size
from support.library import heap_of
from support.other_sizes import others
from support.programs import KERNEL_CORE, Running, ask, gdbheap, running
from support.tables import held, program
from support.tcmallocs import BESIDE, NAMES, OF_A_THREAD, check_held, library

from gdbheap.allocators.tcmalloc.allocator import (
    CACHES,
    PAGES,
    REST,
    RETURNED,
    SPANS,
    TRANSFER,
    USED,
    TcmallocLibraries,
)
from gdbheap.heap import Heap

PAGE = os.sysconf("SC_PAGE_SIZE")
every_library = pytest.mark.parametrize("name", NAMES)


def started(threads: int, name: str, rng: random.Random, folder: Path) -> AbstractContextManager[Running]:
    """Start held_now.c with that library and wait until it rests."""
    preloaded = library(name)
    return running(program(threads, 20_000, rng, folder, preloaded), folder, {"LD_PRELOAD": preloaded})


def properties(target: Running, folder: Path) -> dict[str, int]:
    """Return tcmalloc's current counts, by the last part of a property's name."""
    target.go_on("stats")
    lines = (folder / "table.stats").read_text().splitlines()
    return {name.partition(".")[2]: int(value) for name, value in map(str.split, lines)}


def check_counted(heap: Heap, said: dict[str, int]) -> None:
    """Check all counts of tcmalloc; remainders in spans count as free in its central lists."""
    (own,) = heap.allocator(TcmallocLibraries).store.sums()
    assert own.used == said["current_allocated_bytes"]
    assert own.listed + own.waste == said["central_cache_free_bytes"]
    assert (own.transfer, own.cached) == (said["transfer_cache_free_bytes"], said["thread_cache_free_bytes"])
    assert (own.free, own.returned) == (said["pageheap_free_bytes"], said["pageheap_unmapped_bytes"])
    pages = own.used + own.listed + own.waste + own.transfer + own.cached + own.free + own.returned
    assert pages == said["heap_size"]


def check_ledger(target: Running, said: dict[str, int]) -> None:
    """Check that the ledger is the kernel's, and that its lines equal tcmalloc's counts."""
    answer = ask("", str(target.pid), "--detail")
    check_families(answer["ledger"])
    assert (roots(answer["ledger"], "resident"), roots(answer["ledger"], "swapped")) == kernel.rollup(target.pid)
    assert roots(answer["ledger"], "virtual") == virtual_size(target)
    assert "other-allocator" not in [finding["id"] for finding in answer["findings"]]
    size = {line["id"]: line["virtual"] for line in answer["ledger"]}
    assert size[USED] == said["current_allocated_bytes"]
    assert size.get(SPANS, 0) + size.get(REST, 0) == said["central_cache_free_bytes"]
    expected = {TRANSFER: "transfer_cache", CACHES: "thread_cache", PAGES: "pageheap"}
    assert {line: size.get(line, 0) for line in expected} == {
        line: said[f"{name}_free_bytes"] for line, name in expected.items()
    }
    assert size.get(RETURNED, 0) == said["pageheap_unmapped_bytes"]


def check_arenas(target: Running, said: dict[str, int]) -> None:
    """Check that there is a row for each size of blocks instead of the C library's arenas, which are empty."""
    answer = ask("arenas", str(target.pid))
    assert answer["serving"] == ["tcmalloc"] and answer["total"]["in_use"] > 0
    assert sum(row["used_count"] * row["size"] for row in answer["classes"]) == said["current_allocated_bytes"]
    shown = gdbheap("arenas", str(target.pid)).stdout
    first, _, titles = shown.splitlines()[:3]
    assert "tcmalloc holds " in first and "groups" in titles and "malloc_stats" not in shown


@every_library
def test_one_thread(name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check every block of a program with one thread, and all of tcmalloc's counts."""
    with started(1, name, rng, tmp_path) as target:
        said = properties(target, tmp_path)
        with heap_of(str(target.pid)) as heap:
            _visited, rows = held(tmp_path)
            assert len(rows) <= check_held(heap, rows) <= len(rows) + BESIDE
            check_counted(heap, said)
            assert not heap.allocator(TcmallocLibraries).damage and not heap.warnings
        check_ledger(target, said)
        check_arenas(target, said)


@every_library
def test_threads(name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check eight threads that free each other's blocks, four of which have ended, and the same in a core."""
    with started(8, name, rng, tmp_path) as target:
        said = properties(target, tmp_path)
        _visited, rows = held(tmp_path)
        with heap_of(str(target.pid)) as heap:
            used = check_held(heap, rows)
            assert len(rows) <= used <= len(rows) + BESIDE + OF_A_THREAD * 8
            check_counted(heap, said)
            sizes = heap.allocator(TcmallocLibraries).store.sizes()
        core = target.as_form(KERNEL_CORE)
    with heap_of(core) as heap:
        assert check_held(heap, rows) == used
        assert heap.allocator(TcmallocLibraries).store.sizes() == sizes


@pytest.fixture
def emptied(rng: random.Random, tmp_path: Path) -> Iterator[Running]:
    """Yield a program that has freed most of its blocks, and whose tcmalloc keeps their memory."""
    settings = {"LD_PRELOAD": library(NAMES[0]), "TCMALLOC_RELEASE_RATE": "0"}
    with running(program(1, 20_000, rng, tmp_path), tmp_path, settings) as target:
        target.go_on("drop")
        yield target


def test_answers_agree(emptied: Running, rng: random.Random, tmp_path: Path) -> None:
    """Check the answers about one heap against the table: blocks, sizes, holes, pins, the map, and the graph."""
    _visited, rows = held(tmp_path)
    pid, blocks = str(emptied.pid), {pointer for pointer, *_ in rows}
    for pointer, usable, _requested in rng.sample(rows, 5):
        block = ask("at", pid, hex(pointer + usable // 2))["block"]
        assert (block["allocator"], block["state"]) == ("tcmalloc", "used")
        assert (block["address"], block["size"]) == (pointer, usable)
    listed = ask("chunks", pid, "--state=used", "--sort=address", "--top=0")
    own = {row["address"] for row in listed["rows"] if row["allocator"] == "tcmalloc"}
    assert blocks <= own and len(own) <= len(blocks) + BESIDE
    (sizes,) = others(ask("sizes", pid, "--top=0"))
    assert sizes["total"]["used_count"] == len(own) and sizes["allocator"] == "tcmalloc"
    check, drawn = ask("check", pid), ask("map", pid)
    assert check["ok"] and check["spans"] > 0 and "tcmalloc" in {group["kind"] for group in drawn["rows"]}
    holes = [row for row in ask("holes", pid, "--min=1", "--top=0")["rows"] if row["allocator"] == "tcmalloc"]
    starts = sorted(own)
    inside = [bisect.bisect_left(starts, row["address"] + row["size"]) for row in holes]
    assert holes and all(not at or starts[at - 1] < row["address"] for at, row in zip(inside, holes)), (
        "a block in use begins in a hole"
    )
    pins = ask("pins", pid, "--top=0")["rows"]
    members = {row["address"] for pin in pins if pin["allocator"] == "tcmalloc" for row in pin["members"]}
    assert members and members <= own
    # The table is in shared memory, which is not searched for pointers: only blocks that a stack or tcmalloc still has
    # are reached.
    lost = ask("unreachable", pid, "--top=1")
    assert lost["damage"] == [] and 0.9 * len(blocks) <= lost["lost_blocks"]["blocks"] <= len(own)


def test_given_back(emptied: Running) -> None:
    """Check that the promised bytes are returned when the program follows the advice."""
    (found,) = [row for row in ask("", str(emptied.pid))["findings"] if row["id"] == "tcmalloc-unused"]
    before = kernel.rollup(emptied.pid)[0]
    emptied.go_on("collect")
    freed = before - kernel.rollup(emptied.pid)[0]
    assert 0.9 * found["bytes"] <= freed <= 1.1 * found["bytes"] + (1 << 20), (found, freed)
    assert "tcmalloc-unused" not in [row["id"] for row in ask("", str(emptied.pid))["findings"]]


def test_damage(rng: random.Random, tmp_path: Path) -> None:
    """Check a list of free blocks of a span that leads nowhere: that block is named, and no other."""
    with running(program(1, 20_000, rng, tmp_path), tmp_path, {"LD_PRELOAD": library(NAMES[0])}) as target:
        with heap_of(str(target.pid)) as heap:
            store = heap.allocator(TcmallocLibraries).store
            free = [row.start for row in store.holes(1) if (block := store.find(row.start)) and block.list == "span"]
            place = rng.choice(free)
        with open(f"/proc/{target.pid}/mem", "r+b", buffering=0) as memory:
            os.pwrite(memory.fileno(), struct.pack("<Q", place + 1), place)
        answer = ask("check", str(target.pid), status=1)
        assert [(row["address"], row["found"]) for row in answer["damage"]] == [(place, hex(place + 1))]


def test_python_above(rng: random.Random, tmp_path: Path) -> None:
    """Check that Python's objects are in its blocks, as many as the program counts, and that references connect
    them."""
    counts = tmp_path / "counts"
    environment = {"LD_PRELOAD": library(NAMES[0]), "PYTHONMALLOC": "malloc"}
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
        for pattern in ("__main__.Marked", "*Marked*"):
            found = ask("chunks", str(target.pid), f"--type={pattern}", "--top=1")
            assert (found["count"], found["rows"][0]["allocator"]) == (row["count"], "tcmalloc")
        owners = ask("retained", str(target.pid), "--top=3")
        assert owners["damage"] == []
        line = line_of(ask("", str(target.pid)), "tcmalloc.used")
        assert line["resident"] > 0
