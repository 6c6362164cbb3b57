"""Numbers are not pointers: a heap below 4 GiB, at addresses that equal numbers in static data, keeps its owners.

Blocks of a library's own allocator that begin with a header, such as SQLite's, are reached by more than stray words.
"""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

import pytest
from strays import COUNTS, KINDS, ONE, fixed, grown, hung, measured, named
from support.graphs import started
from support.library import heap_of
from support.programs import (
    RELEASES,
    SOURCES,
    ask,
    interpreter_of,
    interpreter_of_release,
    release_program,
    running,
    since,
)

from gdbheap.graph.nodes import STRAY

pytestmark = pytest.mark.cases(3)

MAX_FALSE = 0.001
STARTS = 2
SIZE, SMALL = 16 << 20, 4 << 20


@pytest.mark.parametrize("number", [COUNTS, ONE])
@pytest.mark.parametrize("kind", KINDS)
def test_numbers_do_not_own(kind: str, number: int, rng: random.Random, tmp_path: Path) -> None:
    """Check that a tree of C's belongs to the one object that holds it, wherever its blocks are."""
    for _ in range(STARTS if number == COUNTS else 1):
        shares = measured(kind, number, SIZE, rng.getrandbits(32), tmp_path)
        assert shares.false < MAX_FALSE, shares


def test_floats_in_objects(rng: random.Random, tmp_path: Path) -> None:
    """Check that 1.0 in some of many objects is no reference, even if a block begins at the address with those bits."""
    command = [fixed(), str(SOURCES / "round_numbers.py"), str(rng.randrange(1, 20))]
    with running(command, tmp_path) as target:
        rows = ask("unreachable", str(target.pid), "--top=100000")["rows"]
    assert ONE in [address for row in rows for address in row["addresses"]]


def test_table_of_types(tmp_path: Path) -> None:
    """Check that the interpreter's table of the types of syntax trees is no row of static objects, whose counts are
    numbers."""
    script = "import sys; compile('a += 1', '', 'exec', 0x400); print('READY', flush=True); sys.stdin.read()"
    for python in {fixed(), interpreter_of("stripped")}:
        with running([python, "-I", "-c", script], tmp_path) as target:
            rows = ask("unreachable", str(target.pid), "--top=100000")["rows"]
        assert [row for row in rows if row["group"] == "lost_references"] == [], python


@pytest.mark.parametrize("release", [release for release in since("3.7") if release in RELEASES])
def test_database_in_memory(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the pages of a database in memory belong to the Connection, which retains them, and do not count as
    reached by stray words alone."""
    python = interpreter_of_release(release).executable
    with hung(python, "sqlite3", 0, SMALL, rng.getrandbits(32), tmp_path) as target:
        own, _others = named(target, "sqlite3.")
        stray = ask("unreachable", str(target.pid))["doubtful"]["bytes"]
        target.go_on()
        size = grown(target)
        own_later, _others = named(target, "sqlite3.")
        stray_later = ask("unreachable", str(target.pid))["doubtful"]["bytes"]
        rows = ask("retained", str(target.pid), "--top=10")["rows"]
    assert own_later - own >= (1 - MAX_FALSE) * size
    assert stray_later - stray <= MAX_FALSE * size, (stray_later, stray, size)
    assert any(
        row["type"] == "sqlite3.Connection" and (row["at_most"] or row["retained"]) >= (1 - MAX_FALSE) * size
        for row in rows
    ), rows


@pytest.mark.parametrize("release", [release for release in since("3.7") if release in RELEASES and release != "3.15"])
def test_end_of_a_block_of_a_module_state(release: str, tmp_path: Path) -> None:
    """Check that the block's words after the state, whose size the module declares, are stale and lead nowhere."""
    with started(release, tmp_path, "state_slack", tmp_path / "truth") as target, heap_of(str(target.pid)) as heap:
        truth = json.loads((tmp_path / "truth").read_text())
        graph = heap.references.graph
        victim = graph.find(truth["victim"])
        assert victim is not None and truth["states"]
        for state in truth["states"]:
            found = graph.find(state)
            assert found is not None
            assert victim not in [edge.target for edge in graph.edges(found)], hex(state)


@pytest.mark.parametrize("release", [release for release in ("3.8", "3.9", "3.10") if release in RELEASES])
def test_word_after_a_cache(release: str, rng: random.Random) -> None:
    """Check that a stale word in the last bytes of a block is no reference to an object whose count has no room for
    it."""
    command = release_program(release, "short_code_caches", rng.randrange(100, 300))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pairs = [tuple(map(int, pair.split(":"))) for pair in process.stdout.readline().split()]
        with heap_of(str(process.pid)) as heap:
            graph = heap.references.graph
            numbers = [(graph.find(holder), graph.find(held) or 0) for holder, held in pairs]
            stale = [edge for edge in graph.referrers({held for _, held in numbers}) if edge.strength == STRAY]
            assert [pair for pair in numbers if pair[0] not in graph.dominator_chain(pair[1])] == []
            # The words are there: four in ten were seen.
            assert len(stale) >= len(pairs) // 10
        process.kill()
