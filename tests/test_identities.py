"""Figures of answers that no program counts for itself: each equals another figure of the same process, from another
answer, from the kernel, or from a file that was written."""

from __future__ import annotations

import csv
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.library import heap_of
from support.programs import KINDS, Running, ask, c_program, gdbheap, interpreter_of, running

from gdbheap.answers.pools import pools
from gdbheap.snapshots.file import read

# A chain of lists, cycles that nothing collects, equal texts, and a child that was forked.
PROGRAM = """
import gc, os, random, signal, sys
rng = random.Random(int(sys.argv[1]))
gc.disable()
class One: pass
for _ in range(200):
    made = One()
    made.self, made.data = made, bytes(rng.randrange(100, 5000))
del made
kept, chain = [str(number) * rng.randrange(1, 99) for number in range(5000)], []
holes = [bytes(rng.randrange(1000, 9000)) for _ in range(2000)][::3]
for _ in range(200): chain = [chain]
pins = [bytes(700) for _ in range(10_000)][::80]
at, depths = chain, []
for _ in range(100):
    depths.append(id(at))
    at = at[0]
child = os.fork()
if not child: signal.pause()
print(child, *depths, file=sys.stderr, flush=True)
os.read(0, 1)
os.kill(child, signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Yield the program."""
    command = [interpreter_of(KINDS[0]), "-I", "-c", PROGRAM, str(random.getrandbits(30))]
    with running(command, tmp_path_factory.mktemp("identities")) as found:
        yield found
        os.kill(int(found.stderr.split()[0]), 9)


def test_cycles(target: Running) -> None:
    """Check that what closes the cycles adds up to them, and that gc.collect() can free all of them."""
    answer = ask("unreachable", str(target.pid))
    cycles = answer["cycles"]
    assert cycles["collectable_bytes"] == cycles["bytes"] > 0 == cycles["possible_bytes"]
    assert cycles["collectable_objects"] == cycles["objects"]
    assert all(row["is_collectable"] for row in answer["closings"])
    assert len(answer["closings"]) >= 20 or sum(row["bytes"] for row in answer["closings"]) == cycles["bytes"]
    assert sum(row["bytes"] for row in answer["rows"] if row["group"] == "cycles") <= cycles["bytes"]


def test_pins(target: Running) -> None:
    """Check that the sums of each allocator are those of its rows, and that its described blocks are the members."""
    answer = ask("pins", str(target.pid))
    assert answer["resident_known"] is True and answer["rows"]
    for row in answer["sums"]:
        own = [pin for pin in answer["rows"] if pin["allocator"] == row["allocator"]]
        assert (row["groups"], row["blocks"]) == (len(own), sum(pin["blocks"] for pin in own))
        assert (row["bytes"], row["would_free"]) == (sum(p["size"] for p in own), sum(p["would_free"] for p in own))
        assert row["described"] == sum(len(pin["members"]) for pin in own) and len(row["units"]) == 2
    assert sum(row["described"] for row in answer["sums"]) == sum(row["blocks"] for row in answer["by_kind"])


def test_a_chain_of_lists(target: Running) -> None:
    """Check that each list of the chain has exactly one more dominator than the one that holds it, with its buffer,
    and that the list of dominators is cut but not the count."""
    addresses = list(map(int, target.stderr.split()[1:]))
    found = [ask("why", str(target.pid), str(addresses[depth])) for depth in (10, 11, 90)]
    counts = [answer["dominator_count"] for answer in found]
    step = counts[1] - counts[0]
    assert step in (1, 2) and counts[2] - counts[0] == 80 * step
    assert all(len(answer["dominators"]) <= answer["dominator_count"] for answer in found)


def test_a_snapshot_is_counted(target: Running, tmp_path: Path) -> None:
    """Check that the counts of a written snapshot are those of the file that is read."""
    path = tmp_path / "a.heap"
    done = gdbheap("snapshot", str(target.pid), str(path), "--owners", "--blocks", "--json")
    answer, found = json.loads(done.stdout), read(str(path)).snapshot
    assert (answer["file"], answer["size"]) == (str(path), path.stat().st_size)
    assert found.holes is not None and found.objects is not None and found.blocks is not None
    counts = [len(found.ledger.ledger), len(found.objects.rows), len(found.holes.rows), len(found.owners or [])]
    assert [answer[f"{name}_count"] for name in ("line", "type", "hole", "owner")] == counts
    assert answer["line_count"] > 5 and answer["type_count"] > 50 and answer["owner_count"] > 0
    assert (answer["hole_count"], answer["time"]) == (len(found.holes.rows), found.time)


