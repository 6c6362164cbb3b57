"""Make a bounded repr() of an object in memory. No code of the target is run, and its data is not trusted.

If nothing is cut, the text of a built-in type, a namedtuple, an exception or a class equals the interpreter's own
repr(). Classes may define any ``__repr__``, so the text of their instances is the class and the attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from gdbheap._native import Space
from gdbheap.contents.python.names.type_names import TypeNames
from gdbheap.contents.python.objects.attributes import MAX_BASES, Attributes
from gdbheap.contents.python.objects.owned import SET_MASK
from gdbheap.contents.python.objects.reading import dict_items, dict_lookup, read_str
from gdbheap.contents.python.text import scalars
from gdbheap.contents.python.text.disclosure import Disclosure
from gdbheap.contents.python.text.scalars import CUT, Damaged
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault, Unsupported
from gdbheap.layout.cpython import (
    FLAG_BYTES,
    FLAG_DICT,
    FLAG_EXCEPTION,
    FLAG_HEAP_TYPE,
    FLAG_INT,
    FLAG_LIST,
    FLAG_TUPLE,
    FLAG_TYPE,
    FLAG_UNICODE,
    MODULE_DICT,
    OB_SIZE,
    OB_TYPE,
    TP_BASE,
    TP_DICT,
    Release,
)

FLAGGED = {
    FLAG_INT: "int", FLAG_LIST: "list", FLAG_TUPLE: "tuple", FLAG_BYTES: "bytes", FLAG_UNICODE: "str",
    FLAG_DICT: "dict", FLAG_EXCEPTION: "BaseException", FLAG_TYPE: "type",
}  # fmt: skip
NAMED = frozenset(
    "float complex set frozenset bytearray module function code method builtin_function_or_method".split()
)
CONSTANTS = {"NoneType": "None", "ellipsis": "Ellipsis", "NotImplementedType": "NotImplemented"}
BRACKETS = {"list": "[]", "tuple": "()", "dict": "{}", "set": "{}", "frozenset": "{}"}
# Limits for the slots of a set, and offsets in PySetObject, PyBaseExceptionObject, PyMethodObject and
# PyCFunctionObject, 3.6 to 3.15.
MAX_SLOTS, SLOTS_AT_ONCE = 1 << 24, 128
EXCEPTION_ARGS = 24
METHOD_FUNCTION, METHOD_SELF = 16, 24
BUILTIN_DEFINITION, BUILTIN_SELF = 16, 24
SET_USED = 24
MAX_FIELD_LENGTH = 100
FIRST_ENTRIES = 20
QUOTES = ("'", '"')
# If contents are hidden, values of TEXTS are not shown at all. Values of NUMBERS are then not shown in keys.
TEXTS, NUMBERS = ("str", "bytes", "bytearray"), ("int", "float", "complex")


@dataclass(frozen=True)
class Limits:
    """The limits of a text.

    ``length``: characters in total; a text ends soon after this.
    ``value``: characters of one value.
    ``items``: items of one container.
    ``depth``: how deep containers are nested.
    ``reads``: reads of memory.
    """

    length: int = 1000
    value: int = 200
    items: int = 50
    depth: int = 6
    reads: int = 4000


BRIEF = Limits(length=60, value=40, items=5, depth=2, reads=200)


class Spent(Exception):
    """Raised if a text has used up its reads of memory."""


class Budget:
    """Reads memory like a Space, but only a limited number of times."""

    def __init__(self, space: Space, reads: int) -> None:
        self._space = space
        self.machine = space.machine
        self._left = reads

    def _count(self) -> None:
        if self._left <= 0:
            raise Spent
        self._left -= 1

    def read(self, address: int, size: int) -> bytes:
        """Return exactly ``size`` bytes. Raises Fault if memory is absent, and Spent if no more reads are allowed."""
        self._count()
        return self._space.read(address, size)

    def word(self, address: int) -> int:
        """Return the word at ``address``. Raises Fault, Spent."""
        self._count()
        return self._space.word(address)

    def u32(self, address: int) -> int:
        """Return the little-endian 32-bit number at ``address``. Raises Fault, Spent."""
        self._count()
        return self._space.u32(address)


@dataclass(frozen=True)
class ReprType:
    """An object's type: its address, its name, and the built-in type whose fields its objects have (``family``, "" for
    none)."""

    address: int
    name: str
    family: str
    is_class: bool

    @property
    def short_name(self) -> str:
        """The type's name without its module."""
        return self.name.rsplit(".", 1)[-1]


