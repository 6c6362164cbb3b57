"""List the objects whose removal would free the most memory."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field, replace
from typing import Optional

from gdbheap._native import NodeBytes
from gdbheap.answers.accounting.absent import absent_by, absent_under, shared_under
from gdbheap.answers.accounting.paths import MAX_PATHS, alike, in_a_line, in_words
from gdbheap.answers.accounting.stale_holders import most_freed
from gdbheap.answers.accounting.traced import TRACEMALLOC, trace_tables
from gdbheap.answers.accounting.unfinished import finishing, not_examined
from gdbheap.answers.arrays import frames_of
from gdbheap.answers.by_root import RootShare
from gdbheap.answers.retained_blocks import (
    MIN_BYTES_TOGETHER,
    blocks,
    kinds,
    retains_all,
    root_name,
    roots,
)
from gdbheap.answers.retained_rows import EqualObject, RetainedRow
from gdbheap.answers.views import kept_by_views
from gdbheap.answers.why import find_node
from gdbheap.contents.python.names.library_variables import LibraryVariable, blocks_led_to, variable_above
from gdbheap.contents.python.names.packages import loaded_modules, modules, modules_of_files, namespaces
from gdbheap.contents.python.names.paths import MEMORY, ObjectPaths, is_own_dict
from gdbheap.contents.python.objects.references import BY_OTHERS, PythonNodes, PythonRoot
from gdbheap.dataclass import dataclass
from gdbheap.errors import UsageError
from gdbheap.graph.nodes import Node
from gdbheap.graph.paths import BLOCK, Path, group_name
from gdbheap.graph.roots import GLOBAL, THREAD
from gdbheap.heap import Heap

OBJECT, TYPE, MODULE = "object", "type", "module"
# The possible groupings, for programs with Python and for programs without.
OF_OBJECTS, OF_BLOCKS = (OBJECT, TYPE, MODULE), (OBJECT, TYPE, GLOBAL, THREAD)
GROUPS = tuple(dict.fromkeys([*OF_OBJECTS, *OF_BLOCKS]))
# Small objects of one type that have several holders share a row if they are at least MIN_COUNT_TOGETHER objects with
# at least MIN_BYTES_TOGETHER bytes in total. Larger objects have their own rows. There are at most MAX_TOGETHER shared
# rows.
MIN_COUNT_TOGETHER, MAX_TOGETHER = 10, 1000
# The most objects of a shared row whose referrers are read (the examples), the most paths that are read for an example,
# and the most holders that are named. A holder is named only if it holds at least MIN_AGREEING examples, because the
# holder of a single example need not hold the other objects of the row.
MAX_EXAMPLES, MAX_PATHS_OF_EXAMPLE, MAX_HOLDERS, MIN_AGREEING = 12, 8, 5, 2
MAX_BUFFERS = 8
# In a chain of objects that retain the same bytes, only the first and the last MAX_OF_CHAIN objects get names.
MAX_OF_CHAIN = 8
LOCAL = "local variable "
UNDER = absent_under, shared_under
# The types of rows that have no address and whose ``chain`` is a name.
NAMED_BY_WORDS = (GLOBAL, THREAD, MEMORY, MODULE)


Rows = Callable[[Optional[int]], "tuple[list[RetainedRow], int]"]
"""A function that maps a limit to the first rows of a grouping and the number of all its rows."""


@dataclass(frozen=True)
class Retained:
    """The answer of ``heap retained``, largest first.

    ``address``: the block whose retained bytes the rows show by type. None if the rows are the objects that retain the
    most. ``at_most``: the most bytes that the removal of this block may free, if words that may be stale are not
    references; None if that is about the sum of the rows. ``named_variable``: the variable whose retained bytes the
    rows show by type, if its name was given; ``address`` is then its largest block.
    """

    rows: list[RetainedRow]
    address: int | None = None
    not_examined: int = 0
    next: list[str] = field(default_factory=list)
    matching: int | None = None
    at_most: int | None = None
    named_variable: str | None = None


def retained(heap: Heap, by: str, top: int | None) -> Retained:
    """Return what retains the most bytes, by object, type or module; for a program without Python, by object (a block),
    type, global or thread.

    Raises UsageError if the program has no such grouping ``by``, and Unsupported if the graph of references cannot be
    built.
    """
    paths = heap.paths
    is_of_objects = isinstance(paths, ObjectPaths)
    known = _of_objects(paths) if isinstance(paths, ObjectPaths) else _of_blocks(heap)
    if by not in known:
        which = "a program with Python" if is_of_objects else "a program without Python"
        raise UsageError(f"heap retained: --by={by} does not work for {which}: use {', '.join(known)}")
    if heap.references.graph.is_cut:
        return _unfinished(heap, by, known[OBJECT](top)[0] if by == OBJECT and is_of_objects else [], top)
    more = [*_small_views(heap), *_traces(heap)] if by == OBJECT and is_of_objects else []
    rows, count = known[by](top)
    return Retained(_with_absent(heap, _sorted([*rows, *more], top), by), matching=count + len(more))


def _of_objects(paths: ObjectPaths) -> dict[str, Rows]:
    return {
        OBJECT: lambda top: _objects(paths, top),
        TYPE: lambda _top: _all_of(_types(paths, None)),
        MODULE: lambda _top: _all_of(_modules(paths)),
    }


def _of_blocks(heap: Heap) -> dict[str, Rows]:
    paths = heap.paths
    return {
        OBJECT: lambda top: blocks(heap, top),
        TYPE: lambda _top: _all_of(kinds(paths)),
        GLOBAL: lambda _top: _all_of(roots(paths, GLOBAL)),
        THREAD: lambda _top: _all_of(roots(paths, THREAD)),
    }


def _all_of(rows: list[RetainedRow]) -> tuple[list[RetainedRow], int]:
    return rows, len(rows)


def _sorted(rows: Iterable[RetainedRow], top: int | None) -> list[RetainedRow]:
    return sorted(rows, key=lambda row: (-row.most, row.type, row.address or 0))[:top]


def _unfinished(heap: Heap, by: str, rows: list[RetainedRow], top: int | None) -> Retained:
    """Return the answer for an incomplete graph: objects that certainly retain something, and the bytes not examined.

    For an incomplete graph gdbheap cannot prove what a type or other group retains.
    """
    kept = _with_absent(heap, _sorted((row for row in rows if row.address is not None), top), OBJECT)
    options = [] if by == OBJECT else [f"--by={by}"]
    more = finishing(heap, heap.references, "retained", *options)
    return Retained([replace(row, at_least=True) for row in kept], None, not_examined(heap.references), more)


def _small_views(heap: Heap) -> list[RetainedRow]:
    """Return a row for each type whose small views alone keep large buffers alive."""
    paths, rows = heap.python.paths, []
    for found in kept_by_views(heap, frames_of(heap)):
        if found.count > 1:
            own = sum(node.size for node in paths.references.nodes(found.nodes))
            way = _common_way(paths, found.nodes[:MAX_EXAMPLES])
            rows.append(RetainedRow(None, found.type, found.count, own, found.kept, *way, absent=found.absent))
    return rows


def _tables(heap: Heap) -> list[int]:
    """Return the nodes of tracemalloc's tables; an empty list if the tables are too small for a row."""
    graph = heap.references.graph
    found = (graph.find(address) for address in trace_tables(heap))
    return [number for number in found if number is not None]


