"""``gdbheap export --format=heapsnapshot``: the file follows V8's format, an independent parser opens it, and its
sizes, counts and references are those of the heap."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.programs import (
    KINDS,
    SOURCES,
    ask,
    c_program,
    gdbheap,
    interpreter_of,
    interpreter_of_release,
    python_program,
    running,
    since,
)

from gdbheap.export.heapsnapshot import _Ids

SECRET = "a-secret-that-no-graph-may-have"
# The npm package of Visual Studio Code's own viewer.
PARSER = Path(__file__).resolve().parent.parent / "build" / "node" / "node_modules" / "@vscode" / "v8-heap-parser"
SCRIPT = """
const graph = require(process.argv[1]).decode_bytes(require('fs').readFileSync(process.argv[2]));
const groups = graph.get_class_groups(0, 1e6, false);
const row = found => [found.name(), found.children_len, Number(found.self_size), Number(found.retained_size)];
console.log(JSON.stringify(groups.map(row)));
"""
# A program that makes one more object on request.
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
# A program that prints the names of its objects' references, and the references that the collector reports.
NAMES = """
import collections, gc, json, os, sys
class Plain:
    pass
class Own(Plain):
    pass
class Slotted:
    __slots__ = ("left", "right")
class Thing:
    pass
def made(kind, count):
    found = kind()
    for place in range(count):
        setattr(found, f"field_{place}", Thing())
    return found
plain, own, slotted = made(Plain, 5), made(Own, 3), Slotted()
slotted.left, slotted.right = Thing(), [Thing()]
own.__dict__["more"] = Thing()
row, pair = [Thing() for _ in range(7)], (Thing(), [Thing()], Thing())
queue = collections.deque(Thing() for _ in range(150))
table = {"inner_%d" % place: Thing() for place in range(4)}
table[sys.argv[2]] = Thing()
def stack():
    local_thing, other_thing = Thing(), [Thing()]
    yield local_thing, other_thing
frame = stack()
held = next(frame)
attributes = {id(one): {name: id(getattr(one, name)) for name in names} for one, names in (
    (plain, vars(plain)), (own, vars(own)), (slotted, Slotted.__slots__))}
items = {id(one): [id(item) for item in one] for one in (row, pair, queue)}
keys = {id(table): {key: id(value) for key, value in table.items()}}
names = ("plain", "own", "slotted", "row", "pair", "queue", "table", "frame", "Thing", "stack")
module = {id(globals()): {name: id(globals()[name]) for name in names}}
variables = {id(frame): {"local_thing": id(held[0]), "other_thing": id(held[1])}}
one = [plain, own, slotted, row, pair, queue, table]
referents = {id(each): [id(other) for other in gc.get_referents(each)] for each in one}
with open(sys.argv[1], "w") as stream:
    json.dump([attributes, items, keys, module, variables, referents], stream)
os.read(0, 100)
"""
Graph = dict[str, Any]


@pytest.fixture(scope="module", params=["python", "c++"])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Yield the name of a program, with Python or without, and the file of its graph."""
    folder = tmp_path_factory.mktemp("graph")
    command = python_program(KINDS[0], "secret_texts", SECRET, 100)
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
    """Check that all counts agree, that every edge leads to the first field of a node, that every name is a string,
    and that ids are unique."""
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
    assert all(edge["name_or_index"] in strings for edge in edges if types[edge["type"]] in ("property", "internal"))
    assert {types[edge["type"]] for edge in edges} <= {"element", "property", "internal", "weak"}
    assert SECRET not in written[1].read_text()


def test_sums(written: tuple[str, Path]) -> None:
    """Check that the bytes are those of all blocks in use, the objects those of each type, and the references those
    of heap refs."""
    pid, path = written
    graph = json.loads(path.read_text())
    nodes, names = rows_of(graph, "nodes"), graph["strings"]
    kinds = graph["snapshot"]["meta"]["node_types"][0]
    named = Counter(names[node["name"]] for node in nodes if node["self_size"])
    if SECRET in Path(f"/proc/{pid}/cmdline").read_text():
        objects = ask("pyobjects", pid)
        used = objects["all_used"]["bytes"]
        counts = {row["type"]: row["count"] for row in objects["rows"] if row["count"]}
        living = [node for node in nodes if kinds[node["type"]] in ("object", "string") and node["self_size"]]
        assert Counter(names[node["name"]] for node in living) == counts
    else:
        found = ask("chunks", pid, "--by=type")
        used = found["total"]["bytes"]
        assert all(named[row["type"]] == row["count"] for row in found["rows"])
    assert sum(node["self_size"] for node in nodes) == used


