"""Paths through the graph of Python objects, as text for people and as Python expressions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from gdbheap.contents.python.names.edges import Edge, EdgeNames, is_namespace
from gdbheap.contents.python.names.library_variables import variable_to
from gdbheap.contents.python.objects.references import BY_STACKS, MODULES, STATIC_TYPES, PythonNodes, PythonRoot
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault
from gdbheap.graph.nodes import Node
from gdbheap.graph.paths import BLOCK, STEPS_AT_EACH_END, Path, Step
from gdbheap.layout.cpython import FLAG_TYPE

PORTION = 512
MAX_RUN = 30
# The most runs of an expression. Nobody can use a longer one, and each chain of the graph would hold a copy of it.
MAX_RUNS = 500
# The most edges whose names are cached. Caching helps, because many chains lead through the same edges.
KEPT_EDGES = 1 << 14
FRAME, MEMORY = "frame", "memory"
OWN_DICT = ".__dict__"
# The dict of a class. A class gives access to it only through a proxy.
DICT_OF_CLASS = "__import__('gc').get_referents({})[0]"
# The text of a key, as for Python 3 and as for Python 2.
_KEY = re.compile(r"\A\[(?:'([A-Za-z_]\w*)'|str\(b'([A-Za-z_]\w*)'\))\]\Z")


class ObjectPaths:
    """Names the nodes, edges and chains of one graph of Python objects."""

    def __init__(self, references: PythonNodes) -> None:
        self.references = references
        self.names = references.objects.names
        self.edges = EdgeNames(references.objects.repr, references.threads)
        self._kept: dict[int, _Prefix] = {}
        self._edges: dict[tuple[int, int, bool], Edge] = {}
        # Names for blocks to which roots point, by the address of the block, if these names say more than the root's
        # name.
        self.named: dict[int, str] = {}

    def type_name(self, node: Node) -> str:
        """Return the name of an object's type; for any other node, the name of its kind."""
        if isinstance(node.root, PythonRoot):
            return FRAME if node.root.is_running else MEMORY
        return self.names.name(node.type) if node.type else self._structure_at(node) or BLOCK

    def _structure_at(self, node: Node) -> str | None:
        structures = self.references.structures
        return structures.name_at(node.block) if structures is not None and node.kind == "unknown" else None

    def structure_name(self, kind: int) -> str:
        """Return the name of the kind of C blocks with the number ``kind``."""
        structures = self.references.structures
        return BLOCK if structures is None else structures.name_of(kind)

    def kind_name(self, kind: int) -> str:
        """Return the name of the type whose address is ``kind``."""
        return self.names.name(kind)

    def edge(self, holder: Node, target: Node, above: str = "") -> Edge:
        """Return the name of the reference from ``holder`` (an object, a root, or an unknown block) to ``target``.

        ``above``: the text of an edge to the holder. If the holder is a dict, this text shows whether the keys are
        names."""
        key = holder.id, target.id, is_namespace(above)
        found = self._edges.get(key)
        if found is None:
            if len(self._edges) >= KEPT_EDGES:
                self._edges.clear()
            found = self._edges[key] = self._edge(holder, target, key[-1])
        return found

    def _edge(self, holder: Node, target: Node, names: bool) -> Edge:
        if holder.root is not None:
            return self._root_edge(holder, target)
        if holder.type:
            return self.edges.edge(holder.address, target.address, names)
        inside = "" if holder.kind != "unknown" else f" of {holder.size:,} bytes"
        return Edge(f" holds it (a block{inside})")

    def _root_edge(self, holder: Node, target: Node) -> Edge:
        root = holder.root
        if not isinstance(root, PythonRoot) or root.name == STATIC_TYPES:
            return Edge("static type")
        if target.block in self.named:
            return Edge(self.named[target.block])
        if root.name == MODULES:
            return Edge(f"{MODULES}{_where(root)}", MODULES)
        if root.phase == BY_STACKS:
            return Edge("a word on a thread's stack" if root.ranges else "a thread's register")
        if root.is_exception or root.is_registered:
            return Edge(root.name)
        if root.frame is None:
            variable = variable_to(self.references, holder, target)
            return Edge(f"data of {root.name}" if variable is None else variable.name)
        for local in root.frame.locals:
            if local.value == target.address:
                known = f"local variable {local.name}" if local.name is not None else "a value on the stack"
                return Edge(f"{known} in {root.name}")
        return Edge(root.name)

    def path(self, numbers: Sequence[int]) -> Path:
        """Return the path for a chain of node numbers that begins at a root.

        A long path has only the steps at both ends. A buffer has no step of its own, because it belongs to the object
        before it.
        """
        prefix = self._prefix(numbers)
        expression = prefix.text()
        root = self.references.node(numbers[0]).root if expression else None
        if isinstance(root, PythonRoot) and root.interpreter:
            # The expression may have a comment, which Python ignores.
            expression = f"{expression}  #{_where(root)}"
        if len(numbers) <= 4 * STEPS_AT_EACH_END:
            return Path(self._steps(self._objects(numbers)), expression, prefix.length)
        head, tail = self._objects(numbers[: 2 * STEPS_AT_EACH_END]), self._objects(numbers[-2 * STEPS_AT_EACH_END :])
        return Path(
            self._steps(head)[:STEPS_AT_EACH_END] + self._steps(tail)[-STEPS_AT_EACH_END:], expression, prefix.length
        )

    def naming(self, numbers: Sequence[int]) -> Sequence[int]:
        """Return the nodes of a chain that must be named: all of ``numbers``, because two holders may differ in any
        node's name.
        """
        return numbers

    def _objects(self, numbers: Sequence[int]) -> list[Node]:
        if len(numbers) >= PORTION:
            return self.references.objects_among(numbers)
        return [node for node in self.references.nodes(numbers) if node.kind != "buffer"]

    def _steps(self, nodes: list[Node]) -> list[Step]:
        """Return the steps of a path: one for each node after the first."""
        run = _Prefix()
        steps = []
        for holder, node in zip(nodes, nodes[1:]):
            edge = self._next(run, holder, node)
            steps.append(Step(node.address, self.type_name(node), edge.text.strip()))
        return steps

    def _prefix(self, numbers: Sequence[int]) -> _Prefix:
        """Return the expression for a chain of nodes, from the names of its edges.

        The beginnings of chains are cached, because many chains have the same beginning.
        """
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
        """Append the edges between the nodes to the prefix. An edge that continues the last run (``_Run``) is found
        without searching the holder, which may be large.
        """
        for holder, node in zip(nodes, nodes[1:]):
            self._next(prefix, holder, node)

    def _next(self, prefix: _Prefix, holder: Node, node: Node) -> Edge:
        """Return the edge between two nodes, and append it to the prefix."""
        prefix.length += 1
        edge = prefix.repeated(holder, node)
        if edge is None:
            edge = self.edge(holder, node, prefix.last)
            of_class = bool(holder.type and self.names.flags(holder.type) & FLAG_TYPE)
            prefix.add(edge, holder, of_class, self._is_attribute(prefix.own_dict(), edge))
        prefix.last = edge.text
        return edge

    def _is_attribute(self, kind: int, edge: Edge) -> bool:
        """Return whether a key in an instance's dict can be written as an attribute.

        A key that is no identifier cannot. Nor can a key that the type at ``kind`` hides by an own attribute.
        """
        key = key_of(edge.text) if kind else None
        return key is not None and not self.edges.shadowed(kind, key)


