"""``gdbheap export --format=heapsnapshot``: the file is what V8 says that one is, other people's parser opens it, and
its sizes, counts and references are those of the heap."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.programs import KINDS, SOURCES, ask, gdbheap, interpreter_of, python_program, running

from gdbheap.tables.heapsnapshot import _Ids

SECRET = "a-secret-that-no-graph-may-have"
# npm's, of Visual Studio Code's own viewer.
PARSER = Path(__file__).resolve().parent.parent / "build" / "node" / "node_modules" / "@vscode" / "v8-heap-parser"
SCRIPT = """
const graph = require(process.argv[1]).decode_bytes(require('fs').readFileSync(process.argv[2]));
const groups = graph.get_class_groups(0, 1e6, false);
const row = found => [found.name(), found.children_len, Number(found.self_size), Number(found.retained_size)];
console.log(JSON.stringify(groups.map(row)));
"""
# Has one object more when it is told so.
GROWS = """
import os, sys
class Session:
    def __init__(self, number):
        self.number, self.data = number, bytearray(2000)
held = [Session(number) for number in range(int(sys.argv[1]))] + [None]
os.read(0, 100)
held[-1] = Session(0)
os.read(0, 100)
"""
Graph = dict[str, Any]


@pytest.fixture(scope="module", params=["python", "c++"])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A program, with Python or without, and the file of its graph."""
    folder = tmp_path_factory.mktemp("graph")
    command = python_program(KINDS[0], "secrets", SECRET, 100)
    if request.param == "c++":
        compiler = shutil.which("g++") or pytest.skip("no g++")
        command = [str(folder / "classes")]
        subprocess.run([compiler, "-O1", "-s", str(SOURCES / "classes.cc"), "-o", *command], check=True)
    with running(command, folder) as target:
        path = folder / "graph.heapsnapshot"
        done = gdbheap("export", str(target.pid), "-o", str(path), "--format=heapsnapshot")
        assert done.returncode == 0, done.stderr
        yield str(target.pid), path


def rows_of(graph: Graph, what: str) -> list[dict[str, int]]:
    """Return the nodes or the edges, by the names of their fields."""
    names = graph["snapshot"]["meta"][f"{what[:-1]}_fields"]
    cells = iter(graph[what])
    rows = [dict(zip(names, row)) for row in zip(*[cells] * len(names))]
    assert len(rows) * len(names) == len(graph[what])
    return rows


