"""Which objects would free the most if they went?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from gdbheap.answers.ways import MAX_PATHS, in_words
from gdbheap.errors import Fault, Unsupported
from gdbheap.heap import Heap
from gdbheap.layout.cpython import MODULE_DICT
from gdbheap.python.contents import dict_lookup, read_name
from gdbheap.python.paths import OWN_DICT, Paths
from gdbheap.python.references import Node, References

OBJECT, TYPE, MODULE = GROUPS = ("object", "type", "module")
MAX_NAME_LENGTH = 200


@dataclass(frozen=True)
class Kept:
    """An object (``address`` its own, ``path`` how Python gets there, or None, ``chain`` the same in words; of the
    first MAX_PATHS), all objects of a type, or a module by its name with its dict. ``bytes``: of their own blocks;
    ``retained``: what would be free without all of them."""

    address: int | None
    type: str
    count: int
    bytes: int
    retained: int
    path: str | None = None
    chain: str | None = None


@dataclass(frozen=True)
class Retained:
    """The answer of ``heap retained``, largest first."""

    rows: list[Kept]


def retained(heap: Heap, by: str, top: int | None) -> Retained:
    """By object, type or module. Raises NotAPython or Unsupported."""
    rows = {OBJECT: _objects, TYPE: _types, MODULE: _modules}[by](heap.paths, top)
    return Retained(sorted(rows, key=lambda row: (-row.retained, row.type, row.address or 0))[:top])


def _objects(paths: Paths, top: int | None) -> list[Kept]:
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


def _is_own_dict(paths: Paths, number: int) -> bool:
    node = paths.references.node(number)
    if paths.type_name(node) != "dict":
        return False
    expression = paths.path(paths.references.graph.chain(number)).expression
    return expression is not None and expression.endswith(OWN_DICT)


def _way(paths: Paths, node: Node) -> tuple[str | None, str]:
    path = paths.path(paths.references.graph.chain(node.id))
    return path.expression, in_words(path)


def _types(paths: Paths, top: int | None) -> list[Kept]:
    name = paths.names.name
    rows = paths.references.graph.retained_by_type(top)
    return [Kept(row.type_address, name(row.type_address), row.count, row.bytes, row.retained) for row in rows]


def _modules(paths: Paths, _top: int | None) -> list[Kept]:
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
