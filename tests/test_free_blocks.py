"""``heap chunks --state=free`` and ``--state=tcache`` of preloaded allocators.

The answers have no block in the program's table and every freed block whose page still has other blocks of its size;
blocks of thread caches add up to the bytes that jemalloc and tcmalloc count there.
"""

from __future__ import annotations

import bisect
import ctypes.util
import os
import random
from pathlib import Path
from typing import Any

import pytest
from support import programs
from support.other_sizes import others
from support.programs import Running, ask, running
from support.tables import held, program

NAMES = ("jemalloc", "tcmalloc_minimal", "mimalloc")
PAGE = os.sysconf("SC_PAGE_SIZE")
# The size up to which a block is alone on its page.
SMALL = 512


def listed(target: Running, state: str) -> dict[str, Any]:
    """Return the complete list of blocks in that state."""
    answer = ask("chunks", str(target.pid), f"--state={state}", "--sort=address", "--top=0", "--max-stop=60")
    assert {row["state"] for row in answer["rows"]} <= {state}
    assert answer["count"] == len(answer["rows"])
    assert answer["total"]["bytes"] == sum(row["size"] for row in answer["rows"])
    return answer


def cached_bytes(target: Running, folder: Path) -> int | None:
    """Return the bytes in thread caches by the allocator's own count; None if it has none."""
    target.go_on("stats")
    file = folder / "table.stats"
    rows = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    found = [int(row[-1]) for row in rows if row[0] in ("tcache_bytes", "tcmalloc.thread_cache_free_bytes")]
    return sum(found) if rows else None


@pytest.mark.parametrize("name", NAMES)
def test_states(name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check a program with four threads that freed nine blocks in ten."""
    library = None if programs.ROOT_FOLDER else ctypes.util.find_library(name)
    if library is None:
        pytest.skip(f"no lib{name} here")
    with running(program(4, 20_000, rng, tmp_path), tmp_path, {"LD_PRELOAD": library}) as target:
        before = held(tmp_path)[1]
        target.go_on("drop")
        after = held(tmp_path)[1]
        said = cached_bytes(target, tmp_path)
        free, cached, used = (listed(target, state) for state in ("free", "tcache", "used"))
        sizes = others(ask("sizes", str(target.pid), "--top=0"))
    live = {pointer for pointer, *_ in after}
    places = {row["address"] for row in (*free["rows"], *cached["rows"])}
    assert live <= {row["address"] for row in used["rows"]} | _aligned(name, live, used) and not live & places
    pages = {(pointer // PAGE, usable) for pointer, usable, _ in after if usable <= SMALL}
    gone = [pointer for pointer, usable, _ in before if pointer not in live and (pointer // PAGE, usable) in pages]
    assert gone and not set(gone) - places - _aligned(name, set(gone), free)
    assert said is None or cached["total"]["bytes"] == said
    assert sum(row["total"]["free_count"] for row in sizes) == free["count"] + cached["count"]


def _aligned(name: str, pointers: set[int], listed: dict[str, Any]) -> set[int]:
    """Return the pointers that are inside of blocks, as mimalloc's aligned pointers are."""
    if name != "mimalloc":
        return set()
    rows = listed["rows"]
    starts = [row["address"] for row in rows]
    found = set()
    for pointer in pointers:
        place = bisect.bisect_right(starts, pointer) - 1
        if place >= 0 and pointer < starts[place] + rows[place]["size"]:
            found.add(pointer)
    return found