def test_form(written: tuple[str, Path]) -> None:
    """All counts fit, every edge leads to the first field of a node, every name is a string, no id comes twice."""
    graph = json.loads(written[1].read_text())
    meta, nodes, edges = graph["snapshot"]["meta"], rows_of(graph, "nodes"), rows_of(graph, "edges")
    assert len(nodes) == graph["snapshot"]["node_count"] and len(edges) == graph["snapshot"]["edge_count"]
    assert sum(node["edge_count"] for node in nodes) == len(edges)
    assert len({node["id"] for node in nodes}) == len(nodes)
    assert nodes[0]["id"] == 1 and all(node["id"] % 2 and node["id"] < 1 << 32 for node in nodes)
    width, types = len(meta["node_fields"]), meta["edge_types"][0]
    strings = range(len(graph["strings"]))
    assert all(edge["to_node"] % width == 0 and edge["to_node"] // width < len(nodes) for edge in edges)
    assert all(node["name"] in strings and node["type"] < len(meta["node_types"][0]) for node in nodes)
    assert all(edge["name_or_index"] in strings for edge in edges if types[edge["type"]] == "weak")
    assert {types[edge["type"]] for edge in edges} <= {"element", "weak"}
    assert SECRET not in written[1].read_text()


def test_sums(written: tuple[str, Path]) -> None:
    """Its bytes are those of all blocks in use, its objects those of each type, its references those of heap refs."""
    pid, path = written
    graph = json.loads(path.read_text())
    nodes, names = rows_of(graph, "nodes"), graph["strings"]
    kinds = graph["snapshot"]["meta"]["node_types"][0]
    named = Counter(names[node["name"]] for node in nodes if node["self_size"])
    if SECRET in Path(f"/proc/{pid}/cmdline").read_text():
        objects = ask("pyobjects", pid)
        used = objects["used"]["bytes"]
        counts = {row["type"]: row["count"] for row in objects["types"] if row["count"]}
        living = [node for node in nodes if kinds[node["type"]] in ("object", "string") and node["self_size"]]
        assert Counter(names[node["name"]] for node in living) == counts
    else:
        found = ask("chunks", pid, "--by=type")
        used = found["total"]["bytes"]
        assert all(named[row["type"]] == row["count"] for row in found["types"])
    assert sum(node["self_size"] for node in nodes) == used


def test_other_parser(written: tuple[str, Path]) -> None:
    """The parser of Visual Studio Code's viewer counts the same, and what it finds retained agrees with heap
    retained."""
    node = shutil.which("node") or pytest.skip("no node")
    if not PARSER.exists():
        pytest.skip("no build/node: npm install --prefix build/node @vscode/v8-heap-parser@0.1 makes it")
    pid, path = written
    done = subprocess.run([node, "-e", SCRIPT, str(PARSER), str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    groups = {name: row for name, *row in json.loads(done.stdout)}
    nodes = rows_of(json.loads(path.read_text()), "nodes")
    assert sum(count for count, *_sizes in groups.values()) == len(nodes)
    assert sum(size for _count, size, _kept in groups.values()) == sum(node["self_size"] for node in nodes)
    if SECRET in Path(f"/proc/{pid}/cmdline").read_text():
        # What is reached only by words that may be no pointers is not counted there.
        ours = {row["type"]: row for row in ask("retained", pid, "--by=type")["rows"]}
        common = [name for name in groups if name in ours and ours[name]["count"] == groups[name][0]]
        assert len(common) > 20

        def is_close(name: str) -> bool:
            retained = ours[name]["retained"]
            return bool(abs(groups[name][2] - retained) <= retained / 10)

        assert sum(map(is_close, common)) > 0.8 * len(common)


def sessions_of(pid: int, path: Path) -> tuple[set[int], set[int]]:
    """Write the graph; return the ids of the program's own objects, and those of all nodes."""
    done = gdbheap("export", str(pid), "-o", str(path), "--format=heapsnapshot")
    assert done.returncode == 0, done.stderr
    graph = json.loads(path.read_text())
    nodes, names = rows_of(graph, "nodes"), graph["strings"]
    return {node["id"] for node in nodes if names[node["name"]] == "__main__.Session"}, {node["id"] for node in nodes}


def test_two_of_one_process(tmp_path: Path, rng: random.Random) -> None:
    """Of two snapshots of one process the second has one object more; all others have the numbers that they had."""
    count = rng.randrange(500, 3000)
    with running([interpreter_of("stripped"), "-c", GROWS, str(count)], tmp_path) as target:
        first, before = sessions_of(target.pid, tmp_path / "first.heapsnapshot")
        target.go_on()
        second, after = sessions_of(target.pid, tmp_path / "second.heapsnapshot")
    assert len(first) == count and len(second) == count + 1 and first < second
    assert len(before & after) > 0.95 * len(before)


def test_numbers_of_nodes(rng: random.Random) -> None:
    """They are odd, of 32 bits and never twice, the same each time, and those within 16 GiB are alone in having theirs,
    wherever else nodes are."""
    near = [0x7F00_0000_0000 + 8 * place for place in rng.sample(range(1 << 31), 5000)]
    # Windows whose upper bits lay them over one another, and addresses that no user's memory has.
    far = [address ^ (rng.randrange(1, 1 << 12) << 34) for address in near] + [rng.getrandbits(64) for _ in range(5000)]
    known = _Ids()
    numbers = [known.of_address(address) for address in [*near, *far]] + [known.of_root("a"), known.of_root("a")]
    assert len(set(numbers)) == len(numbers) and all(number % 2 and 1 < number < 1 << 32 for number in numbers)
    again = _Ids()
    rng.shuffle(near)
    assert {again.of_address(address) for address in near} == set(numbers[: len(near)])


@pytest.mark.parametrize("name", ["graph.json", "graph", "graph.heapsnapshot.gz"])
def test_a_name_that_nobody_opens(name: str, tmp_path: Path) -> None:
    """DevTools take a file by the end of its name: another is refused before anything is read."""
    done = gdbheap("export", str(os.getpid()), "-o", str(tmp_path / name), "--format=heapsnapshot")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and "FILE.heapsnapshot" in done.stderr
    assert not os.listdir(tmp_path)


def test_not_written(tmp_path: Path) -> None:
    """A snapshot has no graph: one line, and no file."""
    with running(python_program(KINDS[0], "secrets", SECRET, 5), tmp_path) as target:
        assert gdbheap("snapshot", str(target.pid), str(tmp_path / "look.heap")).returncode == 0
    out = tmp_path / "out.heapsnapshot"
    done = gdbheap("export", str(tmp_path / "look.heap"), "-o", str(out), "--format=heapsnapshot")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and "no graph" in done.stderr
    assert not out.exists() and not [name for name in os.listdir(tmp_path) if name.endswith(".part")]
