"""Ways through the graph as people and Python read them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from gdbheap.layout.cpython import FLAG_TYPE
from gdbheap.objects.edges import Edge, EdgeNames
from gdbheap.objects.references import MODULES, STATIC_TYPES, Node, References

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


class Paths:
    """Names nodes, edges and chains of one graph."""

    def __init__(self, references: References) -> None:
        self.references = references
        self.names = references.objects.names
        self.edges = EdgeNames(references.objects.repr, references.threads)

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
        """A chain of the graph, from a root on. Buffers belong to the object before them."""
        nodes = [node for node in self.references.nodes(numbers) if node.kind != "buffer"]
        steps: list[Step] = []
        expression: str | None = None
        for place, node in enumerate(nodes):
            if node.root is not None:
                continue
            edge = self.edge(nodes[place - 1], node) if place else Edge("")
            steps.append(Step(node.address, self.type_name(node), edge.text.strip()))
            expression = _extended(expression, edge, nodes[place - 1]) if place else None
            # What a class has in its dict may come out of an attribute as something else.
            if expression and place >= 2 and not self.names.flags(nodes[place - 2].type) & FLAG_TYPE:
                expression = _OWN_DICT.sub(r"\1.\2", expression)
        return Path(steps, expression)


def _extended(expression: str | None, edge: Edge, holder: Node) -> str | None:
    if edge.expression is None or (expression is None and holder.root is None):
        return None
    return edge.expression.replace("{}", expression or "", 1)