def is_own_dict(expression: str) -> bool:
    """Return whether an expression is the dict of an instance or of a class. Such a dict counts as a part of its
    owner.
    """
    start, end = DICT_OF_CLASS.split("{}")
    return expression.endswith(OWN_DICT) or (expression.startswith(start) and expression.endswith(end))


def _where(root: PythonRoot) -> str:
    """Return " in interpreter N" for the ``sys.modules`` of a subinterpreter; "" for that of the main interpreter."""
    return f" in interpreter {root.interpreter}" if root.interpreter else ""


@dataclass
class _Run:
    """A run: an edge that is followed ``count`` times in a row, each time from an object of the same type.

    A run may also repeat two edges in turn: from an instance to its dict, and from the dict to a value. An expression
    shows a long run as a loop.
    """

    edges: tuple[Edge, ...]
    kind: int
    of_class: bool
    count: int = 1

    @property
    def expression(self) -> str:
        """The expression for one repetition of the run, with ``{}`` for the expression of the holder."""
        if len(self.edges) == 1:
            return self.edges[0].expression or ""
        return f"{{}}.{key_of(self.edges[1].text)}"


class _Prefix:
    """The beginning of an expression, as runs of edges (``_Run``).

    ``place``: how many edges of an unfinished repetition of the last run were appended.
    ``last``: the text of the last edge.
    """

    def __init__(self) -> None:
        self.runs: list[_Run] = []
        self.last = ""
        self.place = 0
        self.length = 0
        self.lost = False

    def copy(self) -> _Prefix:
        """Return a copy of this prefix. Edges that are appended to the copy do not change this prefix."""
        other = _Prefix()
        other.runs = [replace(run) for run in self.runs]
        other.place, other.length, other.lost, other.last = self.place, self.length, self.lost, self.last
        return other

    def own_dict(self) -> int:
        """Return the address of an instance's type if the chain ends in the instance's dict; otherwise 0."""
        last = self.runs[-1] if self.runs else None
        if last is None or last.of_class or last.edges[-1 if self.place == 0 else 0].text != OWN_DICT:
            return 0
        return last.kind

    def add(self, edge: Edge, holder: Node, of_class: bool, plain: bool) -> None:
        """Append an edge. ``of_class``: the holder is a class.

        ``plain``: the edge begins in an instance's own dict, and its key can be written as an attribute.
        """
        if edge.expression is None or (holder.root is not None and "{}" in edge.expression):
            self.lost = True
        if len(self.runs) > MAX_RUNS:
            self.lost = True
            # `repeated` and `own_dict` need the last run, and the next one may take the place of the run before.
            del self.runs[:-2]
        if self.place:
            last = self.runs[-1]
            self.runs.append(_Run(last.edges[: self.place], last.kind, last.of_class))
            self.place = 0
        run = _Run((edge,), holder.type, of_class)
        if plain:
            before = self.runs[-1]
            if before.count == 1:
                self.runs.pop()
            before.count -= 1
            run = _Run((*before.edges, edge), before.kind, False)
        if self.runs and (self.runs[-1].edges, self.runs[-1].kind) == (run.edges, run.kind):
            self.runs[-1].count += 1
        else:
            self.runs.append(run)

    def repeated(self, holder: Node, target: Node) -> Edge | None:
        """Repeat the last run: append its next edge and return it, if this edge leads from ``holder`` to ``target``.

        A run is one edge, or two in turn, that the path follows repeatedly (``_Run``). Return None if there is no run
        or the edge leads elsewhere.
        """
        if not self.runs:
            return None
        run = self.runs[-1]
        edge = run.edges[self.place]
        if edge.follow is None or (self.place == 0 and run.kind != holder.type):
            return None
        try:
            if edge.follow(holder.address) != target.address:
                return None
        except (Fault, OverflowError):
            return None
        self.place += 1
        if self.place == len(run.edges):
            self.place = 0
            run.count += 1
        return edge

    def text(self) -> str | None:
        """Return the whole expression; a long run becomes a loop. Return None if an edge has no expression, or if there
        are too many runs.
        """
        if self.lost or not self.runs:
            return None
        text = ""
        for run in self.runs:
            if run.count > MAX_RUN:
                step = run.expression.replace("{}", "x", 1)
                text = f"__import__('functools').reduce(lambda x, _: {step}, range({run.count}), {text})"
                continue
            for _ in range(run.count):
                text = run.expression.replace("{}", text, 1)
        last = self.runs[-1]
        if last.of_class and last.edges[-1].text == OWN_DICT:
            return DICT_OF_CLASS.format(text)
        return f"{text}{OWN_DICT}" if self.place else text


def key_of(text: str) -> str | None:
    """Return the key in the text of an edge if the key is an identifier; otherwise None."""
    found = _KEY.match(text)
    return found and (found[1] or found[2])