class Repr:
    """Makes texts of the objects of one target; ``disclosure`` decides whether they show contents."""

    def __init__(self, space: Space, release: Release, names: TypeNames, disclosure: Disclosure | None = None) -> None:
        self.space = space
        self.disclosure = disclosure or Disclosure()
        self.release = release
        self.names = names
        self.attributes = Attributes(space, release)
        self._kinds: dict[int, ReprType | None] = {}

    def text(self, address: int, limits: Limits | None = None) -> str | None:
        """Return the text of the object at ``address``; None if no object is there, or if only its type is known."""
        return self._text(address, limits or Limits(), False)

    def key_text(self, address: int, limits: Limits) -> str | None:
        """Return the text of a dict's key, in which numbers are hidden too if contents are hidden.

        The result is None in the same cases as for ``text``.
        """
        return self._text(address, limits, True)

    def _text(self, address: int, limits: Limits, is_key: bool) -> str | None:
        budget = Budget(self.space, limits.reads)
        try:
            kind = self.kind(budget.word(address + self.release.at(OB_TYPE)))
        except (Fault, Spent, OverflowError):
            return None
        if kind is None:
            return None
        making = _Text(self, budget, limits)
        text = making.key(address) if is_key else making.value(address)
        return None if text == _plain(kind, address) else text

    def kind(self, address: int) -> ReprType | None:
        """Return the type at ``address``; None if no type is there. Raises Fault."""
        if address not in self._kinds:
            is_type = self.names.flags(self.space.word(address + self.release.at(OB_TYPE))) & FLAG_TYPE
            self._kinds[address] = self._read_kind(address) if is_type else None
        return self._kinds[address]

    def _read_kind(self, address: int) -> ReprType:
        flags = self.names.flags(address)
        family = next((name for flag, name in FLAGGED.items() if flags & flag), "") or self._named_family(address)
        return ReprType(address, self.names.name(address), family, bool(flags & FLAG_HEAP_TYPE))

    def _named_family(self, address: int) -> str:
        return next((name for name in self.names.with_bases(address) if name in NAMED or name in CONSTANTS), "")

    def fields(self, kind: ReprType) -> int | None:
        """Return the address of ``_fields`` of a namedtuple's class or of one of its bases; None if there is none."""
        address = kind.address
        for _ in range(MAX_BASES):
            if not address or not self.names.flags(address) & FLAG_HEAP_TYPE:
                break
            held = self.space.word(address + self.release.at(TP_DICT))
            found = dict_lookup(self.space, self.release, held, "_fields", self.names.lookups)
            if found is not None:
                return found
            address = self.space.word(address + self.release.at(TP_BASE))
        return None


def _plain(kind: ReprType, address: int) -> str:
    return f"<{kind.name} object at {address:#x}>"


