"""Find the memory that removing one holder alone would free, and the other holders of memory that it reaches."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace

from gdbheap.answers.accounting.paths import in_a_line, without_subscripts
from gdbheap.answers.accounting.source_paths import source_path
from gdbheap.answers.accounting.stale_holders import MIN_STALE_PART
from gdbheap.answers.shared_out import VARIABLE
from gdbheap.contents.python.names.packages import DICT
from gdbheap.contents.python.names.paths import ObjectPaths, is_own_dict
from gdbheap.contents.python.objects.references import BY_REMAINS
from gdbheap.contents.python.objects.uncounted import MAX_OTHERS, counted_others
from gdbheap.contents.python.running.coroutines import GENERATORS, GREENLET, TASK, Coroutines
from gdbheap.dataclass import dataclass
from gdbheap.findings.holder.rule import MainHolder, holds_alone
from gdbheap.graph.paths import BLOCK, Path, Paths
from gdbheap.graph.roots import GLOBAL, BlockRoot
from gdbheap.heap import Heap
from gdbheap.layout.asyncio import task_layout

__all__ = ["with_others"]

# A path has this text for a reference that only C code names.
NO_NAME = "holds it"
# A path has this text before blocks that only C code names.
THROUGH = ", through "
# The number of the largest blocks among which a global's block is searched.
MAX_LARGEST = 32
# Tasks are mentioned if there are at least MIN_TASKS of them, and if they reach at least TASKS_PERCENT percent of the
# holder's bytes.
MIN_TASKS, TASKS_PERCENT = 10, 50
SUSPENDED = (TASK, GREENLET, *GENERATORS)


@dataclass(frozen=True)
class _Others:
    """The memory of a holder that other holders reach too.

    ``retained``: the bytes that removing only this holder would free. ``alone``: whether that is most of the memory
    that the holder reaches. ``names``: the other holders of the remaining memory, if ``alone`` is false. ``together``:
    the bytes that removing all of these holders would free, None if unknown. ``own``: other names of the holder itself.
    ``at_most``: ``retained`` plus the memory that other nodes reach only by words that may be stale. It is None if
    there is no such memory."""

    retained: int
    alone: bool = True
    names: list[str] = field(default_factory=list)
    together: int | None = None
    own: list[str] = field(default_factory=list)
    at_most: int | None = None


def with_others(heap: Heap, rows: Sequence[MainHolder]) -> list[MainHolder]:
    """Return the rows, each with the bytes that removing its holder would free, and the other holders of its memory.

    A row also gets the tasks that reach most of its bytes. Raises the errors of building the graph.
    """
    if not rows or heap.references.graph.is_cut:
        return list(rows)
    members = [_members(heap, row) for row in rows]
    found = [_shared(heap, row, nodes) if nodes else row for row, nodes in zip(rows, members)]
    if heap.is_python:
        return _with_tasks(heap, found, members)
    return [replace(found[0], largest_block=_largest_block(heap, found[0], members[0])), *found[1:]]


def _largest_block(heap: Heap, row: MainHolder, members: set[int]) -> int | None:
    """Return the address of a global's largest block if the block's type is unknown.

    Return None otherwise, or if none of the global's blocks is among the MAX_LARGEST largest of all blocks.
    """
    graph = heap.references.graph
    is_unknown = bool(members and row.parts) and row.parts[0].what.startswith(BLOCK)
    rows = graph.largest(0, MAX_LARGEST).rows if is_unknown else []
    # A chain may have millions of nodes, so only one is in memory at a time. Of equally large blocks, the one with the
    # longest path is taken, because that path says most.
    chains = ((row, graph.chain(row.id)) for row in rows)
    lengths = [(row.bytes, len(chain), row.id) for row, chain in chains if members.intersection(chain[:1])]
    return heap.references.node(max(lengths, key=lambda one: one[:2])[2]).address if lengths else None


def _members(heap: Heap, row: MainHolder) -> set[int]:
    """Return the nodes that a row of holders represents: a variable's object, or the roots of a global. Return an empty
    set for rows of other kinds."""
    references = heap.references
    if row.kind == VARIABLE and row.address is not None:
        number = references.graph.find(row.address)
        return set() if number is None else {number}
    if row.kind != GLOBAL:
        return set()
    numbers = enumerate(references.roots, references.first_root)
    return {number for number, root in numbers if isinstance(root, BlockRoot) and _is_named(row.path, root)}


def _is_named(path: str, root: BlockRoot) -> bool:
    """Return whether the row named ``path`` is about the global ``root``.

    The name of the row may end with the type of the object to which the global points.
    """
    return root.kind == GLOBAL and (path == root.name or path.startswith(f"{root.name}: "))


def _shared(heap: Heap, row: MainHolder, members: set[int]) -> MainHolder:
    others = _others(heap, row, members)
    return replace(
        row, retained=others.retained, alone=others.alone, also=others.names, together=others.together,
        names=others.own, at_most=others.at_most,
    )  # fmt: skip


def _others(heap: Heap, row: MainHolder, members: set[int]) -> _Others:
    graph, paths = heap.references.graph, heap.paths
    found = graph.also_held(members, MAX_OTHERS)
    retained, rest = found.retained, found.others
    if isinstance(paths, ObjectPaths):
        retained, rest = counted_others(paths.references, found)
    # A row may have the name of only the largest part of its memory.
    held = min(found.bytes, row.bytes)
    aliases = list(_aliases(paths, found.aliases))
    if holds_alone(retained, held):
        # A name inside a loop or a frame is temporary: the program cannot drop it.
        own = (source_path(path.expression) for path in aliases if path.expression is not None)
        return _Others(retained, own=[name for name in dict.fromkeys(own) if name != row.path][:MAX_OTHERS])
    ways = [_way_of(paths, other.id, other.target) for other in rest]
    names = [_holder_of(source_path(way.name)) for way in ways]
    # A path in which only C code names a reference may pass through the holder's own memory.
    names += [_holder_of(source_path(name)) for name in map(in_a_line, aliases) if NO_NAME not in name]
    others = _folded(name for name in dict.fromkeys(names) if name not in ("", row.path))
    together = graph.also_held(members | {way.node for way in ways}, 0).retained if ways else 0
    is_all = all(way.is_holder for way in ways) and holds_alone(together, held)
    phases = graph.phases([other.id for other in rest]) if isinstance(paths, ObjectPaths) else []
    stale = sum(other.bytes for other, phase in zip(rest, phases) if phase >= BY_REMAINS)
    most = max(retained + stale, found.most)
    at_most = most if MIN_STALE_PART * (most - retained) >= held else None
    return _Others(retained, False, others[:MAX_OTHERS], together if is_all else None, at_most=at_most)


def _folded(names: Iterable[str]) -> list[str]:
    """Return the names without repetitions. Names that differ only in subscripts are merged. Names whose path begins
    with another name are left out.
    """
    found: dict[str, set[str]] = {}
    for name in sorted(names, key=len):
        shape = without_subscripts(name)
        above = next((one for one in found if re.match(re.escape(one) + r"(\W|$)", shape)), shape)
        found.setdefault(above, set()).add(name)
    return [next(iter(same)) if len(same) == 1 else shape for shape, same in found.items()]


def _holder_of(way: str) -> str:
    """Return a path up to its last step with a name. After that step, only blocks of C code follow."""
    return way.partition(THROUGH)[0].partition(f" {NO_NAME}")[0].rstrip()


def _aliases(paths: Paths, references: Sequence[tuple[int, int]]) -> Iterator[Path]:
    """Yield the paths of other references to the holder itself. A dict may refer to the holder by several keys."""
    graph = paths.references.graph
    for source, target in references:
        path = paths.path([*graph.chain(source), target])
        yield path
        keys, way = _keys(paths, source, target), path.expression or ""
        own = next((key for key in keys if way.endswith(f".{key}")), None)
        if own is not None:
            yield from (replace(path, expression=f"{way[: -len(own)]}{key}") for key in keys)


def _keys(paths: Paths, source: int, target: int) -> list[str]:
    """Return the names under which a dict, or its keys' buffer, holds an object; none if ``source`` is not a dict."""
    holder, held = paths.references.owner_of(source), paths.references.node(target)
    if not isinstance(paths, ObjectPaths) or holder is None or not holder.type or paths.type_name(holder) != DICT:
        return []
    return paths.edges.keys_of(holder.address, held.address)


