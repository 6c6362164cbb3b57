"""Select the nodes of the graph that are named as holders of blocks: objects, modules and roots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from gdbheap.answers.accounting.paths import alike
from gdbheap.answers.retained import MODULE
from gdbheap.answers.retained_rows import RetainedRow
from gdbheap.contents.python.names.packages import modules
from gdbheap.contents.python.names.paths import is_own_dict
from gdbheap.contents.python.objects.references import References
from gdbheap.dataclass import dataclass
from gdbheap.heap import Heap

__all__ = ["Holder", "holders"]

# If more rows than this have paths that differ only in subscripts, they are items of a collection. The collection is
# then the holder.
MAX_ALIKE = 10
ROOT = "root"


@dataclass(frozen=True)
class Holder:
    """An object, a module or a root that holds blocks. ``type``: the object's type, "module" or "root".

    ``path``: for an object, its path as a Python expression or as text. For a module it is the module's name. For a
    root it is the name of a running frame, or of data outside the heaps."""

    type: str
    path: str | None


def holders(heap: Heap, owners: Sequence[RetainedRow]) -> list[tuple[Holder, int]]:
    """Return the objects of ``owners``, the modules and the roots, each with the number of its node.

    A module has two nodes: itself and its dict. Raises NotAPython or Unsupported.
    """
    references = heap.python.references
    found = {node: holder for holder, node in _objects(references, owners)}
    for module, names, name in modules(references):
        for node in (module.id, names.id):
            found[node] = Holder(MODULE, name)
    first = references.graph.nodes - len(references.roots)
    for node, root in enumerate(references.roots, first):
        found[node] = Holder(ROOT, root.name)
    return [(holder, node) for node, holder in found.items()]


def _objects(references: References, owners: Sequence[RetainedRow]) -> Iterator[tuple[Holder, int]]:
    """Yield the objects of the rows ``owners`` with their nodes, except items of collections and dicts of instances.

    The dict of an instance is left out, because the instance retains the same bytes.
    """
    rows = [one for row in owners for one in (row, *row.inner)]
    shapes = [(row.type, None if row.path is None else alike(row.path)) for row in rows]
    counts = Counter(shapes)
    for row, shape in zip(rows, shapes):
        is_item = row.path is not None and (counts[shape] > MAX_ALIKE or is_own_dict(row.path))
        node = None if row.address is None or is_item else references.graph.find(row.address)
        if node is not None:
            yield Holder(row.type, row.path or row.chain), node