class _Text:
    """A text that is being made, with its remaining limits and the containers around the current value."""

    def __init__(self, target: Repr, memory: Budget, limits: Limits) -> None:
        self.target = target
        self.release = target.release
        self.memory = memory
        self.limits = limits
        self.left = limits.length
        self.open: list[int] = []
        self.depth = 0
        self.nested = 0
        self.contents = target.disclosure.contents
        self.in_key = False

    def key(self, address: int) -> str:
        """Return the text of a dict's key. In a key, numbers are hidden too if contents are hidden."""
        before, self.in_key = self.in_key, True
        try:
            return self.value(address)
        finally:
            self.in_key = before

    def value(self, address: int) -> str:
        """Return the text of the object at ``address``; a placeholder if it cannot be read or limits are reached."""
        # An exception or bound method that the program was just changing may refer to itself without a container in
        # between.
        if self.left <= 0 or self.nested > 2 * self.limits.depth + 2:
            return CUT
        before = self.left
        kind: ReprType | None = None
        self.nested += 1
        try:
            kind = self.target.kind(self.memory.word(address + self.release.at(OB_TYPE)))
            text = f"<no object at {address:#x}>" if kind is None else self._typed(address, kind)
        except (Fault, Damaged, OverflowError):
            text = f"<unreadable at {address:#x}>"
        except Unsupported:
            text = _plain(kind, address) if kind is not None else CUT
        except Spent:
            text = CUT
        finally:
            self.nested -= 1
        # Nested texts were already counted when they were made.
        self.left = min(self.left, before - len(text))
        return text

    def _typed(self, address: int, kind: ReprType) -> str:
        family = kind.family
        if family in CONSTANTS:
            return CONSTANTS[family]
        if family == "tuple" and kind.is_class:
            named = self._namedtuple(address, kind)
            if named is not None:
                return named
        if not family:
            return self._instance(address, kind)
        text = self._builtin(address, kind)
        if kind.name == family or family in ("BaseException", "type") or kind.name == "bool":
            return text
        parts = [text] if text else []
        return f"{kind.name}({', '.join(parts + self._attributes(address, kind))})"

    def _builtin(self, address: int, kind: ReprType) -> str:
        """Return the text of an object that has the fields of a built-in type (``kind.family``)."""
        memory, release, limit = self.memory, self.release, min(self.limits.value, max(self.left, 1))
        family = kind.family
        if kind.name == "bool":
            return scalars.bool_text(memory, release, address)
        if not self.contents and family in TEXTS:
            return scalars.length_text(memory, release, address, family)
        if not self.contents and self.in_key and family in NUMBERS:
            return f"<{family}>"
        simple: dict[str, Callable[[], str]] = {
            "int": lambda: scalars.int_text(memory, release, address, limit),
            "str": lambda: scalars.str_text(memory, release, address, limit),
            "bytes": lambda: scalars.bytes_text(memory, release, address, limit),
            "bytearray": lambda: scalars.bytearray_text(memory, release, address, limit),
            "float": lambda: scalars.float_text(memory, release, address),
            "complex": lambda: scalars.complex_text(memory, release, address),
            "list": lambda: self._sequence(address, "list"),
            "tuple": lambda: self._sequence(address, "tuple"),
            "dict": lambda: self._dict(address),
            "set": lambda: self._set(address, family, kind),
            "frozenset": lambda: self._set(address, family, kind),
            "BaseException": lambda: self._exception(address, kind),
            "type": lambda: f"<class '{self.target.names.name(address)}'>",
            "module": lambda: self._module(address),
            "function": lambda: self._function(address),
            "code": lambda: self._code(address),
            "method": lambda: self._method(address),
            "builtin_function_or_method": lambda: self._builtin_function(address),
        }
        return simple[family]()

    def _sequence(self, address: int, family: str) -> str:
        count = self.memory.word(address + self.release.at(OB_SIZE))
        if count >> 48:
            raise Damaged
        if family == "tuple":
            start = address + self.release["tuple_items"]
        else:
            start = self.memory.word(address + self.release["ob_item"]) if count else 0
        single = family == "tuple" and count == 1 and address not in self.open
        text = self._container(address, family, lambda: map(self.value, self._pointers(start, count)), count)
        return f"{text[:-1]},)" if single else text

    def _pointers(self, start: int, count: int) -> Iterator[int]:
        shown = min(count, self.limits.items)
        machine = self.memory.machine
        return iter(machine.words_of(self.memory.read(start, machine.word * shown)) if shown else ())

    def _dict(self, address: int) -> str:
        used = self.release.get("ma_used") or self.release.at(OB_SIZE)
        return self._container(address, "dict", lambda: self._pairs(address), self.memory.word(address + used))

    def _pairs(self, address: int) -> Iterator[str]:
        for key, value in dict_items(self.memory, self.release, address):
            yield f"{self.key(key)}: {self.value(value)}"

    def _set(self, address: int, family: str, kind: ReprType) -> str:
        """Return the text of a set. For an instance of a subclass, it is only the items in braces; the caller adds the
        name.

        Raises Unsupported for Python 2, where removed items look like present ones.
        """
        if self.release.get("unicode_state") is None:
            raise Unsupported("sets of Python 2 cannot be listed: removed items look like present ones")
        if address in self.open:
            return f"{family}(...)"
        text = self._container(address, family, lambda: map(self.value, self._keys(address)), self._set_size(address))
        if text == "{}":
            return f"{family}()" if kind.name == family else ""
        return text if kind.name != family or family == "set" else f"frozenset({text})"

    def _set_size(self, address: int) -> int:
        return self.memory.word(address + self.release.at(SET_USED))

    def _keys(self, address: int) -> Iterator[int]:
        """Yield the items of a set. The slot of a removed item has the hash -1, which no object has."""
        slots = self.memory.word(address + self.release.at(SET_MASK)) + 1
        table = self.memory.word(address + self.release["set_table"])
        if slots > MAX_SLOTS:
            raise Damaged
        slot = self.memory.machine.structure("PN")
        for first in range(0, slots, SLOTS_AT_ONCE):
            raw = self.memory.read(table + slot.size * first, slot.size * min(SLOTS_AT_ONCE, slots - first))
            yield from (key for key, found in slot.iter_unpack(raw) if key and found != -1)

    def _container(self, address: int, family: str, texts: Callable[[], Iterable[str]], count: int) -> str:
        """Return a container's items between the brackets of its type, at most as many as the limits allow.

        ``family``: the built-in type. ``texts``: yields the texts of the items. ``count``: the number of all items. For
        a container inside itself, the result is "..." between the brackets.
        """
        brackets = BRACKETS[family]
        if address in self.open:
            return "...".join(brackets)
        self.open.append(address)
        self.depth += 1
        try:
            shown = self._some(texts, count)
        finally:
            self.depth -= 1
            self.open.pop()
        return shown.join(brackets)

    def _some(self, texts: Callable[[], Iterable[str]], count: int) -> str:
        """Return the texts joined with commas, then how many of the ``count`` items are not shown."""
        if self.depth > self.limits.depth:
            return self._more(count)
        found: list[str] = []
        cut = False
        try:
            for text in islice(texts(), min(count, self.limits.items)):
                found.append(text)
                self.left -= 2
                if self.left <= 0:
                    break
        except (Fault, Damaged, Spent):
            cut = True
        more = self._more(count - len(found))
        if not more and cut:
            more = CUT
        return ", ".join([*found, more] if more else found)

    @staticmethod
    def _more(count: int) -> str:
        return f"{CUT} {count:,} more" if count > 0 else ""

    def _namedtuple(self, address: int, kind: ReprType) -> str | None:
        fields = self.target.fields(kind)
        count = self.memory.word(address + self.release.at(OB_SIZE))
        items = self.release["tuple_items"]
        if fields is None or self.depth > self.limits.depth:
            return None
        if self.memory.word(fields + self.release.at(OB_SIZE)) != count:
            return None
        names = [read_str(self.memory, self.release, name) for name in self._pointers(fields + items, count)]
        values = self._pointers(address + items, count)
        if None in names:
            return None
        pairs = [(self._attribute(name or ""), value) for name, value in zip(names, values)]
        self.depth += 1
        try:
            shown = self._some(lambda: (f"{name}={self.value(value)}" for name, value in pairs), count)
        finally:
            self.depth -= 1
        return f"{kind.short_name}({shown})"

    def _instance(self, address: int, kind: ReprType) -> str:
        plain = _plain(kind, address)
        attributes = self._attributes(address, kind)
        return f"{plain[:-1]}: {', '.join(attributes)}>" if attributes else plain

    def _attributes(self, address: int, kind: ReprType) -> list[str]:
        """Return ``name=value`` for each attribute. Return a placeholder for an object inside itself, or for one that
        is nested too deeply.
        """
        if address in self.open:
            return ["..."]
        if self.depth >= self.limits.depth:
            return [CUT]
        self.open.append(address)
        self.depth += 1
        found: list[str] = []
        try:
            for name, value in self.target.attributes.of(self.memory, address, kind.address):
                if self.left <= 0 or len(found) >= self.limits.items:
                    found.append(CUT)
                    break
                self.left -= len(name) + 3
                found.append(f"{self._attribute(name)}={self.value(value)}")
        except (Fault, Damaged, Unsupported, Spent):
            found.append(CUT)
        finally:
            self.depth -= 1
            self.open.pop()
        return found

    def _attribute(self, name: str) -> str:
        shown = self.target.disclosure.name(name)
        return repr(name) if shown == name and not name.isidentifier() else shown

    def _exception(self, address: int, kind: ReprType) -> str:
        """Return the name and the arguments of an exception, as repr() does since 3.7, followed by its attributes."""
        arguments = self.value(self.memory.word(address + self.release.at(EXCEPTION_ARGS)))
        text = f"{kind.short_name}{arguments[:-2]})" if arguments.endswith(",)") else f"{kind.short_name}{arguments}"
        attributes = self._attributes(address, kind) if kind.is_class else []
        return f"<{text}: {', '.join(attributes)}>" if attributes else text

    def _str_field(self, address: int) -> str:
        """Return the str to which the field at ``address`` points. Raises Damaged."""
        text = read_str(self.memory, self.release, self.memory.word(address))
        if text is None:
            raise Damaged
        return text

    def _module(self, address: int) -> str:
        entries = {"__name__": "", "__file__": ""}
        items = dict_items(self.memory, self.release, self.memory.word(address + self.release.at(MODULE_DICT)))
        for key, value in islice(items, FIRST_ENTRIES):
            name = read_str(self.memory, self.release, key, MAX_FIELD_LENGTH)
            if name is not None and name in entries:
                entries[name] = self._name_of_module(value)
        path = entries["__file__"]
        return f"<module {entries['__name__']}{f' from {path}' if path.startswith((*QUOTES, CUT)) else ''}>"

    def _name_of_module(self, address: int) -> str:
        """Return the text of a module's name or file. A plain str is shown even if contents are hidden."""
        before, kind = self.contents, self.target.kind(self.memory.word(address + self.release.at(OB_TYPE)))
        self.contents = before or (kind is not None and kind.name == kind.family == "str")
        try:
            return self.value(address)
        finally:
            self.contents = before

    def _code_place(self, code: int) -> str:
        path = self._str_field(code + self.release["co_filename"])
        return f'file "{path}", line {self.memory.u32(code + self.release["co_firstlineno"])}'

    def _code(self, address: int) -> str:
        name = self._str_field(address + self.release["co_name"])
        return f"<code object {name} at {address:#x}, {self._code_place(address)}>"

    def _function(self, address: int) -> str:
        name = self._str_field(address + self.release["func_qualname"])
        place = self._code_place(self.memory.word(address + self.release["func_code"]))
        return f"<function {name} at {address:#x}, {place}>"

    def _method(self, address: int) -> str:
        function = self.memory.word(address + self.release.at(METHOD_FUNCTION))
        kind = self.target.kind(self.memory.word(function + self.release.at(OB_TYPE)))
        if kind is None or kind.name != "function":
            raise Damaged
        name = self._str_field(function + self.release["func_qualname"])
        return f"<bound method {name} of {self.value(self.memory.word(address + self.release.at(METHOD_SELF)))}>"

    def _builtin_function(self, address: int) -> str:
        definition = self.memory.word(address + self.release.at(BUILTIN_DEFINITION))
        name = self.target.space.cstring(self.memory.word(definition), MAX_FIELD_LENGTH).decode("utf-8", "replace")
        bound = self.memory.word(address + self.release.at(BUILTIN_SELF))
        kind = self.target.kind(self.memory.word(bound + self.release.at(OB_TYPE))) if bound else None
        if kind is None or kind.family == "module":
            return f"<built-in function {name}>"
        return f"<built-in method {name} of {kind.short_name if kind.is_class else kind.name} object at {bound:#x}>"
