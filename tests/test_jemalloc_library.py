"""jemalloc: every block against the program's own table and ``malloc_usable_size``, and all of jemalloc's own counts
(``mallctl``).

The libraries are those that are here: the system's, those built by ``scripts/jemallocs.sh``, and those of Debian's
other suites (``scripts/suites.sh``).
"""

from __future__ import annotations

import bisect
import os
import random
import re
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from support import kernel, programs
from support.jemallocs import BESIDE, NAMES, OF_A_THREAD, Stats, check_held, library, newest, stats
from support.ledger_lines import check_families, line_of, roots, virtual_size
from support.library import heap_of
from support.other_sizes import others
from support.programs import KERNEL_CORE, Running, ask, gdbheap, running
from support.tables import held, program

from gdbheap.allocators.jemalloc.allocator import CACHES, DIRTY, MUZZY, RETAINED, JemallocLibraries
from gdbheap.heap import Heap

PAGE = os.sysconf("SC_PAGE_SIZE")
LARGEST_SMALL = 14 << 10
IN_A_MODULE = {
    "pyarrow": (
        "import pyarrow, signal, sys\n"
        "pyarrow.set_memory_pool(pyarrow.jemalloc_memory_pool())\n"
        "kept = [pyarrow.array(list(range(100 + 37 * i))) for i in range(60)]\n"
        "places = [buffer.address for one in kept for buffer in one.buffers() if buffer and buffer.size]\n"
        "open(sys.argv[1], 'w').write(' '.join(map(str, places)))\n"
        "signal.pause()\n"
    ),
    "polars": (
        "import polars, signal, sys\n"
        "kept = [polars.Series(list(range(100 + 37 * i))) for i in range(60)]\n"
        "places = [one.to_arrow().buffers()[1].address for one in kept]\n"
        "open(sys.argv[1], 'w').write(' '.join(map(str, places)))\n"
        "signal.pause()\n"
    ),
}
every_library = pytest.mark.parametrize("name", NAMES)


def started(threads: int, name: str, rng: random.Random, folder: Path) -> AbstractContextManager[Running]:
    """Start held_now.c with that library and wait until it rests."""
    preloaded = library(name)
    return running(program(threads, 20_000, rng, folder, preloaded), folder, {"LD_PRELOAD": preloaded})


def release_of(name: str) -> str:
    """Return the release that a library reports."""
    told = re.search(rb"\0([0-9]+\.[0-9]+\.[0-9]+)-[0-9]+-g", Path(name).read_bytes()) if "/" in name else None
    return told[1].decode() if told else name


def check_counted(heap: Heap, said: Stats, version: str) -> None:
    """Check all counts of jemalloc by arena and class, in extents and in total."""
    store = heap.allocator(JemallocLibraries).store
    classes = {size for _arena, size in said["class"]}
    regions, slabs, large = Counter[tuple[int, int]](), Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    for row in store.class_use():
        place = row.arena, row.size
        if row.slabs:
            regions[place], slabs[place] = row.used + row.cached, row.slabs
        else:
            # A size counts for the smallest class that can hold it.
            large[row.arena, min(size for size in classes if size >= row.size)] += row.used + row.cached + row.own
    assert +regions == said["curregs"] and slabs == said["curslabs"] and +large == said["curlextents"]
    arenas = store.arena_use()
    for name, key in (("pactive", "active"), ("pdirty", "dirty"), ("pmuzzy", "muzzy"), ("retained", "retained")):
        unit = PAGE if name.startswith("p") else 1
        own = {(row.arena, 0): getattr(row, key) for row in arenas if getattr(row, key)}
        assert own == {place: value * unit for place, value in said.get(name, {}).items() if place[0] >= 0}, name
    sums = {key: sum(getattr(row, key) for row in arenas) for key in ("active", "used", "cached", "own", "retained")}
    assert (sums["active"], sums["retained"]) == (said["active"][-1, 0], said["retained"][-1, 0])
    assert sums["used"] + sums["cached"] + sums["own"] == said["allocated"][-1, 0]
    # Up to 5.2 jemalloc adds up bins of another size if large blocks are cached (tcache_stats_merge in its arena.c).
    if not version.startswith(("5.1", "5.2")):
        assert sums["cached"] == sum(said["tcache_bytes"].values())


