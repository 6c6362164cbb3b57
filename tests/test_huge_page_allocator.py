"""jemalloc's huge page allocator (``hpa:true``): its pages are accounted for, by its own count (``mallctl``)."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest
from support import kernel
from support.jemallocs import BESIDE, NAMES, OF_A_THREAD, check_held, library, stats
from support.ledger_lines import check_families, roots, virtual_size
from support.library import heap_of
from support.programs import KERNEL_CORE, ask, running
from support.tables import held, program

from gdbheap.allocators.jemalloc.allocator import JemallocLibraries

PAGE = os.sysconf("SC_PAGE_SIZE")
HUGE = 2 << 20
CACHING = {"cached": "hpa:true", "uncached": "hpa:true,hpa_sec_nshards:0"}


@pytest.mark.parametrize("caching", CACHING)
@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith(("5.1", "5.2", "/"))])
def test_books(name: str, caching: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the blocks are the same in a process and in a core, that there are as many active and dirty pages as
    jemalloc counts, and that the ledger's lines cover all of its memory.
    """
    environment = {"LD_PRELOAD": library(name), "MALLOC_CONF": CACHING[caching]}
    with running(program(4, 20_000, rng, tmp_path), tmp_path, environment) as target:
        target.go_on("drop")
        said = stats(target, tmp_path)
        sums = {key: sum(said.get(f"hpa_{key}", Counter()).values()) for key in ("npageslabs", "nactive", "ndirty")}
        if not sums["npageslabs"]:
            pytest.skip("no huge page allocator in jemalloc, or one without statistics")
        _visited, rows = held(tmp_path)
        with heap_of(str(target.pid)) as heap:
            used = check_held(heap, rows)
            found = heap.allocator(JemallocLibraries)
            assert len(rows) <= used <= len(rows) + BESIDE + OF_A_THREAD * 4
            assert not found.damage and not heap.warnings and not any(found.store.astray)
            arenas = found.store.arena_use()
        answer = ask("", str(target.pid), "--detail")
        check_families(answer["ledger"])
        assert (roots(answer["ledger"], "resident"), roots(answer["ledger"], "swapped")) == kernel.rollup(target.pid)
        assert roots(answer["ledger"], "virtual") == virtual_size(target)
        core = target.as_form(KERNEL_CORE)
    with heap_of(core) as heap:
        assert check_held(heap, rows) == used and not heap.allocator(JemallocLibraries).damage
    pages = {key: sum(said.get(key, Counter()).values()) for key in ("pactive", "pdirty", "pmuzzy")}
    assert sum(row.active for row in arenas) == pages["pactive"] * PAGE
    # Extents that jemalloc keeps for the next request are active pages of its stretches, and free here. From 5.3.1 on,
    # dirty pages of stretches are among all dirty pages.
    counted = pages["pdirty"] + (0 if name.startswith("5.3.1") else sums["ndirty"])
    kept = sum(row.dirty for row in arenas) // PAGE - counted
    assert kept >= 0 if caching == "cached" else kept == 0, (kept, sums, pages)
    retained = sum(row.retained for row in arenas) - said["retained"][-1, 0]
    # The pages of its stretches that were never touched or were given back, and the part that is not cut yet.
    untouched = sums["npageslabs"] * HUGE - (sums["nactive"] + sums["ndirty"]) * PAGE
    assert retained >= untouched and (retained - untouched) % HUGE == 0
    lines = {line["id"]: line for line in answer["ledger"]}
    written = sum(requested for _pointer, _usable, requested in rows)
    assert lines["jemalloc.used"]["resident"] >= written
    # Only the program's own table and its threads' storage are left.
    assert lines["other"]["resident"] < HUGE