def _traces(heap: Heap) -> list[RetainedRow]:
    """Return a row for tracemalloc's own tables if they retain enough; otherwise an empty list."""
    graph, tables = heap.references.graph, _tables(heap)
    (size,) = graph.retained_together([tables]) if tables else [0]
    return [RetainedRow(None, MEMORY, 1, 0, size, None, TRACEMALLOC)] if size >= MIN_BYTES_TOGETHER else []


def _with_absent(heap: Heap, rows: list[RetainedRow], by: str) -> list[RetainedRow]:
    """Return the rows with two more sums: the retained bytes that are not resident, and those in shared mappings."""
    references, paths = heap.references, heap.paths
    if by == TYPE:
        found, mapped = (under(heap, lambda number: paths.type_name(references.node(number))) for under in UNDER)
        return [replace(row, absent=found[row.type], shared=mapped[row.type]) for row in rows]
    if by in (GLOBAL, THREAD):
        of_roots = absent_under(heap, lambda number: root_name(references.node(number), by))
        return [replace(row, absent=of_roots[row.type]) for row in rows]
    known = dict(_numbers(heap, rows, by)) if isinstance(paths, ObjectPaths) else _numbers_of_objects(heap, rows)
    absent, shared = (under(heap, known.get) for under in UNDER)
    keys = [row.chain if row.address is None else row.address for row in rows]
    return [replace(row, absent=row.absent or absent[key], shared=shared[key]) for row, key in zip(rows, keys)]


