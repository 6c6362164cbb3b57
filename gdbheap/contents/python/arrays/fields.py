"""Read the parts of objects whose classes are known by name. Offsets are searched for, because they differ between
releases of a library.

A part is an attribute in a dict or a slot, or a field of a Cython class. A field of a Cython class has no name in
memory. The class of the object to which it refers shows which field it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from gdbheap.contents.python.arrays.columns import NotBelieved
from gdbheap.contents.python.objects.attributes import Attributes
from gdbheap.contents.python.objects.bounded_reads import Pages, signed_word
from gdbheap.contents.python.objects.census import Objects
from gdbheap.contents.python.objects.reading import COMPACT, read_str, str_length
from gdbheap.contents.python.text.scalars import int_text
from gdbheap.errors import Fault, Unsupported
from gdbheap.layout.cpython import (
    FLAG_INT,
    FLAG_LIST,
    FLAG_TUPLE,
    FLAG_TYPE,
    FLAG_UNICODE,
    OB_SIZE,
    OB_TYPE,
    OBJECT_HEAD,
    TP_BASICSIZE,
    TP_MRO,
)

MAX_MRO = 64
MAX_FIELDS = 64
MAX_ATTRIBUTES = 256
MAX_ITEMS = 1 << 17
MAX_DIGITS = 30
MAX_INT_DIGITS = 1 << 32
MAX_KINDS = 1 << 16
ZERO_HAS_A_DIGIT = (3, 11)
SINGLES = ("float", "NoneType")


class Fields:
    """Reads objects of one target. Every method raises Fault if memory is absent, and NotBelieved for impossible
    values.
    """

    def __init__(self, objects: Objects) -> None:
        self.space = objects.target.space
        self.memory = Pages(self.space)
        self.release = objects.release
        self.names = objects.names
        self.repr = objects.repr
        self._attributes = Attributes(self.space, self.release)
        self._kinds: dict[int, frozenset[str]] = {}

    def type_of(self, address: int) -> int:
        """Return ``ob_type`` of the object at ``address``: the address of its type."""
        return self.memory.word(address + self.release.at(OB_TYPE))

    def type_name(self, address: int) -> str:
        """Return the name of the type of the object at ``address``; ``type at 0x…`` if the name cannot be read."""
        return self.names.name(self.type_of(address))

    def kinds(self, kind: int) -> frozenset[str]:
        """Return package and name (``pandas.DataFrame``) of the type at ``kind`` and of its bases.

        Module names between the package and the class name are left out, because releases have moved classes between
        modules. The set is empty if there is no type at ``kind``.
        """
        found = self._kinds.get(kind)
        if found is None:
            if len(self._kinds) > MAX_KINDS:
                self._kinds.clear()
            found = self._kinds[kind] = frozenset(self._read_kinds(kind))
        return found

    def _read_kinds(self, kind: int) -> Iterator[str]:
        """Yield the names of the type at ``kind`` and of its bases; none if there is no type.

        An object is a type if its own type has the flag of a type. Its ``tp_mro`` must also begin with the object
        itself.
        """
        try:
            if not self.names.flags(self.type_of(kind)) & FLAG_TYPE:
                return
            bases = self.items(self.memory.word(kind + self.release.at(TP_MRO)), MAX_MRO)
        except (Fault, NotBelieved, OverflowError):
            return
        if not bases or bases[0] != kind:
            return
        for base in bases:
            first, _, last = self.names.name(base).partition(".")
            yield f"{first}.{last.rpartition('.')[2]}" if last else first

    def kinds_of(self, address: int) -> frozenset[str]:
        """Return the ``kinds`` of the type of the object at ``address``; empty if there is no object."""
        try:
            return self.kinds(self.type_of(address))
        except (Fault, OverflowError):
            return frozenset()

    def items(self, address: int, most: int = MAX_ITEMS) -> list[int]:
        """Return the items of the list or tuple at ``address``. Raises NotBelieved if it has more than ``most``."""
        flags = self.names.flags(self.type_of(address))
        if not flags & (FLAG_LIST | FLAG_TUPLE):
            raise NotBelieved
        count = self.memory.word(address + self.release.at(OB_SIZE))
        if count > most:
            raise NotBelieved
        start = address + self.release["tuple_items"]
        if flags & FLAG_LIST:
            start = self.memory.word(address + self.release["ob_item"]) if count else 0
        return self.words(start, count)

    def words(self, start: int, count: int) -> list[int]:
        """Return the ``count`` adjacent words at the address ``start``."""
        raw = self.memory.read(start, count * self.memory.machine.word) if count else b""
        return list(self.memory.machine.words_of(raw))

    def attributes(self, address: int) -> dict[str, int]:
        """Return the attributes in the object's dict and slots, by name."""
        try:
            found = self._attributes.of(self.memory, address, self.type_of(address))
            return dict(islice(found, MAX_ATTRIBUTES))
        except Unsupported as error:
            raise NotBelieved from error

    def raw(self, address: int) -> list[int]:
        """Return the words of an object after its header, up to its type's ``tp_basicsize``, at most MAX_FIELDS."""
        head, word = self.release.at(OBJECT_HEAD), self.memory.machine.word
        size = self.memory.word(self.type_of(address) + self.release.at(TP_BASICSIZE))
        return self.words(address + head, min(max(size - head, 0) // word, MAX_FIELDS))

    def held(self, address: int, *kinds: str) -> list[int]:
        """Return the objects to which the object at ``address`` refers, if they are of one of these ``kinds``.

        Objects in fields come before objects in attributes.
        """
        wanted = frozenset(kinds)
        found = [word for word in self.raw(address) if word and wanted & self.kinds_of(word)]
        found += [value for value in self.attributes(address).values() if wanted & self.kinds_of(value)]
        return list(dict.fromkeys(found))

    def attribute(self, address: int, *names: str) -> int:
        """Return the value of the first attribute in ``names`` that is set. Raises NotBelieved if none is."""
        found = self.attributes(address)
        for name in names:
            if name in found:
                return found[name]
        raise NotBelieved

    def number(self, address: int) -> int:
        """Return the value of the int at ``address``. Raises NotBelieved if it is not an int, or too large."""
        if not self.names.flags(self.type_of(address)) & FLAG_INT:
            raise NotBelieved
        try:
            return int(int_text(self.memory, self.release, address, MAX_DIGITS))
        except ValueError as error:
            raise NotBelieved from error

    def text(self, address: int, limit: int = 200) -> str:
        """Return the first ``limit`` characters of the str at ``address``."""
        found = read_str(self.memory, self.release, address, limit)
        if found is None or not self.is_str(address):
            raise NotBelieved
        return found

    def is_str(self, address: int) -> bool:
        return bool(self.names.flags(self.type_of(address)) & FLAG_UNICODE)

    def size(self, address: int) -> int | None:
        """Return the sys.getsizeof() of a str, int, float or None; None for other objects."""
        kind = self.type_of(address)
        flags = self.names.flags(kind)
        if flags & FLAG_UNICODE:
            return self._str_size(address)
        if flags & FLAG_INT:
            return self._int_size(address)
        if self.names.name(kind) in SINGLES:
            return self.memory.word(kind + self.release.at(TP_BASICSIZE))
        return None

    def _str_size(self, address: int) -> int | None:
        """Return the size of a str. It consists of the header, the characters with a final zero (PEP 393), and perhaps
        a cached UTF-8 text. Return None if the object is not a compact str.
        """
        release = self.release
        if release.get("unicode_state") is None or self.names.name(self.type_of(address)) != "str":
            return None
        state = self.memory.u32(address + release["unicode_state"]) >> (release.get("unicode_state_shift") or 0)
        if not state & COMPACT:
            return None
        length, width = str_length(self.memory, release, address), state >> 2 & 7
        if state & COMPACT << 1:
            return release["sizeof_ascii"] + length + 1
        utf8 = release["unicode_utf8"]
        kept = (
            self.memory.word(address + utf8 - self.memory.machine.word) + 1 if self.memory.word(address + utf8) else 0
        )
        return release["sizeof_compact"] + (length + 1) * width + kept

    def _int_size(self, address: int) -> int:
        """Return the size of an int, whose digits have four bytes.

        Since 3.11, ``int.__sizeof__()`` counts one digit for 0 too (Objects/longobject.c)."""
        word = signed_word(self.memory, address + self.release.at(OB_SIZE))
        count = abs(word) if self.release.get("lv_tag") is None else word >> 3
        count = max(count, 1) if (self.release.major, self.release.minor) >= ZERO_HAS_A_DIGIT else count
        if not 0 <= count <= MAX_INT_DIGITS:
            raise NotBelieved
        return self.release["ob_digit"] + 4 * count
