"""Which objects would free the most if they went?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from gdbheap.answers.ways import MAX_PATHS, in_words
from gdbheap.answers.why import find_node
from gdbheap.errors import Fault, Unsupported, UsageError
from gdbheap.graph.nodes import Node
from gdbheap.graph.paths import BlockPaths, Paths, group_name
from gdbheap.graph.roots import GLOBAL, THREAD, BlockRoot
from gdbheap.heap import Heap
from gdbheap.layout.cpython import MODULE_DICT
from gdbheap.python.contents import dict_lookup, read_name
from gdbheap.python.paths import OWN_DICT, ObjectPaths
from gdbheap.python.references import References

OBJECT, TYPE, MODULE = "object", "type", "module"
# What is told apart: with Python, and without.
OF_OBJECTS, OF_BLOCKS = (OBJECT, TYPE, MODULE), (OBJECT, TYPE, GLOBAL, THREAD)
GROUPS = tuple(dict.fromkeys([*OF_OBJECTS, *OF_BLOCKS]))
MAX_NAME_LENGTH = 200


@dataclass(frozen=True)
class Kept:
    """An object (``address`` its own, ``path`` how Python gets there, or None, ``chain`` the same in words; of the
    first MAX_PATHS), all objects of a type, a module by its name with its dict, a global, or a thread. ``bytes``: of
    their own blocks; ``retained``: what would be free without all of them. Without Python a block stands for an
    object."""

    address: int | None
    type: str
    count: int
    bytes: int
    retained: int
    path: str | None = None
    chain: str | None = None


@dataclass(frozen=True)
class Retained:
    """The answer of ``heap retained``, largest first. ``address``: of the block whose retained set the rows are, by
    type; None where they are what retains most."""

    rows: list[Kept]
    address: int | None = None


def retained(heap: Heap, by: str, top: int | None) -> Retained:
    """By object, type or module; without Python by object, type, global or thread. Raises UsageError for others,
    or Unsupported."""
    known: dict[str, Callable[[int | None], list[Kept]]]
    if heap.is_python:
        paths = heap.object_paths
        known = {
            OBJECT: lambda top: _objects(paths, top),
            TYPE: lambda top: _types(paths, top),
            MODULE: lambda _top: _modules(paths),
        }
    else:
        blocks = heap.block_paths
        known = {
            OBJECT: lambda top: _blocks(blocks, top),
            TYPE: lambda top: _kinds(blocks, top),
            GLOBAL: lambda _top: _roots(blocks, GLOBAL),
            THREAD: lambda _top: _roots(blocks, THREAD),
        }
    if by not in known:
        which = "a program with Python" if heap.is_python else "a program without Python"
        raise UsageError(f"heap retained: --by={by} is not for {which}: {', '.join(known)} are")
    return Retained(sorted(known[by](top), key=lambda row: (-row.retained, row.type, row.address or 0))[:top])


def retained_set(heap: Heap, address: int) -> Retained:
    """What would be free without the block that holds ``address``, by type: itself and all that only it keeps. Raises
    UsageError without a block, or Unsupported."""
    node, paths = find_node(heap, address, "retained"), heap.paths
    rows = [
        Kept(None, group_name(paths, group), group.count, group.bytes, group.bytes)
        for group in heap.references.graph.kept_by(node.id)
    ]
    return Retained(rows, node.address)


def _blocks(paths: BlockPaths, top: int | None) -> list[Kept]:
    found = paths.references.graph.top_blocks(top)
    nodes = paths.references.nodes([kept.id for kept in found])
    return [
        Kept(node.address, paths.type_name(node), 1, node.size, kept.bytes, None, _chain(paths, node, place))
        for place, (node, kept) in enumerate(zip(nodes, found))
    ]


def _chain(paths: Paths, node: Node, place: int) -> str | None:
    return in_words(paths.path(paths.references.graph.chain(node.id))) if place < MAX_PATHS else None


def _kinds(paths: BlockPaths, top: int | None) -> list[Kept]:
    return [
        Kept(None, group_name(paths, row.group), row.group.count, row.group.bytes, row.retained)
        for row in paths.references.graph.retained_by_group(top)
    ]


def _roots(paths: BlockPaths, kind: str) -> list[Kept]:
    """Globals, or threads with all that is theirs."""
    references = paths.references
    sets: dict[str, list[int]] = defaultdict(list)
    for number, root in enumerate(references.roots, references.first_root):
        if isinstance(root, BlockRoot) and root.kind == kind:
            sets[root.name if kind == GLOBAL else root.owner or root.name].append(number)
    # Nothing leads to a root: what a root alone retains is what its name does.
    single = {name: numbers[0] for name, numbers in sets.items() if len(numbers) == 1}
    sizes = dict(zip(single, references.graph.retained(list(single.values()))))
    several = {name: numbers for name, numbers in sets.items() if len(numbers) > 1}
    sizes |= dict(zip(several, references.graph.retained_together(list(several.values()))))
    return [Kept(None, name, 1, 0, size) for name, size in sizes.items() if size]


def _objects(paths: ObjectPaths, top: int | None) -> list[Kept]:
    """Without modules and their dicts, which ``_modules`` is about. An instance's dict is a part of the instance: the
    dicts in it are no nested ones."""
    references = paths.references
    without = _of_modules(references)
    found = references.graph.top_retained(top, without, set())
    own = {kept.id for kept in found[:MAX_PATHS] if _is_own_dict(paths, kept.id)}
    if own:
        found = references.graph.top_retained(top, without, own)
    nodes = references.nodes([kept.id for kept in found])
    return [
        Kept(
            node.address,
            paths.type_name(node),
            1,
            node.size,
            kept.bytes,
            *(_way(paths, node) if place < MAX_PATHS else ()),
        )
        for place, (node, kept) in enumerate(zip(nodes, found))
    ]


def _is_own_dict(paths: ObjectPaths, number: int) -> bool:
    node = paths.references.node(number)
    if paths.type_name(node) != "dict":
        return False
    expression = paths.path(paths.references.graph.chain(number)).expression
    return expression is not None and expression.endswith(OWN_DICT)


def _way(paths: ObjectPaths, node: Node) -> tuple[str | None, str]:
    path = paths.path(paths.references.graph.chain(node.id))
    return path.expression, in_words(path)


def _types(paths: ObjectPaths, top: int | None) -> list[Kept]:
    name = paths.names.name
    rows = paths.references.graph.retained_by_type(top)
    return [Kept(row.type_address, name(row.type_address), row.count, row.bytes, row.retained) for row in rows]


def _modules(paths: ObjectPaths) -> list[Kept]:
    """A module with its dict: functions of other modules may hold the one without the other."""
    references = paths.references
    found = list(named_modules(references))
    sizes = references.graph.retained_together([[module.id, names.id] for module, names, _name in found])
    return [Kept(module.address, name, 1, module.size, size) for (module, _names, name), size in zip(found, sizes)]


def named_modules(references: References) -> Iterator[tuple[Node, Node, str]]:
    """Each module with its dict and its name, "?" where that is not known."""
    for module, names in _with_dicts(references):
        yield module, names, _name(references, names)


def _with_dicts(references: References) -> Iterator[tuple[Node, Node]]:
    names, graph = references.objects.names, references.graph
    kinds = [address for address in graph.type_addresses() if names.name(address) == "module"]
    space, place = references.objects.target.space, references.objects.release.at(MODULE_DICT)
    for module in references.nodes([number for kind in kinds for number in graph.objects_of(kind)]):
        with suppress(Fault):
            node = references.find(space.word(module.address + place))
            if node is not None:
                yield module, node


def _name(references: References, names: Node) -> str:
    space, release = references.objects.target.space, references.objects.release
    with suppress(Fault, Unsupported):
        found = dict_lookup(space, release, names.address, "__name__", set())
        return (found and read_name(space, release, found, MAX_NAME_LENGTH)) or "?"
    return "?"


def _of_modules(references: References) -> set[int]:
    pairs = list(_with_dicts(references))
    tables = (references.graph.find(address) for root in references.roots[:1] for address in root.pointers)
    return {node.id for pair in pairs for node in pair} | {number for number in tables if number is not None}