def test_other_parser(written: tuple[str, Path]) -> None:
    """Check that the parser of Visual Studio Code's viewer counts the same, and that its retained sizes agree with
    heap retained."""
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
        # Blocks that are reached only by words that may not be pointers are not counted there.
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
    """Check that the second of two snapshots has one object more, and that all others keep their ids."""
    count = rng.randrange(500, 3000)
    with running([interpreter_of("stripped"), "-c", GROWS, str(count)], tmp_path) as target:
        first, before = sessions_of(target.pid, tmp_path / "first.heapsnapshot")
        target.go_on()
        second, after = sessions_of(target.pid, tmp_path / "second.heapsnapshot")
    assert len(first) == count and len(second) == count + 1 and first < second
    assert len(before & after) > 0.95 * len(before)


def test_numbers_of_nodes(rng: random.Random) -> None:
    """Check that ids are odd, of 32 bits and unique, the same each time, and that nodes within 16 GiB keep theirs
    wherever others are."""
    near = [0x7F00_0000_0000 + 8 * place for place in rng.sample(range(1 << 31), 5000)]
    # Address windows that overlap in their lower bits, and addresses that no user process has.
    far = [address ^ (rng.randrange(1, 1 << 12) << 34) for address in near] + [rng.getrandbits(64) for _ in range(5000)]
    known = _Ids()
    numbers = [known.of_address(address) for address in [*near, *far]] + [known.of_root("a"), known.of_root("a")]
    assert len(set(numbers)) == len(numbers) and all(number % 2 and 1 < number < 1 << 32 for number in numbers)
    again = _Ids()
    rng.shuffle(near)
    assert {again.of_address(address) for address in near} == set(numbers[: len(near)])


