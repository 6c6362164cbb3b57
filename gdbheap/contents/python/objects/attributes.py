"""Read the attributes of instances: from a dict, from values before or after the object, and from slots."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gdbheap._native import Space
from gdbheap.contents.python.objects.bounded_reads import ReadableMemory, signed_word
from gdbheap.contents.python.objects.reading import (
    Allowance,
    Lookups,
    dict_items,
    read_name,
    shared_items,
    shared_names,
)
from gdbheap.errors import Fault
from gdbheap.layout.cpython import (
    FLAG_MANAGED_DICT,
    OB_SIZE,
    TP_BASE,
    TP_BASICSIZE,
    TP_DICTOFFSET,
    TP_FLAGS,
    TP_ITEMSIZE,
    TP_MEMBERS,
    Release,
)

MAX_BASES = 32
MAX_MEMBERS = 64
MAX_NAME_LENGTH = 100
# struct PyMemberDef {const char *name; int type; Py_ssize_t offset; int flags; const char *doc;}
MEMBER = "Pi4xN16x"
OBJECT_MEMBERS = (6, 16)
"""T_OBJECT and T_OBJECT_EX: the member is a pointer to an object."""
Slot = tuple[str, int]


class Attributes:
    """Finds the attributes of instances, in slots, dicts and inline values.

    The slots of each class are read once. Names are cut at MAX_NAME_LENGTH.
    """

    MAX_NAME_LENGTH = MAX_NAME_LENGTH

    def __init__(self, space: Space, release: Release) -> None:
        self._space = space
        self._release = release
        self._slots: dict[int, list[Slot]] = {}
        self._lookups = Lookups()

    def of(self, memory: ReadableMemory, address: int, kind: int) -> Iterator[tuple[str, int]]:
        """Yield (name, address of the value) of each attribute that is set in the instance of the class at ``kind``.

        Raises Fault."""
        for slot, offset in self._slots_of(kind):
            value = memory.word(address + offset)
            if value:
                yield slot, value
        for key, value in self._own(memory, address, kind):
            name = read_name(memory, self._release, key, MAX_NAME_LENGTH)
            if name is not None:
                yield name, value

    def is_slot(self, kind: int, name: str) -> bool:
        """Return whether the attribute lies in a slot of the class or of one of its bases."""
        return any(slot == name for slot, _offset in self._slots_of(kind))

    def reader(
        self, memory: ReadableMemory, address: int, kind: int, name: str, allowance: Allowance | None = None
    ) -> Callable[[int], int]:
        """Return a function that reads the attribute ``name`` of other instances of the class.

        It takes the address of an instance, and returns the address of the attribute's value; 0 if there is none. It is
        fast for instances that keep the attribute where the instance at ``address`` keeps it. It raises Fault if a key
        that may be this name cannot be read, or if the ``allowance`` is used up. Without an ``allowance``, each call
        has a limit of its own.
        """
        for slot, offset in self._slots_of(kind):
            if slot == name:
                return lambda other: memory.word(other + offset)
        find = self._finder(memory, address, kind, name)

        def read(other: int) -> int:
            found = find(other) if find is not None else 0
            return found or self._value(memory, other, kind, name, allowance)

        return read

    def _value(self, memory: ReadableMemory, address: int, kind: int, name: str, allowance: Allowance | None) -> int:
        """Return the address of the value of an attribute that lies in no slot; 0 if the instance does not have it.
        Raises Fault.
        """
        if allowance is None:
            self._lookups.begin(name)
        for key, value in self._own(memory, address, kind, allowance or self._lookups):
            own = read_name(memory, self._release, key, MAX_NAME_LENGTH)
            if own == name:
                return value
            if own is None:
                # This raises Fault if even these bytes of the key cannot be read, because the key may be this name.
                # Otherwise the key is not a str.
                memory.read(key, self._release["sizeof_ascii"] + len(name))
        return 0

    def _finder(self, memory: ReadableMemory, address: int, kind: int, name: str) -> Callable[[int], int] | None:
        """Return a fast function that reads the attribute ``name`` of instances that share the class's keys (PEP 412).

        It returns the address of the value, and 0 for other instances. Return None if the instance at ``address`` does
        not share the keys, or if the keys lack the name.
        """
        start = self._shared(memory, address, kind)
        if start is None or not start(address):
            return None
        keys = shared_names(memory, self._release, memory.word(kind + self._release["ht_cached_keys"]))
        names = (read_name(memory, self._release, key, MAX_NAME_LENGTH) for key in keys)
        index = next((place for place, own in enumerate(names) if own == name), None)
        if index is None:
            return None

        def find(other: int) -> int:
            values = start(other)
            return memory.word(values + memory.machine.word * index) if values else 0

        return find

    def _shared(self, memory: ReadableMemory, address: int, kind: int) -> Callable[[int], int] | None:
        """Return a function that returns the address of an instance's first value; 0 if it does not share the type's
        keys.

        The result is None if instances of the type cannot share keys (PEP 412).
        """
        release = self._release
        where, header, before = release.get("managed_dict"), release.get("values_header"), release.get("ma_values")
        if where is not None and memory.word(kind + release.at(TP_FLAGS)) & FLAG_MANAGED_DICT:

            def managed(other: int) -> int:
                values = self._values(memory, other, kind, memory.word(other + where))
                return values + (header or 0) if values else 0

            return managed
        inside = _dict_place(memory, self._release, address, kind) - address
        if before is None or header or inside <= 0:
            return None
        keys = memory.word(kind + release["ht_cached_keys"])

        def split(other: int) -> int:
            own = memory.word(other + inside)
            return memory.word(own + before) if own and memory.word(own + release["ma_keys"]) == keys else 0

        return split

    def dict_of(self, memory: ReadableMemory, address: int, kind: int) -> int:
        """Return the address of the instance's dict; 0 if it has none, or none yet. Raises Fault."""
        where = self._release.get("managed_dict")
        if where is None or not memory.word(kind + self._release.at(TP_FLAGS)) & FLAG_MANAGED_DICT:
            place = _dict_place(memory, self._release, address, kind)
            return memory.word(place) if place else 0
        word = memory.word(address + where)
        return 0 if word & 1 else word

    def _own(
        self, memory: ReadableMemory, address: int, kind: int, allowance: Allowance | None = None
    ) -> Iterator[tuple[int, int]]:
        """Return the attributes of an instance as (address of the name, address of the value). The instance need not
        have a dict object yet.
        """
        release = self._release
        where = release.get("managed_dict")
        if where is None or not memory.word(kind + self._release.at(TP_FLAGS)) & FLAG_MANAGED_DICT:
            return self._in_dict(memory, _dict_place(memory, release, address, kind), allowance)
        word = memory.word(address + where)
        keys = memory.word(kind + release["ht_cached_keys"])
        values = self._values(memory, address, kind, word)
        if values:
            return shared_items(memory, release, keys, values, allowance)
        return dict_items(memory, release, word, allowance) if word else iter(())

    def _in_dict(self, memory: ReadableMemory, place: int, allowance: Allowance | None) -> Iterator[tuple[int, int]]:
        found = memory.word(place) if place else 0
        return dict_items(memory, self._release, found, allowance) if found else iter(())

    def _values(self, memory: ReadableMemory, address: int, kind: int, word: int) -> int:
        """Return the address of the values of an instance that has no dict object; 0 if the instance has one.

        The values lie after the object (3.13). In 3.11 they lie in a block to which the word before the dict's word
        points. In 3.12 the dict's own word points to that block, with a tag.
        """
        inline, before = self._release.get("flag_inline_values"), self._release.get("managed_values")
        if inline is not None:
            values = address + memory.word(kind + self._release.at(TP_BASICSIZE))
            # struct PyDictValues {uint8_t capacity, size, embedded, valid; PyObject *values[];}
            usable = not word and memory.word(kind + self._release.at(TP_FLAGS)) & inline and memory.read(values, 4)[3]
            return values if usable else 0
        if before is not None:
            return 0 if word else memory.word(address + before)
        return word + 1 if word & 1 else 0

    def _slots_of(self, kind: int) -> list[Slot]:
        if kind not in self._slots:
            self._slots[kind] = self._read_slots(kind)
        return self._slots[kind]

    def _read_slots(self, kind: int) -> list[Slot]:
        """Return (name, offset in bytes) of each object member of the class and of its bases. Members of bases come
        first.
        """
        found: list[list[Slot]] = []
        while kind and len(found) < MAX_BASES:
            try:
                found.append(list(self._members(self._space.word(kind + self._release.at(TP_MEMBERS)))))
                kind = self._space.word(kind + self._release.at(TP_BASE))
            except Fault:
                break
        return list({offset: (name, offset) for slots in reversed(found) for name, offset in slots}.values())

    def _members(self, table: int) -> Iterator[Slot]:
        member = self._space.machine.structure(MEMBER)
        for place in range(MAX_MEMBERS if table else 0):
            try:
                name, code, offset = member.unpack(self._space.read(table + place * member.size, member.size))
                if not name:
                    return
                text = self._space.cstring(name, MAX_NAME_LENGTH).decode("utf-8", "replace")
            except Fault:
                return
            if code in OBJECT_MEMBERS and not text.startswith("__"):
                yield text, offset


def _dict_place(memory: ReadableMemory, release: Release, address: int, kind: int) -> int:
    """Return the address of the pointer to the instance's dict; 0 if instances of the class have no dict.

    For objects of variable size the offset may be negative: it is counted from the end of the object."""
    fields = (TP_DICTOFFSET, TP_BASICSIZE, TP_ITEMSIZE)
    offset, basic, item = (signed_word(memory, kind + release.at(field)) for field in fields)
    if offset >= 0:
        return address + offset if offset else 0
    size = signed_word(memory, address + release.at(OB_SIZE))
    return address + memory.machine.word_up(basic + abs(size) * item) + offset
