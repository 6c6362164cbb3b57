"""Assign each block in use to one holder: a package, a variable, a frame, a library, or none."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from gdbheap._native import Branch, NodeBytes
from gdbheap.answers.accounting.absent import BlockBytes
from gdbheap.answers.accounting.paths import alike, in_words, through_blocks
from gdbheap.answers.accounting.smallest_row import least_of_row
from gdbheap.answers.accounting.traced import TRACEMALLOC
from gdbheap.answers.behind_objects import credited
from gdbheap.contents.content import ContentHolder
from gdbheap.contents.python.arrays.array_types import ArrayReader
from gdbheap.contents.python.arrays.columns import COLUMN, DataColumn
from gdbheap.contents.python.names.edges import FRAMES_OF
from gdbheap.contents.python.names.library_variables import blocks_led_to, variable_above
from gdbheap.contents.python.names.packages import (
    DICT,
    FRAME,
    INTERPRETER_ITSELF,
    LIBRARY,
    ONE_FILE,
    PACKAGE,
    STANDARD,
    THREAD,
    Home,
    Homes,
)
from gdbheap.contents.python.names.paths import OWN_DICT, ObjectPaths
from gdbheap.contents.python.objects.references import PythonNodes, PythonRoot
from gdbheap.contents.python.objects.uncounted import MAX_OTHERS, counted_others
from gdbheap.dataclass import dataclass
from gdbheap.graph.paths import AlikeBlocks, Paths, group_name
from gdbheap.graph.roots import GLOBAL

__all__ = ["NOBODY", "VARIABLE", "HolderPart", "ArrayShape", "SharedOut", "Wide", "share_out"]

VARIABLE, NOBODY = "variable", "nobody"
# A part of a variable has its own row if it has at least 1/PART_SHARE of the bytes in use.
PART_SHARE = 20
MAX_DEPTH = 5
MAX_VARIABLES = 1000
LOOKED_AT, MIN_STEPS = 200, 2
# The most blocks of a variable whose paths are compared with the path to its largest block, and the longest chain to
# such a block.
EXAMINED, MAX_CHAIN = 8, 200
# A row shows the path to its largest block if the block has at least 1/PART_OF_ROW of the row's bytes. It also shows a
# path through a frame, because few users expect that a frame's variables keep memory. It also shows a typical path with
# one of the TELLING edges.
PART_OF_ROW, TELLING = 4, (".__traceback__", "has it as key ", ".__self__")
# The types of the objects that have a frame's variables.
OF_FRAMES = ("frame", *FRAMES_OF)
# Kinds with many possible holders. The small holders of a kind are merged into one row, which names NAMED of them.
MANY, NAMED = {PACKAGE: "packages", LIBRARY: "libraries"}, 4
MAX_PARTS = 3
MIN_OF_LIST, MIN_OF_TREE = 8, 64
# The most branches for which gdbheap looks for the only holder of the blocks below them, and the most nodes above a
# branch that are tried. A node is the only holder if it retains all but 1/HELD_ALONE of these bytes.
MAX_ASKED, MAX_ABOVE, HELD_ALONE = 8, 6, 5
OF_MODULE = re.compile(r"\Asys\.modules\['[^']*'\]")
BUFFER, IDLE, OBJECT, HOLDS = "buffer", "idle", "object", " holds it"
NAMES = {
    PACKAGE: "package {}",
    STANDARD: "the standard library",
    FRAME: "{}",
    ONE_FILE: "{}",
    LIBRARY: "data of {}",
    THREAD: "thread stacks and registers (may be stale)",
    INTERPRETER_ITSELF: "Python itself",
    TRACEMALLOC: TRACEMALLOC,
    NOBODY: "(unreachable)",
}


@dataclass(frozen=True)
class HolderPart:
    """The blocks of one kind in a row.

    The kind is objects of a type with their buffers, or blocks of one size. ``bytes`` includes the headers of the
    blocks.
    """

    what: str
    count: int
    bytes: int


@dataclass(frozen=True)
class Wide:
    """One of the largest columns of a table, by its name and type. ``bytes``: as its library counts them, None if
    unknown."""

    name: str | None
    dtype: str
    bytes: int | None


@dataclass(frozen=True)
class ArrayShape:
    """The DataFrame, table or array to which a variable refers, described in the library's terms
    (contents/python/arrays/columns.py).

    ``columns``: the largest columns, at most MAX_PARTS. The bytes of its row leave out values that another row reaches
    by a shorter chain, and values in memory that is not walked.
    """

    what: str
    shape: tuple[int, ...]
    dtype: str | None
    bytes: int | None
    columns: list[Wide]


@dataclass(frozen=True)
class SharedOut:
    """The blocks of one holder.

    ``kind``: package, modules (of one file), standard library, interpreter, variable, frame, library, global (a static
    variable of a library), thread, tracemalloc (its tables), or nobody. ``parts``: the largest kinds of blocks, at most
    MAX_PARTS. A row that stands for several holders has one part for each holder. ``absent``: the part of ``bytes``
    that lies in large blocks and is not resident. ``shared``: the part in shared mappings.

    ``name``: for a variable its path, as a Python expression or as text. ``path``: the path as a Python expression, or
    None. ``variables``: how many variables the row has, which differ only in subscripts; 0 for other kinds. ``type``:
    the common type of the objects of these variables, or None. ``address``: the address of the variable's object.
    ``array``: the table or array to which the variable refers, or None. ``address`` and ``array`` are None for several
    variables.

    ``largest_block``: the address of the row's largest block. ``way``: the path as text from the variable to this
    block. Both are None unless three conditions hold. The block is several steps away. It is one of the LOOKED_AT
    largest blocks of all. The path explains most of the row's bytes."""

    kind: str
    name: str
    path: str | None
    count: int
    bytes: int
    parts: list[HolderPart]
    array: ArrayShape | None = None
    absent: int = 0
    shared: int = 0
    address: int | None = None
    way: str | None = None
    largest_block: int | None = None
    type: str | None = None
    variables: int = 0


