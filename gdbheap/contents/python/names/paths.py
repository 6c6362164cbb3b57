"""Ways through the graph as people and Python read them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gdbheap.contents.python.names.edges import Edge, EdgeNames, is_namespace
from gdbheap.contents.python.names.library_variables import variable_to
from gdbheap.contents.python.objects.references import BY_STACKS, MODULES, STATIC_TYPES, PythonNodes, PythonRoot
from gdbheap.errors import Fault
from gdbheap.graph.nodes import Node
from gdbheap.graph.paths import BLOCK, STEPS_AT_EACH_END, Path, Step
from gdbheap.layout.cpython import FLAG_TYPE

PORTION = 512
MAX_RUN = 30
# Edges whose names are kept: many chains lead through the same ones.
KEPT_EDGES = 1 << 14
FRAME, MEMORY = "frame", "memory"
OWN_DICT = ".__dict__"
# A class shows its dict through a proxy.
DICT_OF_CLASS = "__import__('gc').get_referents({})[0]"
# As Python 3 and 2 write it.
_KEY = re.compile(r"\A\[(?:'([A-Za-z_]\w*)'|str\(b'([A-Za-z_]\w*)'\))\]\Z")


class ObjectPaths:
    """Names nodes, edges and chains of one graph."""

    def __init__(self, references: PythonNodes) -> None:
        self.references = references
        self.names = references.objects.names
        self.edges = EdgeNames(references.objects.repr, references.threads)
        self._kept: dict[int, _Prefix] = {}
        self._edges: dict[tuple[int, int, bool], Edge] = {}
        # What blocks are that roots lead to, by their first bytes, where that says more than the root.
        self.named: dict[int, str] = {}

    def type_name(self, node: Node) -> str:
        """The type's name of an object, else a word for what it is."""
        if isinstance(node.root, PythonRoot):
            return FRAME if node.root.is_running else MEMORY
        return self.names.name(node.type) if node.type else self._structure_at(node) or BLOCK

    def _structure_at(self, node: Node) -> str | None:
        structures = self.references.structures
        return structures.name_at(node.block) if structures is not None and node.kind == "unknown" else None

    def structure_name(self, kind: int) -> str:
        """The name of a kind of blocks of C code by its number."""
        structures = self.references.structures
        return BLOCK if structures is None else structures.name_of(kind)

    def kind_name(self, kind: int) -> str:
        """The name of a type by its address."""
        return self.names.name(kind)

    def edge(self, holder: Node, target: Node, above: str = "") -> Edge:
        """What ``holder`` (an object, a root, or an unknown block) calls its reference to ``target``. ``above``: the
        text of an edge to the holder, which says what its keys are if it is a dict."""
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
        """A chain of the graph that begins at a root; of a long one the steps at both ends. Buffers belong to the
        object before them."""
        prefix = self._prefix(numbers)
        expression = prefix.text()
        root = self.references.node(numbers[0]).root if expression else None
        if isinstance(root, PythonRoot) and root.interpreter:
            # What is evaluated may have a comment.
            expression = f"{expression}  #{_where(root)}"
        if len(numbers) <= 4 * STEPS_AT_EACH_END:
            return Path(self._steps(self._objects(numbers)), expression, prefix.length)
        head, tail = self._objects(numbers[: 2 * STEPS_AT_EACH_END]), self._objects(numbers[-2 * STEPS_AT_EACH_END :])
        return Path(
            self._steps(head)[:STEPS_AT_EACH_END] + self._steps(tail)[-STEPS_AT_EACH_END:], expression, prefix.length
        )

    def naming(self, numbers: Sequence[int]) -> Sequence[int]:
        """All of it."""
        return numbers

    def _objects(self, numbers: Sequence[int]) -> list[Node]:
        if len(numbers) >= PORTION:
            return self.references.objects_among(numbers)
        return [node for node in self.references.nodes(numbers) if node.kind != "buffer"]

    def _steps(self, nodes: list[Node]) -> list[Step]:
        """A step for each node but the first, which is the root or its target."""
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
            edge = self.edge(holder, node, prefix.last)
            of_class = bool(holder.type and self.names.flags(holder.type) & FLAG_TYPE)
            prefix.add(edge, holder, of_class, self._is_attribute(prefix.own_dict(), edge))
        prefix.last = edge.text
        return edge

    def _is_attribute(self, kind: int, edge: Edge) -> bool:
        """Whether the key in the dict of an instance of the type at ``kind`` is the name of the attribute."""
        key = key_of(edge.text) if kind else None
        return key is not None and not self.edges.shadowed(kind, key)


def is_own_dict(expression: str) -> bool:
    """Return whether an expression is the dict of an instance or of a class, which is a part of that."""
    start, end = DICT_OF_CLASS.split("{}")
    return expression.endswith(OWN_DICT) or (expression.startswith(start) and expression.endswith(end))


def _where(root: PythonRoot) -> str:
    """Whose ``sys.modules``: nothing for the main interpreter's."""
    return f" in interpreter {root.interpreter}" if root.interpreter else ""


@dataclass
class _Run:
    """An edge, or an instance's dict with a key in it, that is followed ``count`` times from objects of the type at
    ``kind``."""

    edges: tuple[Edge, ...]
    kind: int
    of_class: bool
    count: int = 1

    @property
    def expression(self) -> str:
        """With ``{}`` for the holder's."""
        if len(self.edges) == 1:
            return self.edges[0].expression or ""
        return f"{{}}.{key_of(self.edges[1].text)}"


class _Prefix:
    """The beginning of an expression, as runs. ``place``: how many edges of one more turn of the last one it has;
    ``last``: the text of the last edge."""

    def __init__(self) -> None:
        self.runs: list[_Run] = []
        self.last = ""
        self.place = 0
        self.length = 0
        self.lost = False

    def copy(self) -> _Prefix:
        """One that can grow on its own."""
        other = _Prefix()
        other.runs = [replace(run) for run in self.runs]
        other.place, other.length, other.lost, other.last = self.place, self.length, self.lost, self.last
        return other

    def own_dict(self) -> int:
        """The type of the instance whose dict is the last object; 0 where it is none."""
        last = self.runs[-1] if self.runs else None
        if last is None or last.of_class or last.edges[-1 if self.place == 0 else 0].text != OWN_DICT:
            return 0
        return last.kind

    def add(self, edge: Edge, holder: Node, of_class: bool, plain: bool) -> None:
        """One more edge; ``plain``: of an instance's own dict, for a key that is the same as an attribute."""
        if edge.expression is None or (holder.root is not None and "{}" in edge.expression):
            self.lost = True
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
        """The next edge of the last run if it leads from ``holder`` to ``target`` too; counts it then."""
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
        """The whole expression; a long run as a loop."""
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
    """The key that an edge with this text is about, where that is an identifier."""
    found = _KEY.match(text)
    return found and (found[1] or found[2])