def _numbers_of_objects(heap: Heap, rows: list[RetainedRow]) -> dict[int, int | str]:
    """Return {node: address} of the rows. Rows without an address are left out."""
    graph = heap.references.graph
    found = {graph.find(row.address): row.address for row in rows if row.address is not None}
    return {number: address for number, address in found.items() if number is not None}


def _numbers(heap: Heap, rows: list[RetainedRow], by: str) -> Iterator[tuple[int, int | str]]:
    """Yield (number of the node, address of the row's object) for the nodes of each row. The row's name replaces a
    missing address.
    """
    yield from _numbers_of_objects(heap, rows).items()
    paths, words = heap.python.paths, {row.chain for row in rows if row.address is None and row.type in NAMED_BY_WORDS}
    if by == MODULE:
        yield from ((names.id, module.address) for module, names, _name in modules(paths.references))
    if not words:
        return
    kinds = {row.type for row in rows if row.chain in words}
    for name, numbers in _files(paths) if MODULE in kinds else ():
        yield from ((number, name) for number in numbers)
    yield from ((number, TRACEMALLOC) for number in (_tables(heap) if TRACEMALLOC in words else ()))
    for number, root in _libraries_of(paths).items():
        yield number, data_of(root.name)
    for _root, variable, members in _variables(paths) if GLOBAL in kinds else ():
        yield from ((number, variable.name) for number in members)


def retained_set(heap: Heap, address: int, share: RootShare | None = None) -> Retained:
    """Return the bytes, by type, that would be freed together with the block that contains ``address``; the block
    itself is included.

    ``share``: the blocks of the variable for which the block was chosen. If the variable retains this memory, return
    the bytes that would be freed if the variable were empty. Raises UsageError if no block contains ``address``, and
    Unsupported if the graph of references cannot be built.
    """
    node, paths = find_node(heap, address, "retained"), heap.paths
    if share is not None and retains_all(heap, share):
        return _of_variable(heap, node.address, share)
    rows = [
        RetainedRow(None, group_name(paths, group), group.count, group.bytes, group.bytes)
        for group in heap.references.graph.kept_by(node.id)
    ]
    graph = heap.references.graph
    absent = _absent_by_type(heap, lambda number: node.id in graph.dominator_chain(number))
    is_cut, rest = graph.is_cut, not_examined(heap.references)
    rows = [replace(row, absent=absent[row.type], at_least=is_cut) for row in rows]
    more = finishing(heap, heap.references, "retained", f"{address:#x}")
    most = most_freed(graph, node.id, sum(row.retained for row in rows))
    return Retained(rows, node.address, rest, more, at_most=most)


def _absent_by_type(heap: Heap, is_counted: Callable[[int], bool]) -> Counter[str]:
    """Return the bytes that are not resident, by type, of the nodes for which ``is_counted`` is true."""
    type_name, node = heap.paths.type_name, heap.references.node
    return absent_by(heap, lambda number: type_name(node(number)) if is_counted(number) else None)


def _of_variable(heap: Heap, address: int, share: RootShare) -> Retained:
    graph, starts = heap.references.graph, set(share.nodes)
    absent = _absent_by_type(heap, lambda number: not starts.isdisjoint(graph.chain(number)))
    groups = sorted(share.groups, key=lambda group: (-group[2], group[0]))
    rows = [RetainedRow(None, what, count, size, size, absent=absent[what]) for what, count, size in groups]
    return Retained(rows, address, named_variable=share.name)


