"""Paths from roots to blocks, each in one line, for the option ``--path``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby

from gdbheap.answers.accounting.traced import name_tables
from gdbheap.contents.python.names.paths import OWN_DICT, key_of
from gdbheap.contents.python.objects.references import MODULES
from gdbheap.errors import GdbheapError
from gdbheap.graph.paths import Path
from gdbheap.heap import Heap

MAX_PATHS = 2000
# The beginning of an edge from a frame object to a variable.
OF_FRAME = ": "
# The steps to a module's dict.
MODULE_STEPS = 3
MAX_EDGES_IN_WORDS = 8
# The text of an edge in a block of C code, as ObjectPaths.edge writes it; at most MAX_SIZES sizes are listed.
BLOCK_EDGE = re.compile(r" ?holds it \(a block of ([\d,]+) bytes\)")
MAX_SIZES = 4
INDEX = re.compile(r"\[\d+\]")
SUBSCRIPT = r"\[(\d+|<[^<>]*>|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")\]"
# A subscript after .__dict__ names an attribute of a class, not an item of a collection.
LAST_SUBSCRIPT, EACH_SUBSCRIPT = re.compile(r"(?<!\.__dict__)" + SUBSCRIPT + r"\Z"), re.compile(SUBSCRIPT)
ANY_SUBSCRIPT = "[…]"


def ways(heap: Heap, addresses: Iterable[int]) -> dict[int, str]:
    """Return the path to each block in use, as a Python expression if possible, otherwise as text.

    The result is {address: path}. ``addresses`` may lie anywhere in the blocks. Blocks that no root reaches are left
    out. All references are read to find the paths. Only the first MAX_PATHS addresses get a path. A warning is added if
    there are more addresses, or if references cannot be read.
    """
    wanted = list(dict.fromkeys(addresses))
    try:
        graph, paths = heap.references.graph, heap.paths
        name_tables(heap)
    except GdbheapError as error:
        heap.note("no-paths", error=str(error))
        return {}
    if len(wanted) > MAX_PATHS:
        heap.note("first-paths", most=MAX_PATHS, blocks=len(wanted))
    found = {}
    for address in wanted[:MAX_PATHS]:
        number = graph.find(address)
        way = "" if number is None else in_a_line(paths.path(graph.chain(number)))
        if way:
            found[address] = way
    return found


def in_a_line(path: Path) -> str:
    """Return a path as a Python expression if there is one, otherwise as text; empty if it has no steps."""
    return path.expression or in_words(path)


def in_words(path: Path) -> str:
    """Return the edges of a path in order, as words. A long path keeps only its first edge, which names the root, and
    its last edges.
    """
    edges = through_blocks(_as_attributes(_from_variable([step.edge for step in path.steps])))
    return " ".join(edges if len(edges) <= MAX_EDGES_IN_WORDS else [edges[0], "…", *edges[2 - MAX_EDGES_IN_WORDS :]])


def _from_variable(edges: list[str]) -> list[str]:
    """Return the edges. If the first edge is a running frame and the second is a variable of this frame, the first is
    left out. Up to CPython 3.10, the frame is an object that refers to the variable."""
    is_of_frame = len(edges) > 1 and edges[1].startswith(OF_FRAME) and edges[1].endswith(f" {edges[0]}")
    return [edges[1][len(OF_FRAME) :], *edges[2:]] if is_of_frame else edges


def _as_attributes(edges: list[str]) -> list[str]:
    """Return the edges with attributes. A step into an object's dict and a step to a name in it become one step
    ``.name``.

    Steps into the dicts of modules stay."""
    found: list[str] = []
    for edge in edges:
        is_of_module = len(found) == MODULE_STEPS and found[0].startswith(MODULES)
        key = key_of(edge) if found and found[-1] == OWN_DICT and not is_of_module else None
        if key is None:
            found.append(edge)
        else:
            found[-1] = f".{key}"
    return found


def through_blocks(edges: list[str]) -> list[str]:
    """Return the edges, with each run of C blocks merged into the edge before it, because edges of C blocks have no
    names.
    """
    found: list[str] = []
    for is_block, run in groupby(edges, key=lambda edge: BLOCK_EDGE.fullmatch(edge) is not None):
        passed = list(run)
        if is_block and (found or len(passed) > 1):
            before = f"{found.pop()}, " if found else ""
            found.append(f"{before}through {_blocks(passed)}")
        else:
            found += passed
    return found


def _blocks(edges: list[str]) -> str:
    """Return a text that says how many C blocks the edges belong to, and the sizes of the first ones."""
    sizes = [BLOCK_EDGE.sub(r"\1", edge) for edge in edges[:MAX_SIZES]]
    if len(edges) == 1:
        return f"a block of {sizes[0]} bytes"
    more = ", …" if len(edges) > MAX_SIZES else ""
    return f"{len(edges):,} blocks ({', '.join(sizes)}{more} bytes)"


def alike(way: str) -> str:
    """Return a path without its last subscript and without numbers, so that paths to items of one container are
    equal.
    """
    return INDEX.sub(ANY_SUBSCRIPT, LAST_SUBSCRIPT.sub(ANY_SUBSCRIPT, way))


def without_subscripts(way: str) -> str:
    """Return the path with "…" instead of the content of each subscript."""
    return EACH_SUBSCRIPT.sub(ANY_SUBSCRIPT, way)