@dataclass(frozen=True)
class _Way:
    """A node that reaches memory of a holder too, with the path to the node as its name.

    ``is_holder``: whether the node is an object or a global. If not, it is a namespace or a stack, which also holds
    much other memory."""

    node: int
    name: str
    is_holder: bool


def _way_of(paths: Paths, number: int, target: int) -> _Way:
    chain = paths.references.graph.chain(number)
    root = paths.references.node(number).root
    if isinstance(root, BlockRoot) and root.kind == GLOBAL:
        return _Way(number, root.name, True)
    path = paths.path(chain)
    if root is None and not (path.expression is not None and is_own_dict(path.expression)):
        return _Way(number, in_a_line(path), True)
    return _Way(number, in_a_line(paths.path([*chain, target])), False)


def _with_tasks(heap: Heap, rows: list[MainHolder], members: list[set[int]]) -> list[MainHolder]:
    """Return the rows, each with the kind and the number of the tasks that reach most of its memory.

    If a row has no such tasks, it gets the suspended functions that reach most of its memory."""
    graph = heap.python.references.graph
    found = list(rows)
    types_of = _kinds(heap)
    objects_of = {
        kind: [number for address in types for number in graph.objects_of(address)] for kind, types in types_of.items()
    }
    many = {kind: objects for kind, objects in objects_of.items() if len(objects) >= MIN_TASKS}
    below = _counts(heap, members) if many else []
    for kind, objects in many.items():
        hanging = _below(heap, objects)
        counts = [sum(row[address] for address in types_of[kind]) for row in below]
        for place, row in enumerate(found):
            is_much = 100 * hanging * counts[place] >= TASKS_PERCENT * row.bytes * len(objects)
            if row.tasks == 0 and counts[place] >= MIN_TASKS and is_much:
                count = max(counts[place], _direct(heap, members[place], set(objects)))
                found[place] = replace(row, tasks=count, task_kind=kind)
    return found


