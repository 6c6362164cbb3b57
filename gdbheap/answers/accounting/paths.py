"""Paths from roots to blocks, each in one line, for the option ``--path``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby

from gdbheap.answers.accounting.traced import name_tables
from gdbheap.errors import GdbheapError
from gdbheap.graph.paths import Path
from gdbheap.heap import Heap

MAX_PATHS = 2000
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
    """Return the path to each block in use, as a Python expression if possible, otherwise in words.

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
    """Return a path as a Python expression if there is one, otherwise in words; empty if it has no steps."""
    return path.expression or in_words(path)


def in_words(path: Path) -> str:
    """Return the edges of a path in order, as words. A long path keeps only its first edge, which names the root, and
    its last edges.
    """
    edges = through_blocks([step.edge for step in path.steps])
    return " ".join(edges if len(edges) <= MAX_EDGES_IN_WORDS else [edges[0], "…", *edges[2 - MAX_EDGES_IN_WORDS :]])


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
    """Return in words how many C blocks the edges belong to, and the sizes of the first ones."""
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