def check_ledger(target: Running, said: Stats) -> None:
    """Check that the ledger is the kernel's, and that its lines equal jemalloc's counts."""
    answer = ask("", str(target.pid), "--detail")
    check_families(answer["ledger"])
    assert (roots(answer["ledger"], "resident"), roots(answer["ledger"], "swapped")) == kernel.rollup(target.pid)
    assert roots(answer["ledger"], "virtual") == virtual_size(target)
    assert "other-allocator" not in [finding["id"] for finding in answer["findings"]]
    pages = {name: sum(said.get(name, Counter()).values()) * PAGE for name in ("pdirty", "pmuzzy")}
    # Lines without bytes are left out.
    size = Counter({line["id"]: line["virtual"] for line in answer["ledger"]})
    assert [size[name] for name in (DIRTY, MUZZY)] == [pages["pdirty"], pages["pmuzzy"]]
    assert size[RETAINED] == said["retained"][-1, 0]
    # The lists of its caches are allocated to jemalloc itself, and overhead here; its own small block, which it has up
    # to 5.2, is one of those in use.
    internal = sum(value // PAGE * PAGE for value in said["internal"].values())
    assert size["jemalloc.used"] + size[CACHES] + internal == said["allocated"][-1, 0]
    # Base blocks are the rest of the mapped memory.
    assert size["jemalloc"] == said["mapped"][-1, 0] + said["retained"][-1, 0]


@every_library
def test_one_thread(name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check every block of a program with one thread, and all of jemalloc's counts."""
    with started(1, name, rng, tmp_path) as target:
        said = stats(target, tmp_path)
        assert any(said["allocated"].values()) or "nostats" in name
        with heap_of(str(target.pid)) as heap:
            _visited, rows = held(tmp_path)
            assert len(rows) <= check_held(heap, rows) <= len(rows) + BESIDE
            if any(said["allocated"].values()):
                check_counted(heap, said, release_of(name))
            assert not heap.allocator(JemallocLibraries).damage and not heap.warnings
        if any(said["allocated"].values()):
            check_ledger(target, said)
        # Its table is printed instead of the C library's arenas, which are empty.
        answer, shown = ask("arenas", str(target.pid)), gdbheap("arenas", str(target.pid)).stdout
        assert answer["serving"] == ["jemalloc"] and {row["allocator"] for row in answer["rows"]} == {
            "glibc",
            "jemalloc",
        }
        assert answer["total"]["in_use"] == sum(row["in_use"] for row in answer["rows"]) > 0
        if any(said["allocated"].values()):
            assert sum(row["active"] or 0 for row in answer["rows"]) == said["active"][-1, 0]
        first, _, titles = shown.splitlines()[:3]
        assert "jemalloc holds " in first and "active" in titles and "malloc_stats" not in shown


@every_library
def test_threads(name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check eight threads that free each other's blocks, four of which have ended, and the same in a core."""
    with started(8, name, rng, tmp_path) as target:
        said = stats(target, tmp_path)
        _visited, rows = held(tmp_path)
        with heap_of(str(target.pid)) as heap:
            used = check_held(heap, rows)
            assert len(rows) <= used <= len(rows) + BESIDE + OF_A_THREAD * 8
            if any(said["allocated"].values()):
                check_counted(heap, said, release_of(name))
            classes = heap.allocator(JemallocLibraries).store.class_use()
        core = target.as_form(KERNEL_CORE)
    with heap_of(core) as heap:
        assert check_held(heap, rows) == used
        assert heap.allocator(JemallocLibraries).store.class_use() == classes


@pytest.fixture
def emptied(rng: random.Random, tmp_path: Path) -> Iterator[Running]:
    """Yield a program that has freed most of its blocks, and whose jemalloc keeps their memory."""
    settings = {"LD_PRELOAD": newest(), "MALLOC_CONF": "dirty_decay_ms:-1,muzzy_decay_ms:-1"}
    with running(program(1, 20_000, rng, tmp_path), tmp_path, settings) as target:
        target.go_on("drop")
        yield target


def test_answers_agree(emptied: Running, rng: random.Random, tmp_path: Path) -> None:
    """Check the answers about one heap against the table: blocks, sizes, holes, pins, the map, and the graph."""
    _visited, rows = held(tmp_path)
    pid, blocks = str(emptied.pid), {pointer for pointer, *_ in rows}
    for pointer, usable, _requested in rng.sample(rows, 5):
        block = ask("at", pid, hex(pointer + usable // 2))["block"]
        # A program with one thread has one arena.
        assert (block["allocator"], block["state"], block["arena"]) == ("jemalloc", "used", 0)
        assert (block["address"], block["size"]) == (pointer, usable)
    listed = ask("chunks", pid, "--state=used", "--sort=address", "--top=0")
    own = {row["address"] for row in listed["rows"] if row["allocator"] == "jemalloc"}
    assert blocks <= own and len(own) <= len(blocks) + BESIDE
    (sizes,) = others(ask("sizes", pid, "--top=0"))
    assert sizes["total"]["used_count"] == len(own) and sizes["allocator"] == "jemalloc"
    check, drawn = ask("check", pid), ask("map", pid)
    assert check["ok"] and check["slabs"] > 0 and "jemalloc" in {group["kind"] for group in drawn["rows"]}
    holes = [row for row in ask("holes", pid, "--min=1", "--top=0")["rows"] if row["allocator"] == "jemalloc"]
    starts = sorted(own)
    inside = [bisect.bisect_left(starts, row["address"] + row["size"]) for row in holes]
    assert holes and all(not at or starts[at - 1] < row["address"] for at, row in zip(inside, holes)), (
        "a block in use begins in a hole"
    )
    pins = ask("pins", pid, "--top=0")["rows"]
    members = {row["address"] for pin in pins if pin["allocator"] == "jemalloc" for row in pin["members"]}
    assert members and members <= own
    # The table is in shared memory, which is not searched for pointers: only blocks that a stack or jemalloc still has
    # are reached.
    lost = ask("unreachable", pid, "--top=1")
    assert lost["damage"] == [] and 0.9 * len(blocks) <= lost["lost_blocks"]["blocks"] <= len(own)


def test_given_back(emptied: Running) -> None:
    """Check that the promised bytes are returned when the program follows the advice."""
    (found,) = [row for row in ask("", str(emptied.pid))["findings"] if row["id"] == "jemalloc-unused"]
    before = kernel.rollup(emptied.pid)[0]
    emptied.go_on("collect")
    freed = before - kernel.rollup(emptied.pid)[0]
    assert 0.9 * found["bytes"] <= freed <= 1.1 * found["bytes"] + (1 << 20), (found, freed)
    assert "jemalloc-unused" not in [row["id"] for row in ask("", str(emptied.pid))["findings"]]


def other_class(size: int) -> int:
    """Return the size of the class whose number differs in the last bit: 8, four to 64, then four for each doubling."""
    sizes = [8, 16, 32, 48, 64]
    while sizes[-1] < LARGEST_SMALL:
        sizes += [sizes[-1] + sizes[-1] // 4 * step for step in (1, 2, 3, 4)]
    return sizes[sizes.index(size) ^ 1]


def test_damage(rng: random.Random, tmp_path: Path) -> None:
    """Check a damaged class of a slab, which does not divide its size: it is named at its place."""
    with running(program(1, 20_000, rng, tmp_path), tmp_path, {"LD_PRELOAD": newest()}) as target:
        with heap_of(str(target.pid)) as heap:
            found = heap.allocator(JemallocLibraries)
            (root,) = found.roots
            rows = [row for row in found.store.class_use() if row.slabs and row.used]
            bytes_of = {row.size: (row.used + row.cached + row.free) * row.size // row.slabs for row in rows}
            size = rng.choice([size for size in bytes_of if bytes_of[size] % other_class(size)])
            slab = next(row for row in found.store.first_used(size, size, 1))
            extent = _extent_of(heap, root.address, root.bits, slab.address)
            (word,) = struct.unpack("<Q", heap.target.space.read(extent, 8))
        with open(f"/proc/{target.pid}/mem", "r+b", buffering=0) as memory:
            # The class is at bit 20 in 5.3, and at bit 18 in earlier releases.
            os.pwrite(memory.fileno(), struct.pack("<Q", word ^ (1 << 20)), extent)
        answer = ask("check", str(target.pid), status=1)
        assert any(re.search("slab", row["what"]) and row["address"] == extent for row in answer["damage"])


def _extent_of(heap: Heap, root: int, bits: int, address: int) -> int:
    """Return the address of the extent of a page, by the tree of jemalloc's ``rtree.h``."""
    word = heap.target.space.word
    if bits == 48:
        leaf = word(root + 8 * (address >> 30))
        return word(leaf + 8 * (address >> 12 & 0x3FFFF)) & 0xFFFFFFFFFFC0
    node = word(root + 8 * (address >> 42))
    leaf = word(node + 8 * (address >> 27 & 0x7FFF))
    return word(leaf + 16 * (address >> 12 & 0x7FFF))


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
        for pattern in ("__main__.Marked", "*Marked*"):
            found = ask("chunks", str(target.pid), f"--type={pattern}", "--top=1")
            assert (found["count"], found["rows"][0]["allocator"]) == (row["count"], "jemalloc")
        owners = ask("retained", str(target.pid), "--top=3")
        assert owners["damage"] == []
        line = line_of(ask("", str(target.pid)), "jemalloc.used")
        assert line["resident"] > 0


@pytest.mark.parametrize("module", ["pyarrow", "polars"])
def test_in_a_module(module: str, tmp_path: Path) -> None:
    """Check a static, stripped jemalloc inside a module: each buffer is a used block at the module's pointer, and
    blocks in threads' caches are distinguished from those in use."""
    addresses = tmp_path / "addresses"
    command = [sys.executable, "-c", IN_A_MODULE[module], str(addresses)]
    if subprocess.run([sys.executable, "-c", f"import {module}"], check=False, capture_output=True).returncode:
        pytest.skip(f"no {module} here")
    with running(command, tmp_path) as target, heap_of(str(target.pid)) as heap:
        found = heap.allocator(JemallocLibraries)
        places = [int(line) for line in addresses.read_text().split()]
        assert len(places) >= 50
        blocks = [found.store.find(place) for place in places]
        assert all(block and block.state == "used" for block in blocks)
        assert [block.address for block in blocks if block] == places
        (root,) = {block.root for block in blocks if block}
        assert module in found.roots[root].module.path and found.store.caches[root] > 0
