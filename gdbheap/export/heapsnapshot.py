"""Write a graph of references as a heap snapshot of V8, which the memory panel of Chrome's DevTools opens.

The file is one JSON document (v8/src/profiler/heap-snapshot-generator.cc, HeapSnapshotJSONSerializer). The first list
contains the fields of all nodes. The second contains the edges of the first node, then those of the second, and so on.
The third contains the strings. Nodes and edges refer to strings by their numbers. An edge names its target by the index
of the target's first field. The first node is the root of all others.
"""

from __future__ import annotations

import json
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from functools import partial
from itertools import repeat
from typing import IO
from zlib import crc32

from gdbheap import _native
from gdbheap.contents.cxx.kinds import Structures, kind_texts
from gdbheap.dataclass import dataclass
from gdbheap.graph.naming import INDEX, INSIDE, NAME, EdgeName, EdgeNames

__all__ = ["NamedGraph", "write_graph"]

AT_ONCE = 1 << 16
NODE_FIELDS = ("type", "name", "id", "self_size", "edge_count", "trace_node_id", "detachedness")
# V8's types of nodes, in V8's order.
NODE_TYPES = (
    "hidden", "array", "string", "object", "code", "closure", "regexp", "number", "native", "synthetic",
    "concatenated string", "sliced string", "symbol", "bigint", "object shape",
)  # fmt: skip
EDGE_FIELDS = ("type", "name_or_index", "to_node")
EDGE_TYPES = ("context", "element", "property", "internal", "hidden", "shortcut", "weak")
HIDDEN, ARRAY, STRING, OBJECT, CODE, NATIVE, SYNTHETIC = (
    NODE_TYPES.index(name) for name in ("hidden", "array", "string", "object", "code", "native", "synthetic")
)
ELEMENT, PROPERTY, INTERNAL, WEAK = (EDGE_TYPES.index(name) for name in ("element", "property", "internal", "weak"))
EDGE_KINDS = {INDEX: ELEMENT, NAME: PROPERTY, INSIDE: INTERNAL}
# The kinds of nodes in native/core/src/graph/listing.rs.
UNKNOWN, LIVING, IDLE, BUFFER = range(4)
KINDS = {UNKNOWN: NATIVE, LIVING: OBJECT, IDLE: HIDDEN, BUFFER: ARRAY}
NAMES = {UNKNOWN: "(block)", LIVING: "(object)", IDLE: "(kept for reuse)", BUFFER: "(buffer)"}
TEXTS = ("str", "bytes", "unicode")
ROOT_NAMES = ("", "(roots)", "doubtful", "stray", "left over")
# For edges that keep nothing alive and have no name: the name, by the edge's strength, as an index into ROOT_NAMES.
WEAK_NAMES = (4, 4, 2, 3)
# V8 gives JavaScript's objects odd 32-bit ids. The root of all other nodes has the id 1.
FIRST_ID, ID_BITS = 1, 31
GRANULE_BITS = 3
# A multiplier from the golden ratio, as in Fibonacci hashing.
SPREAD = 0x9E37_79B1
# The bytes of one page of the bitmap of taken numbers. Most numbers are close together.
BITMAP = 2048


@dataclass(frozen=True)
class NamedGraph:
    """A native graph, with names for its types, its roots, and some edges.

    Types are numbered from 1. ``structures``: the kinds of blocks without a type, None if unknown.
    """

    graph: _native.Graph
    types: Sequence[str]
    roots: Sequence[str]
    edges: EdgeNames = field(default_factory=dict)
    structures: Structures | None = None

    @property
    def first_root(self) -> int:
        """The number of the first root. Roots come after all other nodes."""
        return self.graph.nodes - len(self.roots)


