"""Arenas of other allocators than the C library's: ``heap chunks --arena`` accepts the arenas of ``heap arenas``,
and lists the blocks that the allocator counts there, by arena (``mallctl``), by heap (``mi_heap_visit_blocks``) or
by cache (``MallocExtension_GetNumericProperty``)."""

from __future__ import annotations

import bisect
import ctypes.util
import os
import random
import shutil
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from support import programs
from support.other_sizes import others as other_sizes
from support.programs import Running, ask, gdbheap, running
from support.sessions import Session, session
from support.tables import held, program

PAGE = os.sysconf("SC_PAGE_SIZE")
THREADS = 4


def library(name: str) -> str:
    """Return the system's library of that name; skip the test if there is none."""
    found = None if programs.ROOT_FOLDER else ctypes.util.find_library(name)
    if found is None:
        pytest.skip(f"no lib{name} here")
    return found


def told(target: Running, folder: Path) -> list[list[str]]:
    """Return the lines of the allocator's current counts."""
    target.go_on("stats")
    return [line.split() for line in (folder / "table.stats").read_text().splitlines()]


def of_others(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the arenas that are not glibc's, by their numbers."""
    return sorted((row for row in answer["rows"] if row["allocator"] != "glibc"), key=lambda row: int(row["index"]))


def looked_at(target: Running) -> AbstractContextManager[Session]:
    """Return a session about the waiting program."""
    return session(target.pid, "--max-stop=60")


def in_arena(opened: Session, choice: str, state: str) -> dict[str, Any]:
    """Return the whole list of an arena's blocks in that state."""
    answer = opened.ask(f"chunks --arena={choice} --state={state} --sort=address --top=0")
    assert answer["count"] == len(answer["rows"]) and answer["total"]["bytes"] == sum(
        row["size"] for row in answer["rows"]
    )
    return answer


def check_whose(opened: Session, pointers: list[int], rows: list[dict[str, Any]]) -> None:
    """Check that each pointer is in the list of one arena, with that arena's number, as in the list of all of them."""
    places: dict[int, int] = {}
    ends: dict[int, int] = {}
    for row in rows:
        for block in in_arena(opened, row["choice"], "used")["rows"]:
            assert block["arena"] == row["index"] and block["address"] not in places
            places[block["address"]] = row["index"]
            ends[block["address"]] = block["address"] + block["size"]
    starts = sorted(places)
    for pointer in pointers:
        start = starts[bisect.bisect_right(starts, pointer) - 1]
        assert start <= pointer < ends[start]
    listed = opened.ask("chunks --state=used --sort=arena --top=0")["rows"]
    assert {block["address"]: block["arena"] for block in listed} == places
    assert [block["arena"] for block in listed] == sorted(block["arena"] for block in listed)


def check_holes(opened: Session, rows: list[dict[str, Any]]) -> None:
    """Check that a hole belongs to an arena if all of its free blocks do."""
    owners = {}
    for row in rows:
        lists = (in_arena(opened, row["choice"], state)["rows"] for state in ("free", "tcache"))
        owners[row["index"]] = sorted((block["address"], block["size"]) for blocks in lists for block in blocks)
    holes = opened.ask("holes --min=64 --top=0")["rows"]
    assert {hole["arena"] for hole in holes} - {None} == {index for index, blocks in owners.items() if blocks}
    for hole in holes:
        first, last = (hole["address"],), (hole["address"] + hole["size"],)
        parts = {
            index: blocks[slice(*(bisect.bisect_left(blocks, end) for end in (first, last)))]
            for index, blocks in owners.items()
        }
        inside = {index: sum(size for _address, size in blocks) for index, blocks in parts.items() if blocks}
        # Free runs of pages, which are not blocks, may lie in the same hole and belong to another arena.
        assert inside.keys() <= {hole["arena"]} or (hole["arena"] is None and hole["size"] not in inside.values())


def test_jemalloc(rng: random.Random, tmp_path: Path) -> None:
    """Check that the blocks of each arena, in use and in caches, are those that it has allocated by its own count."""
    environment = {"LD_PRELOAD": library("jemalloc"), "MALLOC_CONF": "narenas:3"}
    with running(program(THREADS, 3_000, rng, tmp_path), tmp_path, environment) as target:
        said, allocated, internal = told(target, tmp_path), dict[int, int](), dict[int, int]()
        for name, *place, value in said:
            if name in ("curregs", "curlextents"):
                arena, size = map(int, place)
                allocated[arena] = allocated.get(arena, 0) + size * int(value)
            if name == "internal":
                internal[int(place[0])] = int(value) // PAGE * PAGE
        with looked_at(target) as opened:
            rows = of_others(opened.ask("arenas"))
            assert len(rows) > 1 and [row["choice"] for row in rows] == [str(row["index"]) for row in rows]
            for row in rows:
                used, cached = (in_arena(opened, row["choice"], state) for state in ("used", "tcache"))
                assert (row["in_use"], row["cached"]) == (used["total"]["bytes"], cached["total"]["bytes"])
                own = internal.get(row["index"], 0)
                assert used["total"]["bytes"] + cached["total"]["bytes"] + own == allocated.get(row["index"], 0), row
            check_whose(opened, [pointer for pointer, *_ in held(tmp_path)[1]], rows)
            check_holes(opened, rows)
            named = opened.ask(f"chunks --arena=jemalloc:{rows[-1]['index']} --top=0")
            assert named["count"] == opened.ask(f"chunks --arena={rows[-1]['choice']} --top=0")["count"]
        shown = gdbheap("arenas", str(target.pid)).stdout
        assert f"{rows[-1]['choice']} " in shown
        check_refused(target, "999", f"lists {rows[0]['choice']} to {rows[-1]['choice']}")
        check_refused(target, "tcmalloc:0", f"lists {rows[0]['choice']} to {rows[-1]['choice']}")


def check_refused(target: Running, choice: str, why: str) -> None:
    """Check that an unknown arena is a wrong usage, and that the line lists the existing ones."""
    done = gdbheap("chunks", str(target.pid), f"--arena={choice}")
    assert done.returncode == 2 and f"there is no arena {choice}" in done.stderr and why in done.stderr, done.stderr


def test_mimalloc(rng: random.Random, tmp_path: Path) -> None:
    """Check that with one thread all blocks that its heap visits are that heap's, and that with several each block
    has one."""
    environment = {"LD_PRELOAD": library("mimalloc")}
    with running(program(1, 20_000, rng, tmp_path), tmp_path, environment) as target:
        visited, _rows = held(tmp_path)
        with looked_at(target) as opened:
            rows = of_others(opened.ask("arenas"))
            counts = [in_arena(opened, row["choice"], "used")["count"] for row in rows]
        assert visited in counts and rows[counts.index(visited)]["address"]
        assert not any(count for count in counts if count != visited)
    with running(program(THREADS, 20_000, rng, tmp_path), tmp_path, environment) as target:
        with looked_at(target) as opened:
            rows = of_others(opened.ask("arenas"))
            # Every second thread has ended, and left its blocks.
            assert len(rows) > THREADS // 2 and [row["index"] for row in rows] == list(range(len(rows)))
            for row in rows:
                assert row["in_use"] == in_arena(opened, row["choice"], "used")["total"]["bytes"]
            check_whose(opened, [pointer for pointer, *_ in held(tmp_path)[1]], rows)
            check_holes(opened, rows)
        check_refused(target, str(len(rows)), f"lists {rows[0]['choice']} to {rows[-1]['choice']}")


def test_tcmalloc(rng: random.Random, tmp_path: Path) -> None:
    """Check that tcmalloc has no arenas, that its caches have as many blocks as it counts, and that each live thread
    has a cache."""
    with running(
        program(THREADS, 20_000, rng, tmp_path), tmp_path, {"LD_PRELOAD": library("tcmalloc_minimal")}
    ) as target:
        said = {name.rpartition(".")[2]: int(value) for name, value in told(target, tmp_path)}
        answer, shown = ask("arenas", str(target.pid)), gdbheap("arenas", str(target.pid)).stdout
        check_refused(target, "0", "tcmalloc has none")
    sums = {
        kind: sum(row["bytes"] for row in answer["free_caches"] if row["kind"] == kind)
        for kind in ("thread", "transfer")
    }
    for kind, size in sums.items():
        assert size == said[f"{kind}_cache_free_bytes"], kind
    assert sums["thread"]
    # Remainders in spans count there, too.
    central = next(row for row in answer["free_caches"] if row["kind"] == "central")
    assert 0 < central["bytes"] <= said["central_cache_free_bytes"]
    threads = [row for row in answer["free_caches"] if row["kind"] == "thread"]
    assert len(threads) == len({row["address"] for row in threads}) >= THREADS // 2
    assert all(row["address"] is None for row in answer["free_caches"] if row["kind"] != "thread")
    assert "cache of a thread" in shown and "transfer caches" in shown


def test_musl(tmp_path: Path) -> None:
    """Check that the answer says that it has no arenas."""
    if programs.ROOT_FOLDER or shutil.which("musl-gcc") is None:
        pytest.skip("no musl-gcc")
    binary = tmp_path / "idle"
    subprocess.run(["musl-gcc", "-O1", str(programs.SOURCES / "idle.c"), "-o", str(binary)], check=True)
    with running([str(binary)], tmp_path) as target:
        check_refused(target, "0", "musl malloc")


def test_padding(rng: random.Random, tmp_path: Path) -> None:
    """Check builds of mimalloc with padding, which record requested sizes: the usable bytes of a block by the
    library are used, and the rest is slack."""
    built = sorted((Path(__file__).parents[1] / "build" / "mimallocs").glob("libmimalloc-*-secure.so"))
    if not built or programs.ROOT_FOLDER:
        pytest.skip("no secure build of mimalloc (scripts/mimallocs.sh)")
    with running(program(1, 20_000, rng, tmp_path), tmp_path, {"LD_PRELOAD": str(rng.choice(built))}) as target:
        _visited, rows = held(tmp_path)
        answer, sizes = ask("", str(target.pid)), other_sizes(ask("sizes", str(target.pid), "--top=0"))[0]
        blocks = ask("chunks", str(target.pid), "--state=used", "--sort=address", "--top=0", "--max-stop=60")["rows"]
    if all(block["asked"] is None for block in blocks):
        pytest.skip("this secure build has blocks without padding")
    lines = {line["id"]: line for line in answer["ledger"]}
    starts, said = [block["address"] for block in blocks], {}
    for pointer, usable, _requested in rows:
        block = blocks[bisect.bisect_right(starts, pointer) - 1]
        # A part of the block precedes an aligned pointer.
        said[block["address"]] = block["size"] - (pointer - block["address"] + usable)
    others = [block for block in blocks if block["address"] not in said]
    slack = sum(said.values()) + sum(block["size"] - block["asked"] for block in others)
    assert lines["libmimalloc.slack"]["virtual"] == slack > 8 * len(rows)
    assert lines["libmimalloc.used"]["virtual"] + slack == sum(block["size"] for block in blocks)
    assert sizes["total"]["used"] - sizes["asked"] == slack
    parts = ("used", "free", "slack", "overhead")
    assert sum(lines[f"libmimalloc.{part}"]["virtual"] for part in parts) == lines["libmimalloc"]["virtual"]


@pytest.mark.parametrize("known", [0, 1, 3])
def test_foreign_layout(known: int, tmp_path: Path) -> None:
    """Check that a map of pages with an unknown layout is refused in a line, even if a few pages look like a known
    one."""
    with running(programs.c_program("foreign_map", 40, known), tmp_path) as target:
        # Nothing is known about the rest.
        answer, facts = ask("", str(target.pid), status=5), ask("info", str(target.pid))["rows"]
    assert not [line for line in answer["ledger"] if line["id"].startswith("libmimalloc")]
    assert not [fact for fact in facts if "mimalloc" in fact["fact"]]
    (warning,) = [line for line in answer["warnings"] if "mimalloc" in line]
    assert "foreign_map" in warning and f"{known} of 40 entries" in warning and "cannot list its blocks" in warning


def test_known_layout(tmp_path: Path) -> None:
    """Check that the same map is accepted if all pages are as in a release."""
    with running(programs.c_program("foreign_map", 40, 40), tmp_path) as target:
        answer = ask("", str(target.pid))
    lines = {line["id"]: line["virtual"] for line in answer["ledger"]}
    assert lines["libmimalloc.used"] == 40 * 4 * 1024 and not [
        row for row in answer["warnings"] if "with an unknown layout" in row
    ]
