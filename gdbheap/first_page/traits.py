"""What the memory around the main holders says of them: labels of metrics, log handlers, databases of sqlite3."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gdbheap.answers.accounting.paths import alike
from gdbheap.answers.accounting.source_paths import source_path
from gdbheap.answers.shared_out import VARIABLE
from gdbheap.contents.python.names.paths import ObjectPaths
from gdbheap.contents.python.objects.connections import CONNECTION, Connection, read_connection
from gdbheap.contents.python.objects.surroundings import log_handler, widest_label
from gdbheap.findings.holder.rule import BUFFERING_HANDLER, DATABASE, LABEL, LOG_HANDLER, OPENED, MainHolder, Trait
from gdbheap.graph.nodes import Node
from gdbheap.heap import Heap

__all__ = ["with_traits"]

# So many connections of a process are read.
MAX_CONNECTIONS = 1000
# So many databases are named.
MAX_DATABASES = 3


def with_traits(heap: Heap, rows: Sequence[MainHolder]) -> list[MainHolder]:
    """Return the rows of variables of Python with what the memory around them says. Raises what the graph does."""
    paths = heap.paths
    if not isinstance(paths, ObjectPaths) or not any(row.kind == VARIABLE for row in rows):
        return list(rows)
    numbers = [_number(paths, row) for row in rows]
    found = [_around(paths, number) for number in numbers]
    for place, connections in enumerate(_connections(heap, paths, rows, numbers)):
        found[place] += _of_connections(connections, heap.disclosure.contents)
    return [replace(row, traits=traits) for row, traits in zip(rows, found)]


def _number(paths: ObjectPaths, row: MainHolder) -> int | None:
    """Return the node of a variable's object; None for other rows."""
    is_one = row.kind == VARIABLE and row.address is not None
    return paths.references.graph.find(row.address or 0) if is_one else None


def _around(paths: ObjectPaths, number: int | None) -> list[Trait]:
    if number is None:
        return []
    texts = paths.references.objects.repr
    objects = [node for node in paths.references.nodes(paths.references.graph.chain(number)) if _is_object(node)]
    label, handler = widest_label(texts, objects), log_handler(texts, objects)
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
) -> list[list[Connection]]:
    """Return the connections of sqlite3 that each row leads to."""
    graph, names, release = paths.references.graph, paths.references.objects.names, paths.references.objects.release
    found: list[list[Connection]] = [[] for _row in rows]
    kinds = [address for address in graph.type_addresses() if names.name(address) == CONNECTION]
    objects = [number for kind in kinds for number in graph.objects_of(kind)][:MAX_CONNECTIONS]
    threads = {thread.thread_pointer for thread in heap.target.threads}
    if not any(state.thread is not None for state in heap.python.interpreter.threads.states):
        threads = set()
    for node in paths.references.nodes(objects):
        chain = graph.chain(node.id)
        place = next((place for place, number in enumerate(numbers) if number is not None and number in chain), None)
        if place is None:
            path = paths.path(chain).expression
            shape = None if path is None else source_path(alike(path))
            place = next((place for place, row in enumerate(rows) if row.path == shape), None)
        if place is not None:
            found[place].append(read_connection(heap.target.space, release, names, node.address, threads))
    return found


def _of_connections(connections: Sequence[Connection], contents: bool) -> Iterator[Trait]:
    """Yield to what most of them are, by name where ``contents`` are shown, and how many of them were opened by threads
    that have ended."""
    if not connections:
        return
    known = Counter((one.kind, one.name if contents else "") for one in connections)
    for (kind, name), count in known.most_common(MAX_DATABASES):
        yield Trait(DATABASE, name if kind is not None else "", count, kind)
    ended = sum(one.ended is True for one in connections)
    if ended:
        yield Trait(OPENED, "", ended)