class Named:
    """The edges of a file by name, for objects given by address."""

    def __init__(self, path: Path) -> None:
        graph = json.loads(path.read_text())
        self._strings, types = graph["strings"], graph["snapshot"]["meta"]["edge_types"][0]
        self._nodes, edges = rows_of(graph, "nodes"), iter(rows_of(graph, "edges"))
        self._edges: list[list[tuple[str, str | int, int]]] = []
        for node in self._nodes:
            own = [next(edges) for _ in range(node["edge_count"])]
            self._edges.append([(types[edge["type"]], self._name(types, edge), edge["to_node"] // 7) for edge in own])
        self._places = {node["id"]: place for place, node in enumerate(self._nodes)}

    def _name(self, types: list[str], edge: dict[str, int]) -> str | int:
        number = edge["name_or_index"]
        return number if types[edge["type"]] == "element" else str(self._strings[number])

    def held(self, address: int) -> list[tuple[str, str | int, int]]:
        """Return (type, name, place) of all edges of an object, of its dict or frame, and of their buffers."""
        first = self.place(address)
        assert first is not None
        found, waiting = [], [first]
        while waiting:
            own = self._edges[waiting.pop(0)]
            waiting += [place for _kind, name, place in own if name in ("(buffer)", "__dict__", "gi_frame")]
            found += own
        return found

    def place(self, address: int) -> int | None:
        """Return the node that begins at an address or a few words before it, if it is a block: the collector's
        header and the attributes precede an object."""
        ids = (_Ids().of_address(address - distance) for distance in (0, 16, 24, 32, 40, 48))
        return next((self._places[number] for number in ids if number in self._places), None)


@pytest.mark.parametrize("release", since("3.6"))
def test_names(release: str, tmp_path: Path, rng: random.Random) -> None:
    """Check that attributes, slots, items, keys and variables have the program's names and targets, and that each
    reference that the collector reports has a name. Keys are contents, names are not."""
    interpreter = interpreter_of_release(release)
    key, path, told = "".join(rng.choices("bcdfgh", k=12)), tmp_path / "a.heapsnapshot", tmp_path / "told"
    with running([interpreter.executable, "-c", NAMES, str(told), key], tmp_path) as target:
        pid = str(target.pid)
        assert gdbheap("export", pid, "-o", str(path), "--format=heapsnapshot").returncode == 0
        open_path = tmp_path / "b.heapsnapshot"
        shown = gdbheap("export", pid, "-o", str(open_path), "--format=heapsnapshot", "--with-contents")
        assert shown.returncode == 0, shown.stderr
    attributes, items, keys, module, variables, referents = (
        {int(holder): names for holder, names in part.items()} for part in json.loads(told.read_text())
    )
    found, opened = Named(path), Named(open_path)
    for said in (attributes, module, variables):
        for holder, names in said.items():
            edges = {(name, place) for kind, name, place in found.held(holder) if kind == "property"}
            assert {(name, found.place(address)) for name, address in names.items()} <= edges
    for holder, addresses in items.items():
        edges = {(name, place) for kind, name, place in found.held(holder) if kind == "element"}
        assert edges == {(index, found.place(address)) for index, address in enumerate(addresses)}
    for holder, names in keys.items():
        edges = {(name, place) for kind, name, place in opened.held(holder) if kind == "property"}
        assert {(repr(name), opened.place(address)) for name, address in names.items()} <= edges
        hidden = [name for kind, name, _place in found.held(holder) if kind == "property"]
        assert not set(names) & {str(name).strip("'") for name in hidden}
    assert key not in path.read_text() and key in open_path.read_text()
    for holder, addresses in referents.items():
        named = {place for kind, _name, place in found.held(holder) if kind != "weak"}
        assert {found.place(address) for address in addresses} - {None} <= named
        # All named references: those without a name are numbered, and only sequences have numbers.
        if holder not in items:
            assert not [edge for edge in found.held(holder) if edge[0] == "element"]


def test_names_of_words(tmp_path: Path, rng: random.Random) -> None:
    """Check that references from blocks that are no objects are named by their offsets, as the program recorded
    them."""
    path, told = tmp_path / "a.heapsnapshot", tmp_path / "truth"
    with running(c_program("random_c_graph", rng.getrandbits(31), 400, 3, told), tmp_path) as target:
        assert gdbheap("export", str(target.pid), "-o", str(path), "--format=heapsnapshot").returncode == 0
    words = struct.unpack(f"<{told.stat().st_size // 8}Q", told.read_bytes())
    count = words[0]
    blocks = [~address & (1 << 64) - 1 for address in words[1 : 1 + 3 * count : 3]]
    rows = iter(words[2 + 3 * count :])
    edges = list(zip(rows, rows, rows, rows))
    assert len(edges) == words[1 + 3 * count] > 100
    found = Named(path)
    # A word that leads from a block to itself keeps nothing alive, and is no reference.
    others = [(source, place, target) for source, place, target, _inside in edges if source != target]
    wanted = {(source, f"+{place}", found.place(blocks[target])) for source, place, target in others}
    inner = {found.place(block) for block in blocks}
    named = {
        (source, name, place)
        for source, block in enumerate(blocks)
        for _kind, name, place in found.held(block)
        if place in inner
    }
    # If several words lead from one block to another, not all of them need be references.
    assert named <= wanted
    assert {(source, target) for source, _name, target in named} == {(source, target) for source, _, target in wanted}


@pytest.mark.parametrize("more", [["--with-contents", "--no-text"], ["--with-contents", "--format=csv"]], ids=" ".join)
def test_contents_that_cannot_be_shown(more: list[str], tmp_path: Path) -> None:
    """Check that options that exclude each other give one line."""
    words = ["export", str(os.getpid()), "-o", str(tmp_path / "a.heapsnapshot"), "--format=heapsnapshot", *more]
    done = gdbheap(*words)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and "--with-contents" in done.stderr
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("name", ["graph.json", "graph", "graph.heapsnapshot.gz"])
def test_a_name_that_nobody_opens(name: str, tmp_path: Path) -> None:
    """Check that a file name without DevTools' ending is refused before anything is read."""
    done = gdbheap("export", str(os.getpid()), "-o", str(tmp_path / name), "--format=heapsnapshot")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and "FILE.heapsnapshot" in done.stderr
    assert not os.listdir(tmp_path)


def test_not_written(tmp_path: Path) -> None:
    """Check that a snapshot, which has no graph, gives one line and no file."""
    with running(python_program(KINDS[0], "secret_texts", SECRET, 5), tmp_path) as target:
        assert gdbheap("snapshot", str(target.pid), str(tmp_path / "look.heap")).returncode == 0
    out = tmp_path / "out.heapsnapshot"
    done = gdbheap("export", str(tmp_path / "look.heap"), "-o", str(out), "--format=heapsnapshot")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and "no graph" in done.stderr
    assert not out.exists() and not [name for name in os.listdir(tmp_path) if name.endswith(".part")]