def share_out(
    paths: ObjectPaths,
    frames: ArrayReader | None = None,
    absent: Iterable[BlockBytes] = (),
    shared: Iterable[BlockBytes] = (),
    tables: Iterable[int] = (),
    others: Iterable[ContentHolder] = (),
) -> list[SharedOut]:
    """Return all blocks in use of a program with Python by holder, largest first. The rows add up to the bytes in use.

    A module, a class and a function count for the package in which they were written; so do blocks that are reachable
    only from these. A variable that holds much has its own row, with all that it reaches. A block that two holders
    reach counts for the holder with the shorter chain.

    ``frames``: the reader that recognises DataFrames, tables and arrays; these are not divided further. ``absent``: the
    blocks that are not fully resident. ``shared``: the shared mappings. ``tables``: the addresses of tracemalloc's
    tables. ``others``: holders that are not Python's. Raises Unsupported.
    """
    graph = paths.references.graph
    homes = Homes(paths.references)
    numbers = (graph.find(address) for address in tables)
    homes.seeds |= {number: Home(TRACEMALLOC, "") for number in numbers if number is not None}
    labels: dict[Home, int] = {}
    seeds = {node: labels.setdefault(home, len(labels)) for node, home in homes.seeds.items()}
    of_others = {
        number: labels.setdefault(Home(held.kind, held.name), len(labels))
        for held in others
        for number in map(graph.find, held.blocks)
        if number is not None
    }
    seeds |= of_others
    used = graph.largest(0, 0).bytes
    minimum = least_of_row(used)
    variables = list(_variables(paths, homes, minimum, used // PART_SHARE, frames, set(of_others)))
    alone = Counter(alike(words) for _number, words, _path, end in variables if end is not None)
    named: dict[Home, _Variable] = {}
    for number, words, path, end in variables:
        if end is None:
            seeds[number] = labels.setdefault(Home(GLOBAL, words), len(labels))
            continue
        # Variables that differ only in subscripts share a row.
        is_alone = alone[alike(words)] == 1
        home = Home(VARIABLE, words if is_alone else alike(words))
        node = paths.references.node(end)
        if is_alone:
            named[home] = _Variable(path, set(), _shape(paths, frames, number), node.address, end)
        elif home not in named:
            named[home] = _Variable(path and home.name, set())
        named[home].types.add(paths.type_name(node) if node.type else "")
        seeds[number] = labels.setdefault(home, len(labels))
        # A part may begin between the variable's first node and its end.
        seeds.setdefault(end, seeds[number])
    groups: dict[Home, list[AlikeBlocks]] = {}
    by_label = {number: home for home, number in labels.items()}
    for share in credited(paths, seeds, graph.shares(list(seeds.items()), 0)):
        is_free = share.group.kind == IDLE
        home = Home(INTERPRETER_ITSELF, "") if is_free else by_label.get(share.label, Home(NOBODY, ""))
        groups.setdefault(home, []).append(share.group)
    by_node = {node: by_label[label] for node, label in seeds.items()}
    missing, mapped = _by_home(paths, by_node, absent), _by_home(paths, by_node, shared)
    below = _paths_below(paths, by_node, {home: known.end for home, known in named.items() if known.end is not None})
    rows = []
    for home, own in groups.items():
        known = named.get(home) or _Variable(None, set())
        parts = _parts(paths, own)
        size = sum(part.bytes for part in parts)
        largest = below.get(home)
        if largest is not None and not largest.explains(size, parts):
            largest = None
        rows.append(
            SharedOut(
                kind=home.kind,
                name=NAMES.get(home.kind, "{}").format(home.name),
                path=known.path,
                count=sum(part.count for part in parts),
                bytes=size,
                parts=parts[:MAX_PARTS],
                array=known.shape,
                absent=missing[home],
                shared=mapped[home],
                address=known.address,
                way=None if largest is None else largest.words,
                largest_block=None if largest is None else largest.address,
                type=known.type,
                variables=1 if known.end is not None else alone[home.name],
            )
        )
    return sorted(_folded(rows, minimum), key=lambda row: (-row.bytes, row.name))


@dataclass(frozen=True)
class _Variable:
    """One variable, or several that differ only in subscripts.

    ``path``: its path as a Python expression, or None. ``types``: the names of the types of the objects; "" for an
    unknown one. Three fields describe the object of a single variable, and are None for several. ``shape``: its shape
    if it is a table or an array. ``address``: its address. ``end``: the number of its node in the graph."""

    path: str | None
    types: set[str]
    shape: ArrayShape | None = None
    address: int | None = None
    end: int | None = None

    @property
    def type(self) -> str | None:
        """The type if there is exactly one and it is known; otherwise None."""
        return next(iter(self.types)) or None if len(self.types) == 1 else None


def _by_home(paths: ObjectPaths, homes: dict[int, Home], blocks: Iterable[BlockBytes]) -> Counter[Home]:
    """Sum the bytes of the blocks in ``blocks`` for each holder. ``homes``: the holder of each node."""
    graph, found = paths.references.graph, Counter[Home]()
    for block in blocks:
        number = graph.find(block.address)
        above = reversed([] if number is None else graph.chain(number))
        found[next((homes[node] for node in above if node in homes), Home(NOBODY, ""))] += block.bytes
    return found


@dataclass(frozen=True)
class _PathBelow:
    """The path from a variable to its largest block, as text, with the address and size of the block.

    ``type``: the type of the object that owns the block. ``is_of_frame``: whether the path leads through a frame.
    ``is_typical``: whether at least half of the variable's largest blocks (at most EXAMINED) have a path that begins
    like this one.
    """

    words: str
    address: int
    size: int
    type: str
    is_of_frame: bool
    is_typical: bool

    def explains(self, size: int, parts: Sequence[HolderPart]) -> bool:
        """Return whether the path explains most of the ``size`` bytes of a row with ``parts``, largest part first.

        The block is a large part of the row, or its path leads through a frame or is typical. A typical path must name
        what keeps the memory, or lead to the kind of object that has the most bytes.
        """
        if PART_OF_ROW * self.size >= size or self.is_of_frame:
            return True
        is_most = bool(parts) and parts[0].what == self.type
        return self.is_typical and (is_most or any(edge in self.words for edge in TELLING))


def _paths_below(paths: ObjectPaths, homes: dict[int, Home], ends: dict[Home, int]) -> dict[Home, _PathBelow]:
    """Return, for each variable, the path from its node in ``ends`` to its largest block.

    ``homes``: the holder of each node. Variables whose path has at most MIN_STEPS steps are left out.
    """
    graph = paths.references.graph
    blocks: dict[Home, list[tuple[NodeBytes, list[int]]]] = {}
    for block in graph.largest(0, LOOKED_AT).rows:
        chain = graph.chain(block.id)
        home = next((homes[node] for node in reversed(chain) if node in homes), None)
        if home is not None and home in ends:
            blocks.setdefault(home, []).append((block, chain))
    found = {home: _path_below(paths, ends[home], of_home) for home, of_home in blocks.items()}
    return {home: below for home, below in found.items() if below is not None}


def _path_below(paths: ObjectPaths, end: int, blocks: Iterable[tuple[NodeBytes, list[int]]]) -> _PathBelow | None:
    """Return the path from the node ``end`` to the first block that is not a table of the variable itself.

    ``blocks``: the blocks of the variable, largest first, each with its chain of nodes. None if no path through ``end``
    has more than MIN_STEPS steps.
    """
    found = _steps_below(paths, end, blocks)
    block, steps = next(found, (None, []))
    if block is None or len(steps) <= MIN_STEPS:
        return None
    words = _words(steps)
    # The largest block may be the table of a container, through which the paths to other blocks lead.
    others = [alike(_words(steps)) for _block, steps in islice(found, EXAMINED - 1)]
    typical = 1 + sum(other.startswith(alike(words)) for other in others)
    node, owner = paths.references.node(block.id), paths.references.owner_of(block.id)
    kind = paths.type_name(owner if owner is not None and owner.type else node)
    is_of_frame = any(holder in OF_FRAMES for holder, _edge in steps)
    return _PathBelow(words, node.address, block.bytes, kind, is_of_frame, 2 * typical >= 1 + len(others))


def _steps_below(
    paths: ObjectPaths, end: int, blocks: Iterable[tuple[NodeBytes, list[int]]]
) -> Iterator[tuple[NodeBytes, list[tuple[str, str]]]]:
    """Yield each block with the steps from the node ``end`` to the block, each step as (type of the holder, edge from
    the holder).

    There are no steps if no path through ``end`` is known, or if it is too long. Tables of the variable itself are left
    out.
    """
    is_first = True
    for block, chain in blocks:
        is_known = end in chain and (is_first or len(chain) <= MAX_CHAIN)
        above = len(paths.path(chain[: chain.index(end) + 1]).steps) if is_known else 0
        steps = paths.path(chain).steps if is_known else []
        holders = [paths.type_name(paths.references.node(chain[0])), *(step.type for step in steps)]
        below = [(holder, step.edge) for holder, step in zip(holders[above:], steps[above:])]
        if below or not is_known:
            is_first = False
            yield block, below


def _words(steps: Iterable[tuple[str, str]]) -> str:
    """Return the edges of the steps as text."""
    return " ".join(through_blocks([edge for _holder, edge in steps]))


def _shape(paths: ObjectPaths, frames: ArrayReader | None, number: int) -> ArrayShape | None:
    """Return the shape of the table or array at a node; None if the node is neither."""
    node = paths.references.node(number)
    what = frames.what(node.type) if frames is not None and node.type else None
    found = frames.read(node.address, what) if frames is not None and what is not None else None
    if found is None:
        return None
    columns = [column for column in found.columns if column.what == COLUMN] if len(found.columns) > 1 else []
    columns.sort(key=_size, reverse=True)
    wide = [Wide(column.name, column.values.dtype, column.values.bytes) for column in columns[:MAX_PARTS]]
    return ArrayShape(found.what, found.shape, found.dtype, found.bytes, wide)


def _size(column: DataColumn) -> int:
    return column.values.bytes or 0


def _variables(
    paths: ObjectPaths, homes: Homes, minimum: int, part: int, frames: ArrayReader | None, whole: set[int]
) -> Iterator[tuple[int, str, str | None, int | None]]:
    """Yield (node, path as text, path as a Python expression, end) for each variable with at least ``minimum`` bytes.

    All blocks below the node belong to the variable. ``end``: the node to which the paths lead; None for a static
    variable of a library, to which only blocks of C code belong. After the variables come their parts that have at
    least ``part`` bytes, and then the parts of these parts. Some nodes are not divided into parts: tables, arrays,
    trees whose nodes are of one class, and the nodes in ``whole``.
    """
    graph = paths.references.graph
    above = set(homes.seeds)
    in_python: set[int] = set()
    asked = 0
    hanging = graph.hanging(above, homes.open, homes.through)
    for _depth in range(MAX_DEPTH):
        ends: set[int] = set()
        for branch in graph.branches(hanging, minimum)[:MAX_VARIABLES]:
            chain = graph.chain(branch.id)
            if whole.intersection(chain):
                continue
            holder = next(number for number in reversed(chain[:-1]) if number in above)
            home = homes.seeds.get(holder)
            is_hidden = home is not None and home.kind in (THREAD, INTERPRETER_ITSELF, TRACEMALLOC)
            if is_hidden and holder not in homes.own_modules:
                continue
            if home is not None and home.kind == LIBRARY and _in_memory(paths, chain) is None:
                variable = variable_above(paths.references, branch.id)
                led_to = [] if variable is None else sorted({branch.id, *blocks_led_to(paths.references, variable)})
                whole |= {branch.id, *led_to}
                yield from ((number, variable.name, None, None) for number in led_to if variable is not None)
                continue
            if holder in in_python and _is_subtree(paths, chain):
                continue
            found = _first_frame(paths, frames, branch) or _first_of_list(paths, branch)
            end, words, path = _deepest(paths, branch) if found is None else _named(paths, found)
            is_asked = branch.bytes >= part and asked < MAX_ASKED and _has_items(path)
            kept = _keeper(paths, branch, chain, end, holder) if is_asked else end
            asked += is_asked
            if kept == holder:
                continue
            if kept != end:
                found, (end, words, path) = None, _named(paths, kept)
            if path is None and holder in in_python:
                # A part without a Python path is not split off.
                continue
            ends |= {branch.id, end}
            in_python |= {branch.id, end} if path is not None else set()
            whole |= set() if found is None else {found}
            yield branch.id if found is None else found, words, path, end
        if not ends:
            return
        graph.divide(hanging, ends)
        above, minimum = above | ends, max(minimum, part)


def _has_items(path: str | None) -> bool:
    """Return whether a step of a path is an item of a container."""
    return path is not None and "[" in OF_MODULE.sub("", path)


def _keeper(paths: ObjectPaths, branch: Branch, chain: list[int], end: int, holder: int) -> int:
    """Return the node to name as the holder of all blocks that are reached through ``end``, an item of a container."""
    references, graph = paths.references, paths.references.graph
    way = list(dict.fromkeys([*chain[chain.index(holder) :], *branch.way]))
    above = [node.id for node in references.nodes(way[: way.index(end) + 1]) if node.kind != BUFFER]
    for number in reversed(above[-MAX_ABOVE:]):
        found = graph.also_held({number}, MAX_OTHERS)
        retained, _others = counted_others(references, found)
        is_most = HELD_ALONE * retained >= (HELD_ALONE - 1) * branch.bytes
        if is_most and not _of_like_objects(references, number, [source for source, _target in found.aliases]):
            return number
    return end


def _of_like_objects(references: PythonNodes, number: int, sources: list[int]) -> bool:
    """Return whether several objects of one type refer to a node, among them the holder on the node's chain.

    If so, none of these objects holds the node alone."""
    chain = references.graph.chain(number)
    (above,) = references.nodes(chain[-2:-1]) if len(chain) > 1 else (None,)
    if above is None or not above.type or references.objects.names.name(above.type) == DICT:
        return False
    return any(node.type == above.type for node in references.nodes(sources))


def _is_subtree(paths: ObjectPaths, chain: list[int]) -> bool:
    """Return whether the last node of a chain belongs to a tree of objects.

    Its class must have many objects, and another object of the class must be above it in the chain. Python's own
    containers do not count: they often contain one another.
    """
    *above, last = (node.type for node in paths.references.nodes(chain))
    name = paths.references.objects.names.name(last) if last else ""
    if "." not in name or name.startswith("collections.") or last not in above:
        return False
    return len(paths.references.graph.objects_of(last)) >= MIN_OF_TREE


def _first_frame(paths: ObjectPaths, frames: ArrayReader | None, branch: Branch) -> int | None:
    """Return the first node on a branch's path that is a table or array; None if there is none."""
    nodes = paths.references.nodes(list(dict.fromkeys([branch.id, *branch.way]))) if frames is not None else []
    return next((node.id for node in nodes if frames is not None and node.type and frames.what(node.type)), None)


def _first_of_list(paths: ObjectPaths, branch: Branch) -> int | None:
    """Return the first node of a linked list on a branch's path; None if there is no such list.

    A list is recognised by a type that at least MIN_OF_LIST nodes on the path have.
    """
    nodes = [node for node in paths.references.nodes(branch.way) if node.type]
    counts = Counter(node.type for node in nodes)
    return next((node.id for node in nodes if counts[node.type] >= MIN_OF_LIST), None)


def _named(paths: ObjectPaths, number: int) -> tuple[int, str, str | None]:
    """Return (number of the node, path to it, the path as a Python expression or None).

    The path is the Python expression, or else the path as text.
    """
    path = paths.path(paths.references.graph.chain(number))
    return number, path.expression or in_words(path), path.expression


def _deepest(paths: ObjectPaths, branch: Branch) -> tuple[int, str, str | None]:
    """Return the last node on a branch's path that Python can name, with the path to it as text and as a Python
    expression. If Python can name no node, the expression is None. The path as text then ends at the branch's last node
    if the root is a running frame, otherwise at the branch's first node.
    """
    references = paths.references
    nodes = [node for node in references.nodes(branch.way) if node.kind != BUFFER]
    for node in reversed(nodes):
        expression = paths.path(references.graph.chain(node.id)).expression
        if expression is not None and not expression.endswith(OWN_DICT):
            return node.id, expression, expression
    root = references.node(references.graph.chain(branch.id)[0]).root
    is_local = isinstance(root, PythonRoot) and root.is_running
    end = nodes[-1].id if is_local and nodes else branch.id
    if isinstance(root, PythonRoot) and root.ranges:
        found = _in_memory(paths, references.graph.chain(end))
        if found is not None:
            return end, found, None
    words = in_words(paths.path(references.graph.chain(end)))
    # C code keeps the reference in fields of unknown layout, for example in the state of a module.
    return end, f"what {words[: -len(HOLDS)]} holds" if words.endswith(HOLDS) else words, None


def _in_memory(paths: ObjectPaths, chain: list[int]) -> str | None:
    """Return a name for memory of a library: the type and the path of the last object in a chain of nodes to it.

    Return None if the chain has no object. After the last object, the chain has only C structures.
    """
    nodes = paths.references.nodes(chain)
    last = next((place for place in reversed(range(len(nodes))) if nodes[place].kind == OBJECT), None)
    if last is None:
        return None
    way = in_words(paths.path(chain[: last + 1])).removesuffix(HOLDS)
    return f"{paths.type_name(nodes[last])} in {way}"


def _folded(rows: Iterable[SharedOut], minimum: int) -> Iterator[SharedOut]:
    """Yield the rows. Two or more small packages are merged into one row, and so are two or more small libraries."""
    small: dict[str, list[SharedOut]] = {}
    for row in rows:
        if row.kind in MANY and row.bytes < minimum:
            small.setdefault(row.kind, []).append(row)
        else:
            yield row
    for kind, found in small.items():
        if len(found) == 1:
            yield found[0]
            continue
        found.sort(key=lambda row: (-row.bytes, row.name))
        first = ", ".join(row.name.removeprefix(NAMES[kind].format("")) for row in found[:NAMED])
        more = ", …" if len(found) > NAMED else ""
        count, size = sum(row.count for row in found), sum(row.bytes for row in found)
        parts = [HolderPart(row.name, row.count, row.bytes) for row in found]
        name, absent = f"{len(found)} other {MANY[kind]}: {first}{more}", sum(row.absent for row in found)
        shared = sum(row.shared for row in found)
        yield SharedOut(kind, name, None, count, size, parts, absent=absent, shared=shared)


def _parts(paths: Paths, groups: Iterable[AlikeBlocks]) -> list[HolderPart]:
    """Return the blocks of one holder by kind, the kind with the most bytes first."""
    parts: dict[str, tuple[int, int]] = {}
    for group in groups:
        name = group_name(paths, group)
        count, size = parts.get(name, (0, 0))
        parts[name] = count + group.count, size + group.bytes
    found = (HolderPart(name, *sums) for name, sums in parts.items())
    return sorted(found, key=lambda part: (-part.bytes, part.what))
