"""References where objects lie in CPython's mimalloc, or have larger heads (free-threaded builds, Py_TRACE_REFS), or
hooks: the same comparisons as in test_graph.py."""

from __future__ import annotations

import array
import functools
import json
import random
import subprocess
from pathlib import Path

import pytest
from kernel import maps
from library import heap_of
from programs import (
    ALL_RELEASES,
    FREE_THREADED,
    KERNEL_CORE,
    RELEASES,
    SOURCES,
    Interpreter,
    Running,
    entered,
    interpreter_of_release,
    interpreters,
    plain_environment,
    running,
)
from test_graph import NO_EXPRESSION, UNNAMED, evaluated, own_bytes

from gdbheap.answers.refs import refs
from gdbheap.answers.unreachable import unreachable
from gdbheap.answers.why import Why, why
from gdbheap.heap import Heap
from gdbheap.objects.references import EXACT

SIZE, SOME = 3_000, 20
LARGE = 4 << 20
TRACED = "traced"
MIMALLOC = [f"{release}-{mode}" for release in ("3.13", "3.14", "3.15") for mode in ("mimalloc", "mimalloc_debug")]
BUILDS = [*MIMALLOC, *FREE_THREADED, "2.7-dbg", "3.11-dbg", TRACED]
every_build = pytest.mark.parametrize("build", BUILDS)


@functools.cache
def traced() -> Interpreter:
    """Return an interpreter of 3.x whose objects are linked with each other: only those have sys.getobjects()."""
    for release in ALL_RELEASES[1:]:
        for interpreter in (*interpreters(release), *interpreters(f"{release}-dbg")):
            command = entered([interpreter.executable, "-c", "import sys; sys.getobjects"])
            done = subprocess.run(command, capture_output=True, env=plain_environment())
            if not done.returncode:
                return interpreter
    pytest.skip("no CPython 3 built with --with-trace-refs")


def started(build: str, name: str, *arguments: object) -> tuple[list[str], dict[str, str]]:
    """Return the command that runs tests/programs/NAME.py with one of BUILDS, and its environment."""
    release, _dash, mode = build.partition("-")
    environment = {"PYTHONMALLOC": mode} if build in MIMALLOC else {}
    if build == TRACED:
        interpreter = traced()
    else:
        interpreter = interpreter_of_release(release if environment else build)
    return [interpreter.executable, "-s", str(SOURCES / f"{name}.py"), *map(str, arguments)], environment


def truth_of(folder: Path) -> dict[str, list[int]]:
    """Return {structure: the addresses of its objects}."""
    truth: dict[str, list[int]] = json.loads((folder / "truth").read_text())
    return truth


def explained(target: str, addresses: list[int]) -> dict[int, Why]:
    """Return {address: the answer of heap why}, of one look at a pid or a core."""
    with heap_of(target) as heap:
        return {address: why(heap, address) for address in addresses}


def check_values(target: Running, found: dict[int, Why], addresses: list[int], folder: Path) -> None:
    """Assert that each object is the value, in the program, of the expression that leads there."""
    lost = [found[address].chain[:3] + found[address].chain[-3:] for address in addresses if not found[address].expression]
    assert not lost, lost[:3]
    expressions = [str(found[address].expression) for address in addresses]
    values = evaluated(target, expressions, folder)
    wrong = [(hex(a), expression) for a, expression, value in zip(addresses, expressions, values) if value != a]
    assert not wrong, wrong[:3]
    assert all(found[address].certain for address in addresses)


def check_variables(found: dict[int, Why], addresses: list[int], function: str) -> None:
    """Assert that each object is held by a variable of a function that runs."""
    for address in addresses:
        edges = [step.edge for step in found[address].chain]
        assert any("local variable" in edge and f"in {function}() at " in edge for edge in edges), edges


@every_build
def test_expressions_lead_there(build: str, rng: random.Random, tmp_path: Path) -> None:
    """Random objects of each structure are what the expression leads to; a kernel core says the same."""
    command, environment = started(build, "references", rng.getrandbits(32), SIZE, tmp_path / "truth")
    with running(command, tmp_path, environment) as target:
        truth = truth_of(tmp_path)
        for name in UNNAMED.get(build.split("-")[0], ()):
            del truth[name]
        asked = {name: rng.sample(some, min(SOME, len(some))) for name, some in truth.items()}
        addresses = [address for some in asked.values() for address in some]
        found = explained(str(target.pid), addresses)
        held = [address for name in NO_EXPRESSION for address in asked.pop(name)]
        check_variables(found, held, "hold")
        check_values(target, found, [address for some in asked.values() for address in some], tmp_path)
        few = rng.sample(addresses, SOME)
        found = explained(str(target.pid), few)
        assert explained(target.as_form(KERNEL_CORE), few) == found


@every_build
def test_retained_is_what_leaving_out_frees(build: str, rng: random.Random, tmp_path: Path) -> None:
    """An object dominates exactly what is not reached without it, and retains its bytes; referrers hold it."""
    command, environment = started(build, "random_graph", rng.getrandbits(32), 2000, 100, tmp_path / "truth")
    with running(command, tmp_path, environment) as target, heap_of(str(target.pid)) as heap:
        truth: list[tuple[int, list[int]]] = json.loads((tmp_path / "truth").read_text())
        check_retained(heap, truth)
        check_referrers(heap, rng.sample([one for one, _kept in truth], SOME))