def _objects(paths: ObjectPaths, top: int | None) -> tuple[list[RetainedRow], int]:
    """Return the rows of ``heap retained`` that stand for objects, and the number of all such rows.

    Libraries' data, the modules of one file, and objects with several holders have rows too. Modules and their dicts
    have no rows here, because ``_modules`` lists them. Therefore an object that a module holds keeps its own row."""
    without = _of_modules(paths.references)
    every = _top(paths, without, None)
    found = every[:top]
    nodes = paths.references.nodes([kept.id for kept in found])
    named = _Chains(paths, [node.id for node in nodes[:MAX_PATHS]])
    single = [
        named.row(place, node, kept.bytes)
        if place < MAX_PATHS
        else RetainedRow(node.address, paths.type_name(node), 1, node.size, kept.bytes)
        for place, (node, kept) in enumerate(zip(nodes, found))
    ]
    if paths.references.graph.is_cut:
        return single, len(every)
    rows, owners = _shared(paths, single, without, top)
    several, alike = _several(paths, without, top)
    more = [*_libraries(paths, single), *_same_file(paths)]
    return [*rows, *more, *several], len(owners.union(kept.id for kept in every)) + len(more) + alike


def _top(paths: ObjectPaths, without: set[int], top: int | None) -> list[NodeBytes]:
    """Return at most ``top`` objects that get rows of their own; those that retain the most come first.

    ``without``: nodes that get no row. The dict of an instance is a part of the instance, so it does not count as an
    object inside the instance."""
    graph = paths.references.graph
    found = graph.top_retained(top, without, without, MIN_BYTES_TOGETHER)
    own = {kept.id for kept in found[:MAX_PATHS] if _is_own_dict(paths, kept.id)}
    return graph.top_retained(top, without, without | own, MIN_BYTES_TOGETHER) if own else found


def top_objects(heap: Heap, top: int) -> list[NodeBytes]:
    """Return the objects of the first ``top`` rows of ``heap retained``; in a program without Python, the blocks."""
    paths = heap.paths
    if not isinstance(paths, ObjectPaths):
        return paths.references.graph.top_retained(top, set(), set(), MIN_BYTES_TOGETHER)
    return _top(paths, _of_modules(paths.references), top)


class _Chains:
    """Chains of objects in which each object retains the same bytes as the first one.

    ``heads``: the first objects of the chains.
    """

    def __init__(self, paths: ObjectPaths, heads: list[int]) -> None:
        self._paths, self._graph = paths, paths.references.graph
        self._ends = self._graph.innermost_equal(heads)

    def row(self, place: int, head: Node, retained: int) -> RetainedRow:
        """Return the row of the chain with the index ``place``. The row describes the first object of the chain that
        source code can name.
        """
        chain = [(node, self._path(node)) for node in self._members(head, self._ends[place])]
        first = next((at for at, (_node, path) in enumerate(chain) if _is_written(path)), 0)
        (node, path), below = chain[first], chain[first + 1 :]
        name, words = self._paths.type_name(node), in_words(path)
        same = [
            EqualObject(one.address, self._paths.type_name(one), way.expression, in_words(way)) for one, way in below
        ]
        return RetainedRow(node.address, name, 1, node.size, retained, path.expression, words, same=same)

    def _members(self, head: Node, end: int) -> list[Node]:
        """Return the objects from ``head`` to ``end``, the end of its chain; of a long chain only those at both
        ends."""
        if end == head.id:
            return [head]
        chain = self._graph.dominator_chain(end)
        chain = chain[chain.index(head.id) :]
        nodes = self._paths.references.nodes([*chain[:MAX_OF_CHAIN], *chain[MAX_OF_CHAIN:][-MAX_OF_CHAIN:]])
        return [node for node in nodes if node.kind == OBJECT]

    def _path(self, node: Node) -> Path:
        return self._paths.path(self._graph.chain(node.id))


def _is_written(path: Path) -> bool:
    """Return whether source code can write the path: it is a local variable, or an expression that is not an object's
    dict.
    """
    if path.expression is not None:
        return not is_own_dict(path.expression)
    return bool(path.steps) and LOCAL in path.steps[-1].edge