def _direct(heap: Heap, members: Iterable[int], objects: set[int]) -> int:
    """Return how many of ``objects`` the nodes ``members`` refer to, directly or through a buffer. Objects count even
    if shorter chains from other nodes reach them."""
    graph = heap.references.graph
    targets = {edge.target for number in members for edge in graph.edges(number)}
    buffers = [node.id for node in heap.references.nodes(list(targets)) if node.kind == "buffer"]
    return len(objects & (targets | {edge.target for number in buffers for edge in graph.edges(number)}))


def _kinds(heap: Heap) -> dict[str, set[int]]:
    """Return, for each kind in SUSPENDED, the addresses of its types that have objects in the heap. Kinds without such
    types are left out."""
    python, objects = heap.python, heap.python.objects
    if objects.release.get("gen_qualname") is None:
        # Python 2 has no tasks, and its generators are not read.
        return {}
    layout = task_layout(heap.target.space, objects.release, heap.target.objects)
    kinds = Coroutines(objects, python.interpreter.threads, layout).kinds(python.references.graph.type_addresses())
    found: dict[str, set[int]] = {kind: set() for kind in SUSPENDED}
    for address, (kind, _base) in kinds.items():
        found[kind].add(address)
    return {kind: types for kind, types in found.items() if types}


def _below(heap: Heap, numbers: Iterable[int]) -> int:
    """Return the bytes of these nodes and of all nodes whose shortest chains go through them."""
    shares = heap.references.graph.shares([(number, 0) for number in numbers], 0)
    return sum(share.group.bytes for share in shares if share.label == 0)


def _counts(heap: Heap, members: Sequence[set[int]]) -> list[Counter[int]]:
    """Return, for each row, the number of objects by type address. An object counts for a row if its shortest chain
    from a root goes through one of the row's nodes."""
    seeds = [(number, place) for place, nodes in enumerate(members) for number in nodes]
    counts: list[Counter[int]] = [Counter() for _row in members]
    for share in heap.references.graph.shares(seeds, 0):
        if share.label < len(counts) and share.group.kind == "object":
            counts[share.label][share.group.type_address] += share.group.count
    return counts