def check_retained(heap: Heap, truth: list[tuple[int, list[int]]]) -> None:
    """Assert what each object dominates, and how many bytes that is."""
    graph = heap.references.graph
    everything = {address for _one, kept in truth for address in kept} | {one for one, _kept in truth}
    numbers = {address: graph.find(address) or 0 for address in everything}
    above = {address: set(graph.dominator_chain(number)) for address, number in numbers.items()}
    for one, kept in truth:
        dominated = {address for address in everything if numbers[one] in above[address]}
        assert dominated == set(kept), hex(one)
        assert graph.retained([numbers[one]]) == [sum(own_bytes(heap, numbers[a]) for a in kept)], hex(one)


def check_referrers(heap: Heap, some: list[int]) -> None:
    """Assert that what heap refs lists is named, and exact where the layout is known."""
    for one in some:
        found = refs(heap, one, None)
        assert found.count == len(found.referrers) > 0
        assert all(row.exact for row in found.referrers if row.type in ("list", "dict", "__main__.Slotted"))
        assert all(row.edge != "holds it" for row in found.referrers if row.exact), found


def lost_objects(heap: Heap) -> tuple[set[int], set[int]]:
    """Return the addresses of all objects that nothing keeps alive, and of all other blocks."""
    rows = unreachable(heap, 1 << 30).rows
    found: tuple[set[int], set[int]] = (set(), set())
    for row in rows:
        found[row.type is None].update(row.addresses)
    return found


@every_build
def test_what_nothing_keeps_alive(build: str, rng: random.Random, tmp_path: Path) -> None:
    """The planted cycles and the planted leaks to which no word leads, all of them and nothing else."""
    command, environment = started(build, "garbage", rng.getrandbits(32), tmp_path / "truth")
    with running(command, tmp_path, environment) as target, heap_of(str(target.pid)) as heap:
        objects, blocks = lost_objects(heap)
        planted, leaked = (set(map(int, line.split())) for line in (tmp_path / "truth").read_text().splitlines())
        left_over = leaked - {block + 1 for block in blocks}
        words = outer_words(target.pid, min(leaked), max(leaked) + LARGE)
        sizes = {address: heap.references.node(heap.references.graph.find(address) or 0).size for address in left_over}
    assert objects == planted, (len(objects - planted), len(planted - objects))
    assert {block + 1 for block in blocks} <= leaked
    assert all(any(address <= word + 1 < address + sizes[address] for word in words) for address in left_over)


def outer_words(pid: int, low: int, high: int) -> set[int]:
    """Return the words in [low, high) of a process's stack and static data, and of whatever is no larger: one that is
    left over there may still lead to a block."""
    found: set[int] = set()
    with Path(f"/proc/{pid}/mem").open("rb") as memory:
        for mapped in maps(pid):
            if mapped.perms.startswith("rw") and mapped.path != "[heap]" and mapped.end - mapped.start < LARGE:
                memory.seek(mapped.start)
                words = array.array("Q", memory.read(mapped.end - mapped.start))
                found.update(word for word in words if low <= word < high)
    return found


@every_build
def test_threads(build: str, rng: random.Random, tmp_path: Path) -> None:
    """What threads made that have ended, what others hold in variables only, and what both left unreachable."""
    command, environment = started(build, "workers", rng.getrandbits(32), 6, tmp_path / "truth")
    with running(command, tmp_path, environment) as target:
        truth = truth_of(tmp_path)
        with heap_of(str(target.pid)) as heap:
            found = {address: why(heap, address) for address in truth["links"] + truth["held"]}
            objects, _blocks = lost_objects(heap)
        check_variables(found, truth["held"], "wait")
        check_values(target, found, truth["links"], tmp_path)
    assert objects == set(truth["planted"])


# What the collector visits in objects of these types is all that they refer to.
WHOLE = ("list", "tuple", "cell", "function", "generator", "references.Link", "references.Slotted")


@pytest.mark.parametrize("build", [*RELEASES, *BUILDS])
def test_edges_are_what_the_collector_visits(build: str, rng: random.Random, tmp_path: Path) -> None:
    """What gc.get_referents() says of thousands of objects, all of it; of the plainest types nothing else."""
    command, environment = started(build, "referents", rng.getrandbits(32), 5000, tmp_path / "truth")
    with running(command, tmp_path, environment) as target, heap_of(str(target.pid)) as heap:
        lines = [list(map(int, line.split())) for line in (tmp_path / "truth").read_text().splitlines()]
        graph = heap.references.graph
        rows = {row[0]: {graph.find(address) for address in row[1:]} - {None} for row in lines}
        numbers = {address: number for address in rows if (number := graph.find(address)) is not None}
        nodes = dict(zip(numbers, heap.references.nodes(list(numbers.values()))))
        types = {address: heap.objects.names.name(node.type) for address, node in nodes.items() if node.type}
        assert len(types) > 4000
        for address, name in types.items():
            likely, certain = referred(heap, numbers[address])
            assert rows[address] <= likely | certain, (hex(address), name)
            assert name not in WHOLE or certain <= rows[address], (hex(address), name)


def referred(heap: Heap, number: int) -> tuple[set[int], set[int]]:
    """Return the nodes to which an object, or a buffer that it owns, leads for all that is known, and for sure."""
    graph = heap.references.graph
    found: tuple[set[int], set[int]] = (set(), set())
    seen, left = {number}, [number]
    while left:
        for target, strength in graph.edges(left.pop()):
            if graph.node(target)[4] != "buffer":
                found[strength == EXACT].add(target)
            elif target not in seen:
                seen.add(target)
                left.append(target)
    return found
