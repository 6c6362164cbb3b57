"""Describe as text why blocks that no root reaches are not freed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import field

from gdbheap import _native
from gdbheap.contents.python.names.packages import DYNAMIC
from gdbheap.contents.python.names.paths import OWN_DICT, key_of
from gdbheap.contents.python.objects.collector import frozen_heads
from gdbheap.contents.python.objects.shapes import GENERATORS
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault, GdbheapError
from gdbheap.graph.nodes import Node
from gdbheap.heap import Heap
from gdbheap.layout.cpython import TP_FLAGS

COLLECTABLE, FROZEN = "collectable", "frozen"
MAX_FROZEN = 1 << 22
MAX_LIBRARIES = 3
# tp_del lies this many bytes after tp_flags in every release.
DEL_AFTER_FLAGS = 208
OBSTACLES = {
    "likely": "pointers in C structures close the cycle, and gc.collect() may not see them",
    "hidden": "gc.collect() does not free it: memory of C code has a reference that the collector does not see",
    "frozen": "gc.collect() does not free it: gc.freeze() hides {} from the collector",
    "untracked": "gc.collect() does not free it: the collector does not see what {} refers to",
    "finalizer": "gc.collect() does not free it: {} has __del__",
}
HEADS = {
    "nothing": "nothing points to it",
    "circle": "lost blocks point to one another",
    "weak": "only stack words, interior or tagged pointers reach it",
}
MIDDLES = "only interior or tagged pointers, or words after a container's last item, reach it"
HANGING = {"nothing": "a lost block points to it", "circle": "lost blocks that point to one another also point to it"}
SAME = "the same"


@dataclass(frozen=True)
class CollectorFacts:
    """The facts that decide which cycles the collector frees; see native/core/src/graph/unreachable.rs.

    ``frames``: the types of frames and generators. ``code``: the code type. ``finalized``: the types with a ``tp_del``.
    ``frozen``: the objects that gc.freeze() put aside. Types and objects are addresses.
    """

    frames: list[int] = field(default_factory=list)
    code: int = 0
    finalized: list[int] = field(default_factory=list)
    frozen: list[int] = field(default_factory=list)


def collector_facts(heap: Heap) -> CollectorFacts:
    """Return the facts that decide which cycles the collector frees; without Python all fields are empty. Raises
    Unsupported."""
    if not heap.is_python:
        return CollectorFacts()
    names, kinds = heap.python.paths.names, heap.references.graph.type_addresses()
    named = {kind: names.name(kind) for kind in kinds}
    frames = [kind for kind, name in named.items() if name in ("frame", *GENERATORS)]
    code = next((kind for kind, name in named.items() if name == "code"), 0)
    finalized = [kind for kind in kinds if _has_own_finalizer(heap, kind)]
    return CollectorFacts(frames, code, finalized, _frozen(heap))


def _frozen(heap: Heap) -> list[int]:
    try:
        collector = heap.python.collector
    except GdbheapError:
        return []
    if collector is None or not collector.frozen:
        return []
    return list(frozen_heads(heap.target.space, collector, MAX_FROZEN))


def _has_own_finalizer(heap: Heap, kind: int) -> bool:
    """Return whether a type sets ``tp_del``: in Python 2 a class with ``__del__``, in Python 3 some types of C code."""
    release = heap.python.objects.release
    try:
        return heap.target.space.word(kind + release.at(TP_FLAGS) + DEL_AFTER_FLAGS) != 0
    except Fault:
        return False


class CauseTexts:
    """Describes as text why the blocks of one answer are not freed."""

    def __init__(self, heap: Heap) -> None:
        self._heap = heap
        self._known: dict[int, str] = {}

    def text(self, number: int, cause: _native.Cause, is_head: bool) -> str:
        """Return why a block is not freed.

        ``is_head``: whether the cause is about this block itself, and not about another block that keeps this block
        alive.
        """
        if cause.group == "cycles":
            if number not in self._known:
                self._known[number] = self._cycle(cause)
            closed = self._known[number]
            return closed if is_head else f"held by a cycle: {closed}"
        if cause.group == "lost_references":
            return self._reference() if is_head else f"held by {self._lost_type(cause)}"
        if cause.kind == "weak" and not self._heap.references.counts_references:
            return MIDDLES
        return HEADS[cause.kind] if is_head else HANGING.get(cause.kind, HEADS[cause.kind])

    def _lost_type(self, cause: _native.Cause) -> str:
        return f"{self._heap.paths.kind_name(cause.type_address)} whose references are lost"

    def _reference(self) -> str:
        libraries = extension_modules(self._heap)
        likely = libraries[0] if len(libraries) == 1 else "C code"
        listed = ", ".join(libraries[:MAX_LIBRARIES]) + (", and others" if len(libraries) > MAX_LIBRARIES else "")
        among = f" ({listed})" if len(libraries) > 1 else ""
        return f"the reference count is too high: {likely}{among} took a reference and never released it"

    def _cycle(self, cause: _native.Cause) -> str:
        closed = f"{self.closing(cause)}, in {cause.count:,} group{'s' * (cause.count != 1)}"
        if cause.kind == COLLECTABLE:
            return closed
        culprit = self._heap.paths.kind_name(cause.type_address) if cause.type_address else ""
        return f"{closed}; {OBSTACLES[cause.kind].format(culprit)}"

    def closing(self, cause: _native.Cause) -> str:
        """Return the references that close a cycle as text. It begins with a frame's variable if the cycle has one."""
        nodes = self._heap.references.nodes(cause.nodes)
        if not nodes:
            return "other cycles"
        is_whole = len(nodes) == cause.length
        turned = [*nodes, nodes[0]] if is_whole else nodes
        steps = list(_folded(self._steps(turned)))
        last = f"{SAME} {self._short(nodes[0])}" if is_whole else f"… ({cause.length:,} objects)"
        return " → ".join([*steps, last])

    def _steps(self, nodes: list[Node]) -> Iterator[str]:
        paths, above = self._heap.paths, ""
        pairs = iter(zip(nodes, nodes[1:]))
        for holder, target in pairs:
            edge = paths.edge(holder, target, above).text
            if edge == OWN_DICT and (following := next(pairs, None)) is not None:
                above = paths.edge(*following, edge).text
                key = key_of(above)
                yield f"{self._short(holder)}.{key}" if key else f"{self._short(holder)}{above}"
                continue
            above = edge
            yield self._step(holder, edge)

    def _step(self, holder: Node, edge: str) -> str:
        name = self._short(holder)
        local, _in, frame = edge.partition("local variable ")[2].partition(" in ")
        if local and frame:
            return f"local `{local}` of {frame}"
        is_named = edge.startswith((".", "[")) and not edge.startswith(".__") and not edge[1:].split("]")[0].isdigit()
        is_users = "." in name or name == "dict"
        return f"{name}{edge}" if is_named and is_users and ":" not in edge.split("'")[0] else name

    def _short(self, node: Node) -> str:
        return self._heap.paths.type_name(node)


def _folded(steps: Iterator[str]) -> Iterator[str]:
    """Yield the steps, with equal steps in a row merged into one step with a count."""
    last, count = "", 0
    for step in steps:
        if step == last:
            count += 1
            continue
        if count:
            yield last if count == 1 else f"{last} ({count:,} times)"
        last, count = step, 1
    if count:
        yield last if count == 1 else f"{last} ({count:,} times)"


def extension_modules(heap: Heap) -> list[str]:
    """Return the sorted names of the loaded extension modules, without the modules of the standard library."""
    paths = [loaded.path for loaded in heap.target.objects]
    names = (os.path.basename(path) for path in paths if path.endswith(".so") and DYNAMIC not in path)
    return sorted({name.split(".")[0] for name in names if not name.startswith(("lib", "ld"))})
