"""Ways through the graph as people and Python read them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gdbheap.errors import Fault
from gdbheap.layout.cpython import FLAG_TYPE
from gdbheap.objects.edges import Edge, EdgeNames
from gdbheap.objects.references import MODULES, STATIC_TYPES, Node, References

LISTED = 100
PORTION = 512
LONGEST_RUN = 30
BLOCK, FRAME, MEMORY = "block", "frame", "memory"
_OWN_DICT = re.compile(r"\A(.*)\.__dict__\['([A-Za-z_]\w*)'\]\Z", re.DOTALL)


@dataclass(frozen=True)
class Step:
    """One object, or what else is on the way: its address, the name of its type, and the edge that leads to it."""

    address: int
    type: str
    edge: str


@dataclass(frozen=True)
class Path:
    """A way from a root to an object; ``expression`` is the same as Python, None where there is none."""

    steps: list[Step]
    expression: str | None
    length: int


class Paths:
    """Names nodes, edges and chains of one graph."""

    def __init__(self, references: References) -> None:
        self.references = references
        self.names = references.objects.names
        self.edges = EdgeNames(references.objects.repr, references.threads)
        self._kept: dict[int, _Prefix] = {}

    def type_name(self, node: Node) -> str:
        """The type's name of an object, else a word for what it is."""
        if node.root is not None:
            return FRAME if node.root.frame else MEMORY
        return self.names.name(node.type) if node.type else BLOCK

    def edge(self, holder: Node, target: Node) -> Edge:
        """What ``holder`` (an object, a root, or an unknown block) calls its reference to ``target``."""
        if holder.root is not None:
            return self._root_edge(holder, target)
        if holder.type:
            return self.edges.edge(holder.address, target.address)
        inside = "" if holder.kind != "unknown" else f" of {holder.size:,} bytes"
        return Edge(f" holds it (a block{inside})")

    def _root_edge(self, holder: Node, target: Node) -> Edge:
        root = holder.root
        if root is None or root.name == STATIC_TYPES:
            return Edge("static type")
        if root.name == MODULES:
            return Edge(MODULES, MODULES)
        if root.frame is None:
            return Edge(f"data of {root.name}")
        for local in root.frame.locals:
            if local.value == target.address:
                known = f"local variable {local.name}" if local.name is not None else "a value on the stack"
                return Edge(f"{known} in {root.name}")
        return Edge(root.name)

    def path(self, numbers: Sequence[int]) -> Path:
        """A chain of the graph, from a root on; of a long one the steps at both ends. Buffers belong to the object
        before them."""
        prefix = self._prefix(numbers)
        if len(numbers) <= 4 * LISTED:
            return Path(self._steps(self._objects(numbers)), prefix.text(), prefix.length)
        head, tail = self._objects(numbers[: 2 * LISTED]), self._objects(numbers[-2 * LISTED :])
        return Path(self._steps(head)[:LISTED] + self._steps(tail)[-LISTED:], prefix.text(), prefix.length)

    def _objects(self, numbers: Sequence[int]) -> list[Node]:
        return [node for node in self.references.nodes(numbers) if node.kind != "buffer"]

    def _steps(self, nodes: list[Node]) -> list[Step]:
        """A step for each node but the first, which is the root, or leads there."""
        run = _Prefix()
        steps = []
        for holder, node in zip(nodes, nodes[1:]):
            edge = self._next(run, holder, node)
            steps.append(Step(node.address, self.type_name(node), edge.text.strip()))
        return steps

    def _prefix(self, numbers: Sequence[int]) -> _Prefix:
        """The edges of a chain. What is known of its beginning is kept: other chains begin the same way."""
        done, prefix = 0, _Prefix()
        places = range(PORTION, len(numbers), PORTION)
        for place in reversed(places):
            if numbers[place] in self._kept:
                done, prefix = place, self._kept[numbers[place]].copy()
                break
        left: list[Node] = []
        for place in [*(place for place in places if place > done), len(numbers)]:
            nodes = left + self._objects(numbers[done : place + 1])
            self._extend(prefix, nodes)
            left = []
            if place < len(numbers) and nodes[-1].id == numbers[place]:
                self._kept[numbers[place]] = prefix.copy()
            elif place < len(numbers):
                left = nodes[-1:]
            done = place if not left else place + 1
        return prefix

    def _extend(self, prefix: _Prefix, nodes: list[Node]) -> None:
        """Add the edges between the nodes. The next one of a run is looked for where the last one was."""
        for holder, node in zip(nodes, nodes[1:]):
            self._next(prefix, holder, node)

    def _next(self, prefix: _Prefix, holder: Node, node: Node) -> Edge:
        """The edge between two nodes, which becomes the last one of the prefix."""
        prefix.length += 1
        edge = prefix.repeated(holder, node)
        if edge is None:
            edge = self.edge(holder, node)
            # What a class has in its dict may come out of an attribute as something else.
            prefix.add(edge, holder, bool(holder.type and self.names.flags(holder.type) & FLAG_TYPE))
        return edge


class _Prefix:
    """The beginning of an expression, as runs of the same edge: [edge, how often, the holders' type, of a class]."""

    def __init__(self) -> None:
        self.runs: list[list[Any]] = []
        self.length = 0
        self.lost = False

    def copy(self) -> _Prefix:
        """One that can grow on its own."""
        other = _Prefix()
        other.runs, other.length, other.lost = [list(run) for run in self.runs], self.length, self.lost
        return other

    def add(self, edge: Edge, holder: Node, of_class: bool) -> None:
        """One more edge."""
        last = self.runs[-1] if self.runs else None
        if edge.expression is None or (holder.root is not None and "{}" in edge.expression):
            self.lost = True
        if last is not None and last[0] == edge and last[2] == holder.type:
            last[1] += 1
        else:
            self.runs.append([edge, 1, holder.type, of_class])

    def repeated(self, holder: Node, target: Node) -> Edge | None:
        """The last edge if it leads from ``holder`` to ``target`` too; counts it then."""
        edge: Edge
        edge, _count, kind, _of_class = self.runs[-1] if self.runs else (Edge(""), 0, 0, False)
        if kind != holder.type or edge.follow is None:
            return None
        try:
            if edge.follow(holder.address) != target.address:
                return None
        except (Fault, OverflowError):
            return None
        self.runs[-1][1] += 1
        return edge

    def text(self) -> str | None:
        """The whole expression; a long run as a loop."""
        if self.lost or not self.runs:
            return None
        text, class_before = "", False
        for edge, count, _kind, of_class in self.runs:
            if count > LONGEST_RUN:
                step = edge.expression.replace("{}", "x", 1)
                text = f"__import__('functools').reduce(lambda x, _: {step}, range({count}), {text})"
                continue
            for _ in range(count):
                text = edge.expression.replace("{}", text, 1)
            if not class_before:
                text = _OWN_DICT.sub(r"\1.\2", text)
            class_before = of_class
        # A class shows its dict through a proxy.
        return f"__import__('gc').get_referents({text})[0]" if class_before and text.endswith(".__dict__") else text
