"""Find the objects that keep memory alive according to reference counts, without building the graph of references."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gdbheap import _native
from gdbheap.contents.python.objects.census import Objects
from gdbheap.contents.python.objects.references import MODULES, PythonNodes, roots_of_python
from gdbheap.contents.python.objects.shapes import graph_layout
from gdbheap.contents.python.running.threads import ThreadStates
from gdbheap.graph.nodes import Node
from gdbheap.layout.cpython import FLAG_TYPE

__all__ = ["KeptObjects"]

MODULE, DICT = "module", "dict"
# An object whose parts have at least this percentage of its bytes is reported by its parts.
PARTS_PERCENT = 90


class KeptObjects(PythonNodes):
    """The objects of at least ``minimum`` bytes that modules and frames keep alive, and the objects on these paths.

    Their node numbers come from the native code, which does not build the graph. About ``most`` blocks are read, in at
    most ``seconds`` of CPU time.
    """

    def __init__(
        self,
        objects: Objects,
        threads: ThreadStates,
        most: int,
        seconds: float,
        minimum: int,
        progress: Callable[[int, int], object] | None = None,
    ) -> None:
        """Find the objects. Raises Unsupported if the tables of the release lack a field."""
        super().__init__()
        self.objects = objects
        self.threads = threads
        self.minimum = minimum
        self.roots = roots_of_python(objects, threads)
        layout = graph_layout(objects.release, threads.interpreters)
        found = _native.find_kept(objects.heaps, objects.layout, layout, self.roots, most, seconds, minimum, progress)
        self.is_done = found.is_done
        self.rows = {row.id: row for row in found.nodes}
        self._below: dict[int, list[_native.KeptNode]] = {}
        for row in found.nodes:
            if row.bytes >= minimum and row.holder is not None:
                self._below.setdefault(row.holder, []).append(row)

    def chain(self, row: _native.KeptNode) -> list[int]:
        """Return the numbers of the nodes from the root to ``row``."""
        found = [row.id]
        while self.rows[found[-1]].above != found[-1]:
            found.append(self.rows[found[-1]].above)
        return found[::-1]

    def holders(self) -> list[_native.KeptNode]:
        """Return the objects that a programmer would name as holders, the largest first.

        No returned object is part of another one.
        """
        rows = [row for row in self.rows.values() if row.id >= len(self.roots) and row.bytes >= self.minimum]
        found = [holder for row in rows if row.holder is None for holder in self._named(row)]
        return sorted(found, key=lambda row: (-row.bytes, row.id))

    def _named(self, row: _native.KeptNode, passed: frozenset[int] = frozenset()) -> Iterator[_native.KeptNode]:
        """Yield the object, or only its parts if these have nearly all of its bytes.

        Objects of one type that hold one another are one holder. ``passed``: the types of the objects above.
        """
        below = self._below.get(row.id, [])
        is_namespace, is_instance = self._is_namespace(row), self._is_instance(row)
        is_split = 100 * sum(part.bytes for part in below) >= PARTS_PERCENT * row.bytes
        is_nested = any(part.type_address in passed | {row.type_address} for part in below)
        if is_namespace or (is_split and not is_nested and (is_instance or len(below) == 1)):
            more = frozenset() if self._type(row) == DICT else {row.type_address}
            for part in below:
                yield from self._named(part, passed | more)
        else:
            yield row

    def _is_namespace(self, row: _native.KeptNode) -> bool:
        """Return whether an object is a module, a class, the dict of one of these, or ``sys.modules``."""
        above = self.rows[row.above]
        of_modules = above.id < len(self.roots) and self.roots[above.id].name == MODULES
        is_dict = self._type(row) == DICT and (of_modules or self._has_names(above))
        return is_dict or self._has_names(row)

    def _has_names(self, row: _native.KeptNode) -> bool:
        if not row.type_address:
            return False
        return self._type(row) == MODULE or bool(self.objects.names.flags(row.type_address) & FLAG_TYPE)

    def _is_instance(self, row: _native.KeptNode) -> bool:
        """Return whether an object is an instance of a class, or the dict of such an instance."""
        kinds = [row, self.rows[row.above]] if self._type(row) == DICT else [row]
        return any("." in self._type(one) for one in kinds)

    def _type(self, row: _native.KeptNode) -> str:
        return self.objects.names.name(row.type_address) if row.type_address else ""

    def objects_among(self, numbers: Sequence[int]) -> list[Node]:
        return self.nodes(numbers)

    def _read(self, numbers: Sequence[int]) -> Iterator[Node]:
        for number in numbers:
            row = self.rows[number]
            if number < len(self.roots):
                root = self.roots[number]
                at = root.frame.address if root.frame else next(iter(root.pointers), 0)
                yield Node(number, "root", "unknown", at, 0, 0, 0, root)
                continue
            yield Node(number, "block", "object", row.address, row.address, 0, row.type_address)
