"""The bytes that all objects of a type retain together equal those freed by leaving all of them out, on random
graphs."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path

import pytest
from support.graphs import started
from support.library import heap_of
from support.programs import KINDS, RELEASE, ask, gdbheap, release_program, running

from gdbheap._native import Edge, GraphNode
from gdbheap.answers.retained import retained
from gdbheap.contents.python.objects.references import BY_INNER, BY_PADDING, BY_REMAINS
from gdbheap.graph.nodes import DOUBTFUL, STRAY
from gdbheap.heap import Heap

PHASE_OF = {DOUBTFUL: BY_PADDING, STRAY: BY_INNER}


@pytest.mark.parametrize("build", [*KINDS, "2.7", "3.13-mimalloc", "3.13t"])
def test_retained_together(build: str, rng: random.Random, tmp_path: Path) -> None:
    """Check all objects of a class by the program's own report; other types, modules, and any few objects by a
    search of the graph without them."""
    arguments = (rng.getrandbits(32), rng.choice([30, 1000, 10_000]), tmp_path / "truth")
    with started(build, tmp_path, "random_classes", *arguments) as target, heap_of(str(target.pid)) as heap:
        graph = heap.references.graph
        rows = {row.address: row for row in retained(heap, "type", None).rows}
        by_name = {row.type: row.retained for row in rows.values()}
        for name, lost in json.loads((tmp_path / "truth").read_text()).items():
            expected = sum(node.size for node in heap.references.nodes([graph.find(one) or 0 for one in lost]))
            assert by_name.get(f"__main__.{name}", 0) == expected, name
        plain = Plain(heap)
        for address in rng.sample(sorted(rows), 20):
            members = {number for number, node in enumerate(plain.nodes) if _is_of(node, address)}
            assert rows[address].retained == plain.retained(members), rows[address]
        modules = {row.address: row.retained for row in retained(heap, "module", None).rows}
        for address in rng.sample(sorted(modules), 5):
            members = {graph.find(address) or 0, graph.find(dict_of(heap, address)) or 0}
            assert modules[address] == plain.retained(members), hex(address)
        sets = [rng.sample(range(len(plain.nodes)), rng.randrange(1, 9)) for _ in range(20)]
        assert graph.retained_together(sets) == [plain.retained(set(one)) for one in sets]
        top = rng.randrange(1, 30)
        assert retained(heap, "type", top).rows == retained(heap, "type", None).rows[:top]


def dict_of(heap: Heap, module: int) -> int:
    """Return a module's dict: the word after the object's header."""
    return heap.target.space.word(module + heap.python.interpreter.release.at(16))


def _is_of(node: GraphNode, kind: int) -> bool:
    return node.type_address == kind and node.kind == "object"


class Plain:
    """The graph as plain lists, searched from its roots."""

    def __init__(self, heap: Heap) -> None:
        graph = heap.references.graph
        self.nodes = [graph.node(number) for number in range(graph.nodes)]
        self.phases = graph.phases(range(graph.nodes))
        self.targets = [list(self.counting(number, graph.edges(number))) for number in range(graph.nodes)]
        self.whole = self.reached(set())

    def counting(self, source: int, edges: list[Edge]) -> Iterator[int]:
        """Yield the targets that an edge keeps alive.

        One that may be stale counts only if no better edge leads there, or if a block in use has it and it points to
        the beginning of a block that is no object's. Any number may point to the middle of a large block.
        """
        for edge in edges:
            phase = max(self.phases[source], PHASE_OF.get(edge.strength, 0))
            is_raw = self.nodes[edge.target].kind == "unknown" and self.nodes[edge.target].place == "block"
            may_hold = self.phases[source] < BY_PADDING and edge.strength != STRAY and is_raw
            if phase < BY_REMAINS or phase <= self.phases[edge.target] or may_hold:
                yield edge.target

    def reached(self, without: AbstractSet[int]) -> set[int]:
        """Return the nodes that are reachable from the roots without some nodes."""
        seen = {number for number, node in enumerate(self.nodes) if node.place == "root" and number not in without}
        left = list(seen)
        while left:
            new = {target for target in self.targets[left.pop()] if target not in seen and target not in without}
            seen |= new
            left += new
        return seen

    def retained(self, members: AbstractSet[int]) -> int:
        """Return the bytes that are unreachable without the members."""
        return sum(self.nodes[number].size for number in self.whole - self.reached(members))


def test_retained_says_who_holds_it(rng: random.Random, tmp_path: Path) -> None:
    """Check that the holder is a Python expression if there is one, otherwise words that name the variable."""
    commands = [("held_apart", []), ("pinned_arenas", [100, tmp_path / "truth"])]
    for name, arguments in commands:
        with running(release_program(RELEASE, name, rng.getrandbits(30), *arguments), tmp_path) as target:
            answer = ask("retained", str(target.pid), "--top=40")
            plain = gdbheap("retained", str(target.pid), "--top=40").stdout
        ways = {row["path"]: row["chain"] for row in answer["rows"]}
        assert all(ways.values())
        if name == "held_apart":
            assert ways["sys.modules['__main__'].cache"] == "sys.modules ['__main__'] .__dict__ ['cache']"
            continue
        (kept,) = (row for row in answer["rows"] if row["chain"].startswith("local variable kept in main() at pinned_"))
        assert (kept["type"], kept["path"]) == ("dict", None) and kept["chain"] in plain


@pytest.mark.parametrize("release", ["3.8", "3.11", "3.13"])
def test_holders_are_those_of_all(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the holder of one item among thousands is not named for the others, nor its path."""
    with running(release_program(release, "several_holders", rng.getrandbits(30)), tmp_path) as target:
        found = ask("retained", str(target.pid), "--top=all")["rows"]
    rows = {row["type"]: row for row in found if row["address"] is None}
    # Types are held by the interpreter's own data, too.
    assert all(name.strip() for row in rows.values() for name in row["other_holders"])
    shared, scattered = rows["__main__.Shared"], rows["__main__.Scattered"]
    assert sorted(shared["other_holders"]) == [f"sys.modules['__main__'].{name}" for name in ("again", "listed")]
    assert shared["path"].rstrip("[…]") in shared["other_holders"]
    assert (scattered["other_holders"], scattered["path"]) == (["sys.modules['__main__'].__dict__"], None)