def _libraries(paths: ObjectPaths, rows: list[RetainedRow]) -> Iterator[RetainedRow]:
    """Yield the rows of libraries: static variables that retain much, and data.

    A library's data has a row if it keeps blocks that neither a static variable nor an object in ``rows`` retains.
    """
    graph = paths.references.graph
    below: dict[int, int] = defaultdict(int)
    for row in rows:
        number = None if row.address is None else graph.find(row.address)
        above = [] if number is None else graph.dominator_chain(number, 1)
        if above:
            below[above[0]] += row.retained
    roots = _libraries_of(paths)
    sizes = dict(zip(roots, graph.retained(list(roots))))
    variables = list(_variables(paths))
    retained = graph.retained_together([list(members) for _number, _variable, members in variables])
    for (number, variable, _members), size in zip(variables, retained):
        if size >= MIN_BYTES_TOGETHER:
            yield RetainedRow(None, GLOBAL, 1, 0, size, None, variable.name)
            below[number] += size
    for number, root in roots.items():
        if sizes[number] - below[number] >= max(MIN_BYTES_TOGETHER, sizes[number] // 2):
            yield RetainedRow(None, MEMORY, 1, 0, sizes[number], None, data_of(root.name))


def _libraries_of(paths: ObjectPaths) -> dict[int, PythonRoot]:
    """Return the roots for libraries' data, by their nodes."""
    references = paths.references
    return {
        number: root for number, root in enumerate(references.roots, references.first_root) if root.phase == BY_OTHERS
    }


def data_of(library: str) -> str:
    """Return the name of the row for a library's data."""
    return f"data of {library}"


def _variables(paths: ObjectPaths) -> Iterator[tuple[int, LibraryVariable, tuple[int, ...]]]:
    """Yield the static variables of libraries that hold at least MIN_BYTES_TOGETHER in blocks of C code.

    Each is a tuple (node of the library's data, variable, nodes to which the variable points).
    """
    references, graph = paths.references, paths.references.graph
    roots, met = set(_libraries_of(paths)), set[int]()
    for branch in graph.branches(graph.hanging(roots, set(), set()), MIN_BYTES_TOGETHER)[:MAX_TOGETHER]:
        chain = graph.chain(branch.id)
        variable = variable_above(references, branch.id) if branch.id not in met and chain[0] in roots else None
        # Blocks that Python objects hold belong to the rows of these objects.
        if variable is None or any(node.kind == OBJECT for node in references.nodes(chain)):
            continue
        members = tuple(sorted({branch.id, *blocks_led_to(references, variable)}))
        met.update(members)
        yield chain[0], variable, members


def _same_file(paths: ObjectPaths) -> list[RetainedRow]:
    """Return a row for each file that was loaded as several modules."""
    found = dict(_files(paths))
    sizes = paths.references.graph.retained_together(list(found.values()))
    return [
        RetainedRow(None, MODULE, len(numbers) // 2, sum(node.size for node in nodes[::2]), size, None, name)
        for (name, numbers), size in zip(found.items(), sizes)
        if size >= MIN_BYTES_TOGETHER and (nodes := paths.references.nodes(numbers))
    ]


def _files(paths: ObjectPaths) -> Iterator[tuple[str, list[int]]]:
    """Yield the name of each file that was loaded as several modules, with the nodes of the modules and their dicts."""
    for file, rows in modules_of_files(loaded_modules(paths.references)).items():
        yield f"modules of {file}", [node.id for module in rows for node in (module.node, module.names)]


def _several(paths: ObjectPaths, without: set[int], top: int | None) -> tuple[list[RetainedRow], int]:
    """Return a row for each type of small objects that no single object keeps alive, such as objects that are items of
    two lists. Also return the number of all such rows."""
    graph = paths.references.graph
    every = [
        row
        for row in graph.kept_by_several(without, MIN_BYTES_TOGETHER)
        if row.retained >= MIN_BYTES_TOGETHER and row.count >= MIN_COUNT_TOGETHER
    ][:MAX_TOGETHER]
    rows, found = [], every[:top]
    for row, names in zip(found, _holders(paths, [row.examples[:MAX_EXAMPLES] for row in found])):
        name = paths.kind_name(row.type_address)
        rows.append(
            RetainedRow(None, name, row.count, row.bytes, row.retained, *_common_way(paths, row.examples), names)
        )
    return rows, len(every)


def _shared(
    paths: ObjectPaths, rows: list[RetainedRow], without: set[int], top: int | None
) -> tuple[list[RetainedRow], set[int]]:
    """Return the rows, each with the most bytes that its removal may free. Also return the nodes of all owners of
    shared blocks.

    A shared block is a block of C code that an object owns, but that no object alone retains. An owner without a row
    gets one. The owner is the outermost object whose removal would free the object that owns the block.
    """
    graph = paths.references.graph
    found = graph.shared_blocks(without, MIN_BYTES_TOGETHER, MAX_TOGETHER)
    sums: Counter[int] = Counter()
    examples: dict[int, list[int]] = defaultdict(list)
    for row, owner in zip(found, _outermost(paths, [row.owner for row in found], without)):
        if owner is not None:
            sums[owner] += row.bytes
            examples[owner] += row.examples
    by_address = {row.address: place for place, row in enumerate(rows) if row.address is not None}
    rows, most = list(rows), sums.most_common(top)
    sources = _sources(paths, {block for number, _size in most for block in examples[number]})
    for number, size in most:
        node = paths.references.node(number)
        owners = graph.owners_of([source for block in examples[number] for source in sources[block]])
        others = [one for one in dict.fromkeys(_outermost(paths, owners, without)) if one not in (None, number)]
        names = [in_a_line(paths.path(graph.chain(other))) for other in others if other is not None]
        names = [*names, *_roots_of(paths, owners)][:MAX_HOLDERS]
        if node.address in by_address:
            place = by_address[node.address]
            rows[place] = replace(rows[place], at_most=rows[place].retained + size, other_holders=names)
            continue
        (own,), (path, chain) = graph.retained([number]), _way(paths, node)
        rows.append(
            RetainedRow(node.address, paths.type_name(node), 1, node.size, own, path, chain, names, at_most=own + size)
        )
    return rows, set(sums)


def _roots_of(paths: ObjectPaths, owners: Iterable[int]) -> list[str]:
    """Return the names of those of ``owners`` that are roots, without repetitions."""
    first = paths.references.first_root
    roots = [paths.references.node(owner).root for owner in dict.fromkeys(owners) if owner >= first]
    names = (data_of(root.name) if root.phase == BY_OTHERS else root.name for root in roots if root is not None)
    return list(dict.fromkeys(names))


def _sources(paths: ObjectPaths, targets: set[int]) -> dict[int, list[int]]:
    """Return some of the nodes that refer to each target: at most MAX_PATHS_OF_EXAMPLE of them."""
    sources: dict[int, set[int]] = defaultdict(set)
    for referrer in paths.references.graph.referrers(targets) if targets else []:
        sources[referrer.target].add(referrer.source)
    return {target: sorted(sources[target])[:MAX_PATHS_OF_EXAMPLE] for target in targets}


def _outermost(paths: ObjectPaths, owners: list[int], without: set[int]) -> list[int | None]:
    """Return, for each owner, the outermost object whose removal would make the owner unreachable; None if there is
    none. The outermost object may be the owner itself. An object that source code can name is preferred to an unnamed
    object above it, such as the frame of a variable.
    """
    references, graph = paths.references, paths.references.graph
    found: dict[int, int | None] = {}
    for owner in dict.fromkeys(owners):
        chain = graph.dominator_chain(owner) if owner < graph.nodes else []
        above = [
            node.id
            for node in references.nodes(chain)
            if node.kind == OBJECT and node.place == BLOCK and node.id not in without
        ][:MAX_OF_CHAIN]
        written = (number for number in above if _is_written(paths.path(graph.chain(number))))
        found[owner] = next(written, above[0] if above else None)
    return [found[owner] for owner in owners]


def _common_way(paths: ObjectPaths, examples: list[int]) -> tuple[str | None, str]:
    """Return the path to the last example, without subscripts: as a Python expression or None, and as text.

    The expression is None unless at least half of the examples share it.
    """
    ways = [paths.path(paths.references.graph.chain(number)) for number in examples]
    path = None if ways[-1].expression is None else alike(ways[-1].expression)
    agreeing = sum(way.expression is not None and alike(way.expression) == path for way in ways)
    return path if 2 * agreeing >= len(ways) else None, alike(in_words(ways[-1]))


def _holders(paths: ObjectPaths, examples: list[list[int]]) -> list[list[str]]:
    """Return, for each row, the paths of the objects that refer to its examples, most frequent first.

    The paths have no subscripts.
    """
    wanted = {number for numbers in examples for number in numbers}
    sources: dict[int, list[int]] = defaultdict(list)
    for referrer in paths.references.graph.referrers(wanted):
        sources[referrer.target].append(referrer.source)
    # Thousands of objects may refer to one object, for example all frames to their function. Therefore only some of the
    # referrers are named, chosen at equal distances.
    names = {
        number: {_owner(paths, source, number) for source in sorted(some)[:: -(-len(some) // MAX_PATHS_OF_EXAMPLE)]}
        for number, some in sources.items()
    }
    return [_agreed([names.get(number, set()) for number in numbers]) for numbers in examples]


def _owner(paths: ObjectPaths, source: int, target: int) -> str | None:
    """Return the path of ``source``, a node that refers to ``target``; None if ``source`` is unreachable.

    If ``source`` is a buffer, return the path of its owner. If ``source`` is a root, return the name of the reference
    from the root to ``target``.
    """
    graph = paths.references.graph
    nodes = paths.references.nodes(graph.chain(source)[-MAX_BUFFERS:])
    if not nodes:
        return None
    owner = next((node for node in reversed(nodes) if node.kind != "buffer"), nodes[-1])
    if owner.root is not None:
        return alike(paths.edge(owner, paths.references.node(target)).text)
    return alike(in_a_line(paths.path(graph.chain(owner.id))))


def _agreed(names: list[set[str | None]]) -> list[str]:
    """Return the names that several examples share, the most frequent first. The list is empty if most examples have
    none of these names. More than MAX_HOLDERS shared names also give an empty list, because no single holder matters
    then.
    """
    counts = Counter(name for one in names for name in one if name is not None)
    most_first = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    agreed = [name for name, count in most_first if count >= MIN_AGREEING]
    with_one = sum(not one.isdisjoint(agreed) for one in names)
    return agreed if len(agreed) <= MAX_HOLDERS and 2 * with_one >= len(names) else []


def _is_own_dict(paths: ObjectPaths, number: int) -> bool:
    node = paths.references.node(number)
    if paths.type_name(node) != "dict":
        return False
    expression = paths.path(paths.references.graph.chain(number)).expression
    return expression is not None and is_own_dict(expression)


def _way(paths: ObjectPaths, node: Node) -> tuple[str | None, str]:
    path = paths.path(paths.references.graph.chain(node.id))
    return path.expression, in_words(path)


def _types(paths: ObjectPaths, top: int | None) -> list[RetainedRow]:
    name = paths.names.name
    rows = paths.references.graph.retained_by_type(top)
    return [RetainedRow(row.type_address, name(row.type_address), row.count, row.bytes, row.retained) for row in rows]


def _modules(paths: ObjectPaths) -> list[RetainedRow]:
    """Return a row for each module and its dict together, because functions of other modules may hold one of the two
    alone."""
    references = paths.references
    found = list(modules(references))
    sizes = references.graph.retained_together([[module.id, names.id] for module, names, _name in found])
    return [
        RetainedRow(module.address, name, 1, module.size, size) for (module, _names, name), size in zip(found, sizes)
    ]


def _of_modules(references: PythonNodes) -> set[int]:
    tables = (references.graph.find(address) for root in references.roots[:1] for address in root.pointers)
    return {node.id for pair in namespaces(references) for node in pair} | {
        number for number in tables if number is not None
    }
