"""Describe the main holders of a Python program by the objects around them: labels of metrics, log handlers, databases
of sqlite3, and mapped files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gdbheap.answers.accounting.paths import alike
from gdbheap.answers.accounting.source_paths import source_path
from gdbheap.answers.shared_out import VARIABLE
from gdbheap.contents.python.names.paths import ObjectPaths
from gdbheap.contents.python.objects.database_connections import CONNECTION, Connection, read_connection
from gdbheap.contents.python.objects.reading import Allowance
from gdbheap.contents.python.objects.surroundings import MAX_VALUES, log_handler, widest_label
from gdbheap.findings.holder.rule import (
    BUFFERING_HANDLER,
    DATABASE,
    LABEL,
    LOG_HANDLER,
    OPENED,
    SHARED_FILE,
    SHARED_MEMORY,
    WRITTEN_FILE,
    MainHolder,
    Trait,
)
from gdbheap.graph.nodes import Node
from gdbheap.heap import Heap

__all__ = ["with_traits"]

# The most connections of a process that are read, objects of a chain that are examined, and paths to connections that
# are made.
MAX_CONNECTIONS, MAX_BEFORE, MAX_PATHS = 1000, 256, 100
# The most databases that are named.
MAX_DATABASES = 3


def with_traits(heap: Heap, rows: Sequence[MainHolder]) -> list[MainHolder]:
    """Return the rows, with facts about the objects around them added to the rows of variables. Raises the errors of
    building the graph."""
    paths = heap.paths
    if not isinstance(paths, ObjectPaths) or not any(row.kind == VARIABLE for row in rows):
        return list(rows)
    numbers = [_number(paths, row) for row in rows]
    values = Allowance(MAX_VALUES)
    found = [_around(paths, number, values) for number in numbers]
    connections, cut = _connections(heap, paths, rows, numbers)
    for place, some in enumerate(connections):
        found[place] += _of_connections(some, heap.disclosure.contents, cut)
    for place, trait in _of_mappings(heap, paths, rows, numbers):
        found[place].append(trait)
    return [replace(row, traits=traits) for row, traits in zip(rows, found)]


def _of_mappings(
    heap: Heap, paths: ObjectPaths, rows: Sequence[MainHolder], numbers: Sequence[int | None]
) -> Iterator[tuple[int, Trait]]:
    """Yield (index of the row, fact) for each row whose largest part is one mapped file."""
    graph = paths.references.graph
    for one in heap.mapped:
        large = [place for place, row in enumerate(rows) if 2 * one.size > row.bytes and numbers[place] is not None]
        number = graph.find(one.block) if large and one.name else None
        chain = graph.chain(number, MAX_BEFORE) if number is not None else []
        place = next((place for place in large if numbers[place] in chain), None)
        mapping = heap.target.mappings.find(one.address)
        if place is None or mapping is None:
            continue
        if one.shared:
            yield place, Trait(SHARED_MEMORY if heap.is_shared_memory(mapping) else SHARED_FILE, one.name)
            continue
        # The kernel walks all pages to count written ones, so this is read only if it matters.
        written = heap.target.written or []
        if 2 * sum(size for start, end, size in written if one.address <= start and end <= one.end) > one.size:
            yield place, Trait(WRITTEN_FILE, one.name)


def _number(paths: ObjectPaths, row: MainHolder) -> int | None:
    """Return the node of a variable's object; None for rows of other kinds."""
    is_one = row.kind == VARIABLE and row.address is not None
    return paths.references.graph.find(row.address or 0) if is_one else None


def _around(paths: ObjectPaths, number: int | None, values: Allowance) -> list[Trait]:
    if number is None:
        return []
    texts = paths.references.objects.repr
    chain = paths.references.graph.chain(number, MAX_BEFORE)
    objects = [node for node in paths.references.nodes(chain) if _is_object(node)]
    label, handler = widest_label(texts, objects, values), log_handler(texts, objects)
    found = []
    if label is not None:
        found.append(Trait(LABEL, label.name, label.values, label.example, label.at_least))
    if handler is not None:
        kind = BUFFERING_HANDLER if handler.is_buffer else LOG_HANDLER
        found.append(Trait(kind, handler.kind, 1, handler.logger))
    return found


def _is_object(node: Node) -> bool:
    return node.type != 0 and node.kind == "object"


def _connections(
    heap: Heap, paths: ObjectPaths, rows: Sequence[MainHolder], numbers: Sequence[int | None]
) -> tuple[list[list[Connection]], bool]:
    """Return the connections of sqlite3 that each row reaches, and whether some may be missing."""
    graph, names, release = paths.references.graph, paths.references.objects.names, paths.references.objects.release
    found: list[list[Connection]] = [[] for _row in rows]
    kinds = [address for address in graph.type_addresses() if names.name(address) == CONNECTION]
    objects = [number for kind in kinds for number in graph.objects_of(kind)]
    threads = {thread.thread_pointer for thread in heap.target.threads}
    if not any(state.thread is not None for state in heap.python.interpreter.threads.states):
        threads = set()
    # If rows share a node or a path, the first of them gets the connections.
    last_first = list(zip(range(len(rows)), rows, numbers))[::-1]
    by_number = {number: place for place, _row, number in last_first if number is not None}
    by_path = {row.path: place for place, row, _number in last_first if row.kind == VARIABLE}
    paths_left, cut = MAX_PATHS, len(objects) > MAX_CONNECTIONS
    for node in paths.references.nodes(objects[:MAX_CONNECTIONS]):
        chain = graph.chain(node.id, MAX_BEFORE)
        place = min((by_number[number] for number in chain if number in by_number), default=None)
        if place is None:
            if len(chain) == MAX_BEFORE or not paths_left:
                cut = True
                continue
            paths_left -= 1
            path = paths.path(chain).expression
            place = None if path is None else by_path.get(source_path(alike(path)))
        if place is not None:
            found[place].append(read_connection(heap.target.space, release, names, node.address, threads))
    return found, cut


def _of_connections(connections: Sequence[Connection], contents: bool, cut: bool) -> Iterator[Trait]:
    """Yield the databases of the connections, and the number of connections that ended threads have opened.

    Databases have their names if ``contents`` may be shown. ``cut``: whether some connections may be missing.
    """
    if not connections:
        return
    known = Counter((one.kind, one.name if contents else "") for one in connections)
    for (kind, name), count in known.most_common(MAX_DATABASES):
        yield Trait(DATABASE, name if kind is not None else "", count, kind, cut)
    ended = sum(one.ended is True for one in connections)
    if ended:
        yield Trait(OPENED, "", ended, at_least=cut)