class _Ids:
    """The ids of nodes. A node has the same id in each snapshot of a process, because DevTools match nodes by id.

    An id is computed from the node's address or, for a root, from its name. An id has 31 free bits, which is enough for
    all multiples of 8 bytes in 16 GiB. So two nodes in the same window of 16 GiB never collide. The ids of different
    windows overlap, shifted by a hash of the window's number. A node whose id is taken gets the next free one."""

    def __init__(self) -> None:
        # One bit for each number, in pages that are created on first use.
        self._taken: defaultdict[int, bytearray] = defaultdict(partial(bytearray, BITMAP))
        self._take(0)

    def of_address(self, address: int) -> int:
        """Return the id of the node at this address."""
        window = address >> (GRANULE_BITS + ID_BITS)
        return self._odd((address >> GRANULE_BITS) ^ (window * SPREAD))

    def of_root(self, name: str) -> int:
        """Return the id of a root, which has no address. ``name``: the root's name."""
        return self._odd(crc32(name.encode("utf-8", "replace")))

    def _odd(self, wanted: int) -> int:
        number = wanted & ((1 << ID_BITS) - 1)
        while not self._take(number):
            number = (number + 1) & ((1 << ID_BITS) - 1)
        return 2 * number + FIRST_ID

    def _take(self, number: int) -> bool:
        """Mark a number as taken. Return whether it was free."""
        place, bit = number >> 3, 1 << (number & 7)
        page = self._taken[place // BITMAP]
        is_free = not page[place % BITMAP] & bit
        page[place % BITMAP] |= bit
        return is_free


def write_graph(stream: IO[str], named: NamedGraph) -> int:
    """Write the whole graph. Return the number of nodes, including the root of all other nodes."""
    graph, strings = named.graph, dict.fromkeys(ROOT_NAMES)
    numbers = {name: number for number, name in enumerate(strings)}

    def number_of(name: str) -> int:
        return numbers.setdefault(name, len(numbers))

    nodes, edges = graph.nodes + 1, graph.edge_count + len(named.roots)
    meta = {
        "node_fields": NODE_FIELDS,
        "node_types": [NODE_TYPES, "string", *["number"] * 5],
        "edge_fields": EDGE_FIELDS,
        "edge_types": [EDGE_TYPES, "string_or_number", "node"],
        "trace_function_info_fields": ["function_id", "name", "script_name", "script_id", "line", "column"],
        "trace_node_fields": ["id", "function_info_index", "count", "size", "children"],
        "sample_fields": ["timestamp_us", "last_assigned_id"],
        "location_fields": ["object_index", "script_id", "line", "column"],
    }
    head = {"meta": meta, "node_count": nodes, "edge_count": edges, "trace_function_count": 0}
    stream.write(f'{{"snapshot":{json.dumps(head)},\n"nodes":[')
    _write_rows(stream, _nodes(named, number_of))
    stream.write('],\n"edges":[')
    _write_rows(stream, _edges(named, number_of))
    empty = "".join(f'"{name}":[],\n' for name in ("trace_function_infos", "trace_tree", "samples", "locations"))
    stream.write(f'],\n{empty}"strings":[')
    stream.write(",\n".join(json.dumps(name) for name in numbers))
    stream.write("]}\n")
    return nodes


def _write_rows(stream: IO[str], rows: Iterable[tuple[int, ...]]) -> None:
    """Write the rows' fields, one row on each line."""
    between = ""
    for row in rows:
        stream.write(between + ",".join(map(str, row)))
        between = "\n,"


def _nodes(named: NamedGraph, number_of: Callable[[str], int]) -> Iterator[tuple[int, ...]]:
    graph, roots = named.graph, named.roots
    known = [0, *map(number_of, named.types)]
    plain = {kind: number_of(name) for kind, name in NAMES.items()}
    texts = {number for number, name in enumerate(named.types, 1) if name in TEXTS}
    ids, structures = _Ids(), named.structures
    others = (
        []
        if structures is None
        else [number_of(NAMES[UNKNOWN]), *map(number_of, (text or "" for text in kind_texts(structures)))]
    )
    yield SYNTHETIC, number_of("(roots)"), FIRST_ID, 0, len(roots), 0, 0
    for start in range(0, graph.nodes, AT_ONCE):
        found = graph.node_columns(start, AT_ONCE)
        sizes, addresses = array("q", found.sizes), _addresses(graph, start, len(found.kinds))
        kinds = repeat(0) if structures is None else structures.native.kinds_at(addresses)
        columns = zip(addresses, sizes, array("I", found.types), found.kinds, array("I", found.edges), kinds)
        for node, (address, size, kind_of, kind, edges, other) in enumerate(columns, start):
            own = ids.of_address(address) if node < named.first_root else ids.of_root(roots[node - named.first_root])
            made, name = KINDS[kind], known[kind_of] if kind in (LIVING, IDLE) and kind_of else plain[kind]
            if node >= named.first_root:
                made, name = SYNTHETIC, number_of(roots[node - named.first_root])
            elif node >= graph.blocks_end:
                made = CODE
            elif kind == LIVING and kind_of in texts:
                made = STRING
            elif kind != LIVING and kind_of and kind != IDLE:
                name = known[kind_of]
            elif kind == UNKNOWN and other:
                name = others[other]
            yield made, name, own, size, edges, 0, 0


def _addresses(graph: _native.Graph, start: int, count: int) -> array[int]:
    """Return the addresses of ``count`` nodes, beginning with the node number ``start``. The values for roots have no
    meaning.
    """
    return array("Q", graph.addresses_of(array("I", range(start, start + count)).tobytes()))


def _edges(named: NamedGraph, number_of: Callable[[str], int]) -> Iterator[tuple[int, ...]]:
    graph, width = named.graph, len(NODE_FIELDS)
    for place, root in enumerate(range(named.first_root, graph.nodes)):
        yield ELEMENT, place, width * (root + 1)
    start = 0
    nobody: Sequence[EdgeName | None] = ()
    while start < graph.nodes:
        found = graph.edge_columns(start, graph.nodes, AT_ONCE)
        start, before, place, names = found.next, -1, 0, nobody
        # DevTools leave out weak edges when they compute dominators, as gdbheap leaves out edges that may be stale.
        counted = graph.counted(found)
        columns = zip(array("I", found.sources), array("I", found.targets), array("I", found.strengths), counted)
        for source, target, strength, keeps in columns:
            place += 1
            if source != before:
                before, place, names = source, 0, named.edges.get(source, nobody)
            own = names[place] if names else None
            if not keeps:
                kind, name = WEAK, WEAK_NAMES[strength] if own is None else number_of(str(own.text))
            elif own is None:
                kind, name = ELEMENT, place
            else:
                kind, name = EDGE_KINDS[own.kind], own.text if isinstance(own.text, int) else number_of(own.text)
            yield kind, name, width * (target + 1)
