"""Name a reference as its holder does: by an attribute, an index, a key or a variable.

The name is a Python expression if possible.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import field

from gdbheap.contents.python.names.struct_fields import C_FIELD, struct_fields
from gdbheap.contents.python.objects.attributes import MAX_BASES, MAX_MEMBERS, MEMBER, OBJECT_MEMBERS
from gdbheap.contents.python.objects.bounded_reads import Pages
from gdbheap.contents.python.objects.owned import SET_MASK, deque_layout
from gdbheap.contents.python.objects.reading import dict_items, dict_lookup, entry_reader, read_name
from gdbheap.contents.python.objects.references import MODULES
from gdbheap.contents.python.objects.shapes import GENERATORS, WEAK, WEAK_CALLBACK, set_key
from gdbheap.contents.python.running.handled_exceptions import handled_by
from gdbheap.contents.python.running.threads import ThreadStates
from gdbheap.contents.python.text.repr import Limits, Repr
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault, Unsupported
from gdbheap.layout.cpython import (
    FLAG_HEAP_TYPE,
    MODULE_DICT,
    OB_SIZE,
    OB_TYPE,
    OBJECT_HEAD,
    TP_BASE,
    TP_BASES,
    TP_BASICSIZE,
    TP_DICT,
    TP_MEMBERS,
    TP_MRO,
)

WINDOW = 1 << 20
LARGE_DICT = 1000
MAX_ITEMS = 1 << 40
MAX_DEQUE = 1 << 26
MAX_NAME_LENGTH = 200
KEY_LIMITS = Limits(length=400, value=300, items=20, depth=3, reads=400)
GI_FRAME = 16
TORN = (Fault, Unsupported, OverflowError, struct.error)
LITERALS = ("int", "str", "bytes", "NoneType", "bool")
CONSTANTS = ("NoneType", "bool")

# The fields of built-in types that are not in a type's table of members: {offset: name of the attribute}.
TYPE_FIELDS = {TP_BASE: "__base__", TP_BASES: "__bases__", TP_MRO: "__mro__", TP_DICT: "__dict__"}
METHOD = {16: "__func__", 24: "__self__"}
BUILTIN_FIELDS = {
    "cell": {16: "cell_contents"}, "method": METHOD, "instancemethod": METHOD,
    "instance": {16: "__class__", 24: "__dict__"}, "classobj": {16: "__bases__", 24: "__dict__", 32: "__name__"},
    "builtin_function_or_method": {24: "__self__", 32: "__module__"}, "traceback": {16: "tb_next", 24: "tb_frame"},
}  # fmt: skip
MODULE_FIELDS = {MODULE_DICT: "__dict__"}
EXCEPTION = {16: "__dict__", 24: "args"}
EXCEPTION_FIELDS = {
    "exc_message": "message", "exc_notes": "__notes__", "exc_traceback": "__traceback__", "exc_context": "__context__",
    "exc_cause": "__cause__",
}  # fmt: skip
FUNCTION_FIELDS = {
    "func_code": "__code__", "func_globals": "__globals__", "func_builtins": "__builtins__", "func_name": "__name__",
    "func_qualname": "__qualname__", "func_defaults": "__defaults__", "func_kwdefaults": "__kwdefaults__",
    "func_closure": "__closure__", "func_doc": "__doc__", "func_dict": "__dict__", "func_module": "__module__",
    "func_annotations": "__annotations__",
}  # fmt: skip
CODE_FIELDS = {
    "co_filename": "co_filename", "co_name": "co_name", "co_varnames": "co_varnames", "co_freevars": "co_freevars",
    "co_cellvars": "co_cellvars", "co_lnotab": "co_lnotab",
}  # fmt: skip
FRAMES_OF = {"generator": "gi_frame", "coroutine": "cr_frame", "async_generator": "ag_frame"}
# The fields of frame objects: up to 3.10, where the object is the frame itself, and later, where it contains or points
# to the frame.
WHOLE_FRAME_FIELDS = {24: "f_back", 40: "f_builtins", 48: "f_globals"}
FRAME_FIELDS = {16: "f_back"}
F_FRAME = 24


Follow = Callable[[int], int]


@dataclass(frozen=True)
class Edge:
    """The name of a reference in its holder.

    ``text``: the name as it follows the holder's name.
    ``expression``: the reference in Python, with ``{}`` in place of the holder; None if it has none.
    ``follow``: a function that follows the reference of this name from other holders of the type; None if unknown. It
    takes the holder's address. It returns the address of the object there, or 0.
    """

    text: str
    expression: str | None = None
    follow: Follow | None = field(default=None, compare=False, repr=False)


# The ends of texts of edges to dicts whose keys are names of attributes, variables or modules.
NAMESPACES = (".__dict__", ".__globals__", ".__builtins__", ".f_globals", ".f_builtins", ".__annotations__")


def is_namespace(text: str) -> bool:
    """Return whether an edge with this text points to a dict whose keys are names."""
    return text.endswith(NAMESPACES) or text.split(" in interpreter ")[0] == MODULES


def _attribute(name: str, follow: Follow | None = None) -> Edge:
    if C_FIELD in name:
        return Edge(name)
    expression = f"{{}}.{name}" if name.isidentifier() else f"getattr({{}}, {name!r})"
    return Edge(f".{name}", expression, follow)


class EdgeNames:
    """Names the edges of one target. A holder's memory is read only when one of its edges is asked for."""

    def __init__(self, texts: Repr, threads: ThreadStates) -> None:
        self._texts = texts
        self._space = Pages(texts.space)
        self._release = texts.release
        self._threads = threads
        self._disclosure = texts.disclosure
        self._shadowed: dict[tuple[int, str], bool] = {}
        self._structs: dict[int, dict[int, str]] = {}
        self._last: tuple[int, bytes, bytes] = (0, b"", b"")
        self._set_places: dict[tuple[int, int], int | None] = {}

    def edge(self, holder: int, target: int, names: bool = False) -> Edge:
        """Return the edge from the object at ``holder``, or from a buffer that it owns, to the object at ``target``.

        ``names``: the holder is a dict whose keys are names, which are shown even if contents are not."""
        with suppress(*TORN):
            kind = self._space.word(holder + self._release.at(OB_TYPE))
            if kind == target:
                return Edge(" is an instance of it", "type({})")
            for candidates in self._candidates(holder, kind, target, names):
                # If one place cannot be read, the reference may still be found in another.
                with suppress(*TORN):
                    for found in candidates:
                        return found
        return Edge(" holds it")

    def _candidates(self, holder: int, kind: int, target: int, names: bool) -> Iterator[Iterator[Edge]]:
        found = self._texts.kind(kind)
        if found is not None and found.family == "dict":
            yield self._in_dict(holder, target, names)
        elif found is not None:
            yield self._of_family(found.family, self.bases(kind), holder, target)
        yield self._fields(holder, kind, target)
        yield self._attributes(holder, kind, target)
        yield self._word(holder, kind, target)

    def _of_family(self, family: str, names: list[str], holder: int, target: int) -> Iterator[Edge]:
        release, space = self._release, self._space
        if family in ("list", "tuple"):
            start = space.word(holder + release["ob_item"]) if family == "list" else holder + release["tuple_items"]
            index = self._index(start, space.word(holder + self._release.at(OB_SIZE)), target)
            if index is not None:
                yield Edge(f"[{index}]", f"{{}}[{index}]", self._follow_item(family, index))
        elif family in ("set", "frozenset"):
            yield from self._in_set(holder, target)
        elif family == "type":
            yield from self._in_type(holder, target)
        elif family == "module":
            yield from self._in_fields(holder, self._moved(MODULE_FIELDS), target)
        elif family == "BaseException":
            yield from self._in_fields(holder, self._moved(EXCEPTION) | self._known(EXCEPTION_FIELDS), target)
        elif "collections.deque" in names:
            yield from self._in_deque(holder, target)
        elif set(GENERATORS) & set(names):
            yield from self._in_generator(holder, names[0], target)
        elif "frame" in names:
            yield from self._in_frame_object(holder, target)
        elif set(WEAK) & set(names) and space.word(holder + release.at(WEAK_CALLBACK)) == target:
            yield Edge(".__callback__", "{}.__callback__")

    def _follow_item(self, family: str, index: int) -> Follow:
        space, release, word = self._space, self._release, self._space.machine.word
        items, inline, size = release["ob_item"], release["tuple_items"], release.at(OB_SIZE)

        def of_list(holder: int) -> int:
            return space.word(space.word(holder + items) + word * index) if space.word(holder + size) > index else 0

        def of_tuple(holder: int) -> int:
            return space.word(holder + inline + word * index) if space.word(holder + size) > index else 0

        return of_list if family == "list" else of_tuple

    def bases(self, kind: int) -> list[str]:
        """Return the names of a type and of its bases along ``tp_base``. Raises Fault."""
        found: list[str] = []
        while kind and len(found) < MAX_BASES:
            found.append(self._texts.names.name(kind))
            kind = self._space.word(kind + self._release.at(TP_BASE))
        return found

    def _fields(self, holder: int, kind: int, target: int) -> Iterator[Edge]:
        """Yield the edges of fields that are attributes, from the type's own table of members or from known layouts."""
        yield from self._in_fields(holder, self._fields_of_type(kind), target)
        yield from self._in_fields(holder, dict(self._members(kind)), target)
        yield from self._in_fields(holder, self._struct(kind), target)

    def _struct(self, kind: int) -> dict[int, str]:
        """Return {offset: name} of the fields that C sources declare for a type and its bases."""
        if kind not in self._structs:
            size = self._space.word(kind + self._release.at(TP_BASICSIZE))
            found: dict[int, str] = {}
            for name in reversed(self.bases(kind)):
                found |= struct_fields(self._release, name)
            self._structs[kind] = {offset: name for offset, name in found.items() if offset < size}
        return self._structs[kind]

    def fields(self, holder: int, kind: int) -> dict[int, str]:
        """Return {offset: name} of the attributes that are fields of objects of the type ``kind``. Raises Fault."""
        found, family = self._texts.kind(kind), ""
        if found is not None:
            family = found.family
        by_family = {
            "type": lambda: self._type_fields(holder),
            "module": lambda: self._moved(MODULE_FIELDS),
            "BaseException": lambda: self._moved(EXCEPTION) | self._known(EXCEPTION_FIELDS),
        }
        own = by_family[family]() if family in by_family else {}
        return self._struct(kind) | dict(self._members(kind)) | self._fields_of_type(kind) | own

    def _fields_of_type(self, kind: int) -> dict[int, str]:
        name = self._texts.names.name(kind)
        tables = {"function": FUNCTION_FIELDS, "code": CODE_FIELDS}.get(name, {})
        return self._known(tables) | self._moved(BUILTIN_FIELDS.get(name, {}))

    def _known(self, fields: dict[str, str]) -> dict[int, str]:
        """Return {offset: attribute} for those ``fields`` that this release has.

        ``fields``: {name of the field in the shipped table: name of the attribute}.
        """
        places = ((self._release.get(field), name) for field, name in fields.items())
        return {offset: name for offset, name in places if offset is not None}

    def _moved(self, fields: dict[int, str]) -> dict[int, str]:
        """Return the fields with the offsets that they have in this build. All fields lie after an object's header."""
        return {self._release.at(offset): name for offset, name in fields.items()}

    def _in_fields(self, holder: int, fields: dict[int, str], target: int) -> Iterator[Edge]:
        for offset, name in fields.items():
            if self._space.word(holder + offset) == target:
                yield _attribute(name, self._follow_field(offset))

    def _follow_field(self, offset: int) -> Follow:
        return lambda other: self._space.word(other + offset)

    def _members(self, kind: int) -> Iterator[tuple[int, str]]:
        """Yield (offset in bytes, name) of each object member of a type and of its bases."""
        for _ in range(MAX_BASES):
            if not kind:
                return
            table = self._space.word(kind + self._release.at(TP_MEMBERS))
            member = self._space.machine.structure(MEMBER)
            for place in range(MAX_MEMBERS if table else 0):
                name, code, offset = member.unpack(self._space.read(table + place * member.size, member.size))
                if not name:
                    break
                if code in OBJECT_MEMBERS and 0 <= offset < 1 << 20:
                    yield offset, self._space.cstring(name, MAX_NAME_LENGTH).decode("utf-8", "replace")
            kind = self._space.word(kind + self._release.at(TP_BASE))

    def _attributes(self, holder: int, kind: int, target: int) -> Iterator[Edge]:
        attributes = self._texts.attributes
        for name, value in attributes.of(self._space, holder, kind):
            # A name of the maximum length may have been cut.
            if value == target and len(name) < attributes.MAX_NAME_LENGTH:
                follow = attributes.reader(self._space, holder, kind, name)
                plain = attributes.is_slot(kind, name) or not self.shadowed(kind, name)
                if self._disclosure.name(name) != name:
                    yield Edge(f".{self._disclosure.name(name)}")
                else:
                    yield _attribute(name, follow) if plain else _item_of_dict(name, follow)
        if attributes.dict_of(self._space, holder, kind) == target:
            yield Edge(".__dict__", "{}.__dict__", lambda other: attributes.dict_of(self._space, other, kind))

    def shadowed(self, kind: int, name: str) -> bool:
        """Return whether the type or a base has an attribute of this name, which may hide the instance's attribute."""
        if (kind, name) not in self._shadowed:
            self._shadowed[kind, name] = any(self._has(base, name) for base in self._mro(kind))
        return self._shadowed[kind, name]

    def _mro(self, kind: int) -> list[int]:
        """Return the classes in the type's MRO, itself first; only the type itself if they cannot be read."""
        with suppress(*TORN):
            mro = self._space.word(kind + self._release.at(TP_MRO))
            count = min(self._space.word(mro + self._release.at(OB_SIZE)), MAX_BASES)
            raw = self._space.read(mro + self._release["tuple_items"], self._space.machine.word * count)
            return list(self._space.machine.words_of(raw))
        return [kind]

    def _has(self, kind: int, name: str) -> bool:
        with suppress(*TORN):
            # Since 3.12 the dicts of built-in types are elsewhere; their attributes are only methods or slots.
            found = self._space.word(kind + self._release.at(TP_DICT))
            lookups = self._texts.names.lookups
            return bool(found) and dict_lookup(self._space, self._release, found, name, lookups) is not None
        return False

    def _word(self, holder: int, kind: int, target: int) -> Iterator[Edge]:
        size, head = self._space.word(kind + self._release.at(TP_BASICSIZE)), self._release.at(OBJECT_HEAD)
        raw = self._space.read_available(holder + head, min(max(size - head, 0), WINDOW))
        at = self._position(raw, target)
        if at is not None:
            yield Edge(f" holds it at +{head + at}")

    def _index(self, start: int, count: int, target: int) -> int | None:
        """Return the index of ``target`` among the ``count`` pointers at ``start``; None if it is not among them."""
        word = self._space.machine.word
        size = word * min(count, MAX_ITEMS)
        for at in range(0, size, WINDOW):
            raw = self._space.read_available(start + at, min(WINDOW, size - at))
            place = self._position(raw, target)
            if place is not None:
                return (at + place) // word
            if not raw:
                return None
        return None

    def _position(self, raw: bytes, target: int) -> int | None:
        """Return the offset of the aligned word ``target`` in ``raw``; None if it is not there."""
        word = self._space.machine.structure("P")
        wanted, at = word.pack(target), -1
        while True:
            at = raw.find(wanted, at + 1)
            if at < 0 or at % word.size == 0:
                return None if at < 0 else at

    def _in_dict(self, holder: int, target: int, names: bool) -> Iterator[Edge]:
        keys, values = self._items(holder)
        at, word = self._position(values, target), self._space.machine.word
        if at is not None:
            key, place = self._space.machine.word_of(keys, at), at // word
            literal = self._name(key) if names else self.literal(key)
            shown = literal or self._texts.key_text(key, KEY_LIMITS) or f"key {place}"
            follow = entry_reader(self._space, self._release, holder, key) if literal else None
            expression = f"{{}}[{literal}]" if literal else f"list(dict.values({{}}))[{place}]"
            yield Edge(f"[{shown}]", expression, follow)
        at = self._position(keys, target)
        if at is not None:
            yield Edge(f" has it as key {at // word}", f"list({{}})[{at // word}]")

    def keys_of(self, holder: int, target: int) -> list[str]:
        """Return those keys of a dict that are identifiers and have the object at ``target`` as their value."""
        keys, values = self._items(holder)
        machine = self._space.machine
        places = (place for place, value in enumerate(machine.words_of(values)) if value == target)
        with suppress(*TORN):
            texts = [self._name(machine.word_of(keys, place * machine.word)) for place in places]
            return [text[1:-1] for text in texts if text is not None and text[1:-1].isidentifier()]
        return []

    def _items(self, holder: int) -> tuple[bytes, bytes]:
        """Return the keys and the values of a dict. The last large dict is cached, because many paths contain it."""
        if self._last[0] == holder:
            return self._last[1:]
        keys, values = array("Q"), array("Q")
        with suppress(*TORN):
            for key, value in dict_items(self._space, self._release, holder):
                keys.append(key)
                values.append(value)
        found = keys.tobytes(), values.tobytes()
        if len(keys) >= LARGE_DICT:
            self._last = (holder, *found)
        return found

    def literal(self, key: int) -> str | None:
        """Return the key as a Python literal. Return None if its text is cut, is not a literal, or may not be shown."""
        kind = self._texts.kind(self._space.word(key + self._release.at(OB_TYPE)))
        shown = LITERALS if self._disclosure.contents else CONSTANTS
        if kind is None or kind.is_class or kind.name not in shown:
            return None
        text = self._texts.text(key, KEY_LIMITS)
        return None if text is None or "\u2026" in text else text

    def _name(self, key: int) -> str | None:
        """Return the literal of a key. If contents are hidden, return it only for attribute and module names; otherwise
        None.

        These names are shown in any case, because they belong to the code.
        """
        found = self.literal(key)
        if found is None and not self._disclosure.contents:
            text = read_name(self._space, self._release, key, MAX_NAME_LENGTH)
            if text and len(text) < MAX_NAME_LENGTH and all(part.isidentifier() for part in text.split(".")):
                return repr(text)
        return found

    def _in_set(self, holder: int, target: int) -> Iterator[Edge]:
        if (holder, target) not in self._set_places:
            self._set_places[holder, target] = self._place_in_set(holder, target)
        index = self._set_places[holder, target]
        if index is not None:
            yield Edge(f" has it as item {index}", f"list({{}})[{index}]")

    def _place_in_set(self, holder: int, target: int) -> int | None:
        """Return the number of items of a set that come before ``target``; None if the set does not have it.

        A set that lost most of its items may have millions of entries. In a removed entry the hash is -1, or the key is
        0."""
        machine, count = self._space.machine, self._space.word(holder + self._release.at(SET_MASK)) + 1
        table, index, size = self._space.word(holder + self._release["set_table"]), 0, 2 * machine.word
        key = set_key(self._release) // machine.word
        for at in range(0, size * count, WINDOW):
            words = machine.words_of(self._space.read(table + at, min(WINDOW, size * count - at)))
            keys, hashes = words[key::2], words[1 - key :: 2]
            end = keys.index(target) if target in keys else len(keys)
            index += end - keys[:end].count(0) - hashes[:end].count(machine.address_end - 1)
            if end < len(keys):
                return index
        return None

    def _in_type(self, holder: int, target: int) -> Iterator[Edge]:
        yield from self._in_fields(holder, self._type_fields(holder), target)

    def _type_fields(self, holder: int) -> dict[int, str]:
        fields = self._moved(TYPE_FIELDS)
        if self._texts.names.flags(holder) & FLAG_HEAP_TYPE:
            for field, name in (("ht_name", "__name__"), ("ht_qualname", "__qualname__")):
                if self._release.get(field):
                    fields[self._release[field]] = name
        return fields

    def _in_deque(self, holder: int, target: int) -> Iterator[Edge]:
        space, layout = self._space, deque_layout(self._release)
        block, index = space.word(holder + layout.left), space.word(holder + layout.left_index)
        count, seen = min(space.word(holder + layout.length), MAX_DEQUE), 0
        while seen < count and index < layout.room:
            room = min(layout.room - index, count - seen)
            place = self._index(block + layout.items + space.machine.word * index, room, target)
            if place is not None:
                yield Edge(f"[{seen + place}]", f"{{}}[{seen + place}]")
                return
            seen, index = seen + room, 0
            block = space.word(block + layout.right_link)

    def _in_generator(self, holder: int, name: str, target: int) -> Iterator[Edge]:
        attribute = FRAMES_OF.get(name, "gi_frame")
        embedded = self._release.get("gi_iframe")
        if embedded is not None:
            yield from self._in_frame(holder + embedded, target, f".{attribute}", f"{{}}.{attribute}")
        elif self._space.word(holder + self._release.at(GI_FRAME)) == target:
            yield _attribute(attribute)
        if self._release.get("gi_exc_state") is not None:
            yield from self._in_exc_state(holder, target, attribute)

    def _in_exc_state(self, generator: int, target: int, attribute: str) -> Iterator[Edge]:
        """Yield the edge from a generator to the exception that it handles.

        Since 3.7 the exception's fields lie in the generator; up to 3.10 they are its type, value and traceback."""
        release, space, word = self._release, self._space, self._space.machine.word
        value = release["exc_item_value"]
        place, embedded = generator + release["gi_exc_state"] + value, release.get("gi_iframe")
        is_value = space.word(place) == target
        if is_value or value and space.word(place + word) == target:
            at = space.word(generator + release.at(GI_FRAME)) if embedded is None else generator + embedded
            frame = self._threads.read(at, embedded is None)
            handled = handled_by("" if frame is None else frame.title)
            yield Edge(f".{attribute}: {handled if is_value else f'the traceback of {handled}'}")

    def _in_frame_object(self, holder: int, target: int) -> Iterator[Edge]:
        embedded = self._release.get("frame_data")
        if embedded is None:
            yield from self._in_frame(holder, target, "", "{}")
            yield from self._in_fields(holder, self._moved(WHOLE_FRAME_FIELDS), target)
        else:
            yield from self._in_fields(holder, self._moved(FRAME_FIELDS), target)
            frame = self._space.word(holder + self._release.at(F_FRAME))
            yield from self._in_frame(frame, target, "", "{}")

    def _in_frame(self, address: int, target: int, text: str, expression: str) -> Iterator[Edge]:
        frame = self._threads.read(address, False)
        if frame is None:
            return
        for local in frame.locals:
            if local.value == target and local.name is not None:
                where = f"local variable {local.name} in {frame.title}"
                yield Edge(f"{text}: {where}", f"{expression}.f_locals[{local.name!r}]")
            elif local.value == target:
                yield Edge(f"{text}: a value on the stack of {frame.title}")
        if frame.code == target:
            yield Edge(f"{text}.f_code", f"{expression}.f_code")
        if target in frame.references:
            yield Edge(f"{text}: {frame.title}")


def _item_of_dict(name: str, follow: Follow | None) -> Edge:
    return Edge(f".__dict__[{name!r}]", f"{{}}.__dict__[{name!r}]", follow)
