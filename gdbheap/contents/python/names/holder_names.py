"""Name all references of an object at once, by key, index, attribute or variable, for files that list all references.

The module ``edges`` names a single reference, for people and as an expression.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from gdbheap.contents.python.names.edges import (
    F_FRAME,
    FRAMES_OF,
    GI_FRAME,
    KEY_LIMITS,
    MAX_NAME_LENGTH,
    TORN,
    EdgeNames,
    is_namespace,
)
from gdbheap.contents.python.objects.bounded_reads import Pages
from gdbheap.contents.python.objects.owned import deque_layout
from gdbheap.contents.python.objects.reading import dict_items, read_name
from gdbheap.contents.python.objects.references import MODULES, STATIC_TYPES, PythonRoot
from gdbheap.contents.python.running.threads import PythonFrame, ThreadStates
from gdbheap.contents.python.text.repr import Repr
from gdbheap.graph.naming import INDEX, INSIDE, NAME, EdgeName
from gdbheap.graph.nodes import Node
from gdbheap.layout.cpython import OB_SIZE

__all__ = ["HolderNames"]

Held = Iterator[tuple[int, EdgeName]]
CLASS = EdgeName(NAME, "__class__")
MAX_LISTED = 1 << 20
ITEMS_AT_ONCE = 1 << 13


class HolderNames:
    """Names the references that objects of one target hold. If contents are hidden, keys that are data have no name."""

    def __init__(self, texts: Repr, threads: ThreadStates) -> None:
        self._texts, self._threads = texts, threads
        self._space, self._release = Pages(texts.space), texts.release
        self._edges = EdgeNames(texts, threads)

    def of_root(self, root: Node, target: Node) -> EdgeName | None:
        """Return the name of a reference from ``sys.modules`` or from a variable of a frame; None for any other
        root."""
        found = root.root
        if not isinstance(found, PythonRoot) or found.name == STATIC_TYPES:
            return None
        if found.name == MODULES:
            return EdgeName(NAME, MODULES)
        locals_ = found.frame.locals if found.frame is not None else []
        names = (local.name for local in locals_ if local.value == target.address)
        name = next(names, None)
        return None if name is None else EdgeName(NAME, name)

    def is_dict(self, node: Node) -> bool:
        """Return whether the node is a dict, or an instance of a subclass of dict."""
        with suppress(*TORN):
            kind = self._texts.kind(node.type) if node.type else None
            return kind is not None and kind.family == "dict"
        return False

    def makes_namespace(self, name: EdgeName) -> bool:
        """Return whether a reference with this name is to a dict whose keys are names."""
        return name.kind == NAME and (name.text == MODULES or is_namespace(f".{name.text}"))

    def held(self, holder: Node, is_namespace: bool) -> Held:
        """Yield (address, name of the reference) for each object to which the object at ``holder`` refers.

        ``is_namespace``: the object is a dict whose keys are names. References that cannot be read are left out.
        """
        address, kind = holder.address, holder.type
        parts = [iter([(kind, CLASS)])]
        with suppress(*TORN):
            family = found.family if (found := self._texts.kind(kind)) is not None else ""
            parts += self._contents(address, kind, family, is_namespace)
        for part in [*parts, self._fields(address, kind), self._attributes(address, kind)]:
            with suppress(*TORN):
                yield from part

    def _contents(self, address: int, kind: int, family: str, is_namespace: bool) -> list[Held]:
        bases = self._edges.bases(kind)
        if family == "dict":
            return [self._entries(address, is_namespace)]
        if family in ("list", "tuple"):
            return [self._items(address, family)]
        if "collections.deque" in bases:
            return [self._in_deque(address)]
        if set(FRAMES_OF) & set(bases):
            return [self._in_generator(address)]
        return [self._in_frame_object(address)] if "frame" in bases else []

    def _entries(self, address: int, is_namespace: bool) -> Held:
        for place, (key, value) in enumerate(dict_items(self._space, self._release, address)):
            yield value, EdgeName(NAME, self._key(key, is_namespace) or f"key {place}")
            yield key, EdgeName(INSIDE, f"key {place}")

    def _key(self, key: int, is_namespace: bool) -> str | None:
        if is_namespace:
            text = read_name(self._space, self._release, key, MAX_NAME_LENGTH)
            if text and len(text) < MAX_NAME_LENGTH and all(part.isidentifier() for part in text.split(".")):
                return text
        return self._edges.literal(key) or self._texts.key_text(key, KEY_LIMITS)

    def _items(self, address: int, family: str) -> Held:
        space, release = self._space, self._release
        start = space.word(address + release["ob_item"]) if family == "list" else address + release["tuple_items"]
        return self._row(start, space.word(address + release.at(OB_SIZE)), 0)

    def _row(self, start: int, count: int, first: int) -> Held:
        """Yield (address of the item, its index) for the ``count`` items at the address ``start``. ``first``: the index
        of the first item.
        """
        count, width = min(count, MAX_LISTED), self._space.machine.word
        for at in range(0, count, ITEMS_AT_ONCE):
            raw = self._space.read_available(start + width * at, width * min(ITEMS_AT_ONCE, count - at))
            for place, item in enumerate(self._space.machine.words_of(raw[: len(raw) - len(raw) % width]), first + at):
                yield item, EdgeName(INDEX, place)

    def _in_deque(self, address: int) -> Held:
        space, layout = self._space, deque_layout(self._release)
        block, index = space.word(address + layout.left), space.word(address + layout.left_index)
        count, seen = min(space.word(address + layout.length), MAX_LISTED), 0
        while seen < count and index < layout.room:
            room = min(layout.room - index, count - seen)
            yield from self._row(block + layout.items + space.machine.word * index, room, seen)
            seen, index = seen + room, 0
            block = space.word(block + layout.right_link)

    def _in_generator(self, address: int) -> Held:
        embedded = self._release.get("gi_iframe")
        if embedded is not None:
            return self._in_frame(self._threads.read(address + embedded, False))
        return iter([(self._space.word(address + self._release.at(GI_FRAME)), EdgeName(NAME, "gi_frame"))])

    def _in_frame_object(self, address: int) -> Held:
        if self._release.get("frame_data") is None:
            return self._in_frame(self._threads.read(address, True))
        return self._in_frame(self._threads.read(self._space.word(address + self._release.at(F_FRAME)), False))

    def _in_frame(self, frame: PythonFrame | None) -> Held:
        if frame is None:
            return
        yield frame.code, EdgeName(NAME, "f_code")
        for local in frame.locals:
            if local.name is not None:
                yield local.value, EdgeName(NAME, local.name)

    def _fields(self, address: int, kind: int) -> Held:
        for offset, name in self._edges.fields(address, kind).items():
            yield self._space.word(address + offset), EdgeName(NAME, name)

    def _attributes(self, address: int, kind: int) -> Held:
        attributes = self._texts.attributes
        for name, value in attributes.of(self._space, address, kind):
            yield value, EdgeName(NAME, self._texts.disclosure.name(name))
        yield attributes.dict_of(self._space, address, kind), EdgeName(NAME, "__dict__")