def test_tables_are_counted(target: Running, tmp_path: Path) -> None:
    """Check that each exported table has the stated number of rows."""
    done = gdbheap("export", str(target.pid), "-o", str(tmp_path / "tables"), "--format=csv", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    for table in answer["rows"]:
        path = tmp_path / "tables" / table["file"]
        with path.open(newline="", encoding="utf-8") as file:
            assert table["row_count"] == sum(1 for _row in csv.reader(file)) - 1, table["name"]
        assert table["size"] == path.stat().st_size


def test_kinds_of_tallies(target: Running) -> None:
    """Check that a tally says what its rows have in common, and that its rows add up."""
    for name in ("size", "module"):
        answer = ask("pyobjects", str(target.pid), f"--by={name}")
        assert answer["tally_of"] == name
        assert answer["total"]["own"] == sum(row["own"] for row in answer["rows"])


def test_kinds_of_blocks(target: Running, tmp_path: Path) -> None:
    """Check that the kinds of C's blocks say whether Python has objects besides."""
    assert ask("chunks", str(target.pid), "--by=type")["beside_python"] is True
    with running(c_program("recorder", 1, 5, 2000, 200, 2000, 0, tmp_path / "table"), tmp_path) as other:
        assert ask("chunks", str(other.pid), "--by=type")["beside_python"] is False


def test_parents(target: Running) -> None:
    """Check the parent of each process of a family against the kernel's."""
    rows = ask("processes", str(target.pid), "--children")["rows"]
    assert {row["pid"] for row in rows} == {target.pid, int(target.stderr.split()[0])}
    for row in rows:
        fields = Path(f"/proc/{row['pid']}/stat").read_text().rpartition(")")[2].split()
        assert row["parent_pid"] == int(fields[1])


def test_figures_of_top(target: Running) -> None:
    """Check that the figures of Python's own allocator are those of the pools."""
    done = gdbheap("top", str(target.pid), "--count=1", "--json")
    (row,) = json.loads(done.stdout.splitlines()[-1])["rows"]
    with heap_of(str(target.pid)) as heap:
        found: Any = pools(heap)
    assert row["pool_arenas"] == found.arenas * found.arena_size
    assert row["pool_used"] == sum(one.size * one.used_count for one in found.rows)


def test_a_replay(rng: random.Random, tmp_path: Path) -> None:
    """Check a replay's peak against the log's, and that its figures of one round agree with each other."""
    log = tmp_path / "calls.log"
    program = c_program("tallies", rng.getrandbits(30), 20_000)
    done = gdbheap("trace", "-o", str(log), "--json", "--", *program)
    assert done.returncode == 0 and json.loads(done.stdout.splitlines()[-1])["disk_full"] is False
    answer = json.loads(gdbheap("replay", str(log), "--json").stdout)
    stats = json.loads(gdbheap("calls", str(log), "--json").stdout)
    assert (answer["peak_call"], answer["peak_bytes"]) == (stats["peak"]["call"], stats["peak"]["bytes"])
    assert answer["repeated_mappings"] == 0
    (run,) = answer["rows"]
    assert 0 < run["final_rss"] <= run["peak_rss"] == run["least_peak_rss"] and run["rounds"] == 1
    assert run["ns_a_call"] * answer["calls"] == pytest.approx(run["seconds"] * 1e9, rel=0.01)
    curve = stats["curve"]["over_seconds"]
    assert max(point["most"] for point in curve) == stats["peak"]["bytes"]


def test_a_recording(target: Running, tmp_path: Path) -> None:
    """Check that a recording of a resting process has no doubtful sample, and says so."""
    path = tmp_path / "a.csv"
    done = gdbheap("record", str(target.pid), "--duration=200ms", "--every=50ms", "-o", str(path), "--json")
    assert json.loads(done.stdout)["doubtful_samples"] == 0
