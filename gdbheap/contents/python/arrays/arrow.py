"""Read Apache Arrow's tables and arrays from the objects of pyarrow.

The layout of the C++ classes is not published. Two facts show the class of an object. One is its vtable, also in
stripped libraries. The other is the control block of a ``std::shared_ptr`` that owns the object. The class of a control
block, such as ``std::_Sp_counted_ptr_inplace<arrow::ChunkedArray, …>``, names the class of the object. An object is
accepted only if one of these facts shows its class.

The offsets of its fields are those of arrow/array/data.h, chunked_array.h, table.cc, buffer.h and type.h. They are
nearly the same in pyarrow 6 to 26. ``std::string`` has two layouts. Older wheels of pyarrow have the layout of GCC 4,
with the length before the text.

Bytes are counted as ``nbytes`` counts them (arrow/util/byte_size.cc, ReferencedBufferSize). The bytes to which the
items of an array refer count, not whole buffers. pyarrow 6 and older count 4 bytes more for each chunk of text.
"""

from __future__ import annotations

from collections.abc import Iterator

from gdbheap.contents.python.arrays.columns import (
    ARROW_ARRAY,
    CHUNKED_ARRAY,
    COLUMN,
    RECORD_BATCH,
    TABLE,
    ArrayOrTable,
    ColumnValues,
    DataColumn,
    Fits,
    ItemRun,
    NotBelieved,
    run,
)
from gdbheap.contents.python.arrays.fields import Fields
from gdbheap.contents.python.arrays.native_classes import Classes
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault

# The types whose objects may have values. A subclass stands before its base.
MODULE = "pyarrow."
KINDS = {f"{MODULE}{name}": name for name in (TABLE, RECORD_BATCH, CHUNKED_ARRAY, ARROW_ARRAY)}
COUNTED = "std::_Sp_counted"
# Offsets of fields in words, from the object's first byte, in Table, RecordBatch, ChunkedArray, Array, ArrayData,
# Buffer, Schema and Field.
SCHEMA, ROWS, COLUMNS = 1, 3, 4
# CHUNKED: the offsets of the type and of the length of a ChunkedArray; up to pyarrow 6 the length came first.
CHUNKS, CHUNKED = 0, ((3, 5), (5, 3))
ARRAY_DATA = 1
DATA_TYPE, LENGTH, OFFSET, BUFFERS, CHILDREN, DICTIONARY = 0, 2, 4, 5, 8, 11
BUFFER_DATA, BUFFER_SIZE = 2, 3
SCHEMA_FIELDS, FIELD_NAME, FIELD_TYPES = 3, 3, (7, 4)
# A DataType: a pointer to itself (since pyarrow 7), its id and children, then its parameters, if its class has some.
ITSELF, TYPE_CHILDREN, PARAMETER = 3, 6, 9
BEFORE_ITSELF = -2
COW_LENGTH = 3

MAX_COLUMNS = 1 << 16
MAX_CHUNKS = 1 << 17
MAX_PIECES = 1 << 19
MAX_DEPTH = 16
# Reading this many pointers or characters at once counts as one piece.
TOGETHER = 16
MAX_NAME = 4000
MAX_LENGTH = 1 << 46
UNITS = ("s", "ms", "us", "ns")
# Types without parameters: the name that pyarrow shows, and the bits of an item.
PLAIN = {
    "BooleanType": ("bool", 1), "Int8Type": ("int8", 8), "UInt8Type": ("uint8", 8), "Int16Type": ("int16", 16),
    "UInt16Type": ("uint16", 16), "Int32Type": ("int32", 32), "UInt32Type": ("uint32", 32),
    "Int64Type": ("int64", 64), "UInt64Type": ("uint64", 64), "HalfFloatType": ("halffloat", 16),
    "FloatType": ("float", 32), "DoubleType": ("double", 64), "Date32Type": ("date32[day]", 32),
    "Date64Type": ("date64[ms]", 64), "MonthIntervalType": ("month_interval", 32),
    "DayTimeIntervalType": ("day_time_interval", 64), "MonthDayNanoIntervalType": ("month_day_nano_interval", 128),
}  # fmt: skip
# Types with a unit of time; types with precision and scale; types with offsets, and the bytes of an offset.
TIMED = {"TimestampType": ("timestamp", 64), "Time32Type": ("time32", 32), "Time64Type": ("time64", 64),
         "DurationType": ("duration", 64)}  # fmt: skip
DECIMAL = {"Decimal32Type": 32, "Decimal64Type": 64, "Decimal128Type": 128, "Decimal256Type": 256}
BINARY = {"StringType": ("string", 4), "BinaryType": ("binary", 4), "LargeStringType": ("large_string", 8),
          "LargeBinaryType": ("large_binary", 8)}  # fmt: skip
LISTS = {"ListType": ("list", 4), "MapType": ("map", 4), "LargeListType": ("large_list", 8)}
# The names that Arrow itself gives to the items of lists.
OF_LISTS = ("item", "element")
TEXTS = ("string", "large_string")
BITS = 8


@dataclass(frozen=True)
class _Data:
    """An ArrayData of Arrow.

    ``kind``, ``type``: the class and the address of its DataType.
    ``offset``, ``length``: the index of its first item, and its number of items.
    ``buffers``: (start, number of bytes) of each buffer, None for an absent one.
    ``children``: the addresses of its child arrays.
    ``dictionary``: the address of the array with the values of a dictionary array; otherwise 0.
    """

    kind: str
    type: int
    offset: int
    length: int
    buffers: list[tuple[int, int] | None]
    children: list[int]
    dictionary: int


class Arrow:
    """Reads Arrow's objects. It counts the arrays, and the fields of their types. Raises NotBelieved if there are more
    than MAX_PIECES, because the objects are then damaged or forged.
    """

    def __init__(self, fields: Fields, classes: Classes, fits: Fits) -> None:
        self._fields = fields
        self._memory = fields.memory
        self._word = fields.memory.machine.word
        self._fits = fits
        self._classes = classes
        self._left = MAX_PIECES
        self._types: dict[int, str] = {}

    def frame(self, address: int) -> ArrayOrTable:
        """Return the Table, RecordBatch, ChunkedArray or Array at ``address``. Raises Fault, NotBelieved."""
        kinds = self._fields.kinds_of(address)
        what = next((name for kind, name in KINDS.items() if kind in kinds), None)
        if what is None:
            raise NotBelieved
        name = self._fields.type_name(address)
        if what in (TABLE, RECORD_BATCH):
            columns, rows = self._columns(address, what)
            return ArrayOrTable(what, name, address, None, (rows, len(columns)), None, columns)
        values = self.values(address)
        return ArrayOrTable(what, name, address, None, (values.length,), values.dtype, [DataColumn(what, None, values)])

    def values(self, address: int) -> ColumnValues:
        """Return the values of the ChunkedArray or Array at ``address``. Raises Fault, NotBelieved."""
        found, counts = self._owned(address)
        if "arrow::ChunkedArray" in counts:
            return self._chunked(found)
        if not self._classes.name(found).endswith("Array") and "Array<" not in self._classes.name(found):
            raise NotBelieved
        return self._of_data([self._at(found, ARRAY_DATA)])

    def texts(self, address: int, most: int) -> list[str]:
        """Return the first strings, at most ``most``, of the ChunkedArray or Array at ``address``. Raises Fault,
        NotBelieved.
        """
        found, counts = self._owned(address)
        if "arrow::ChunkedArray" in counts:
            pieces = [self._at(array, ARRAY_DATA) for array in self._pointers(found, CHUNKS, MAX_CHUNKS)]
        else:
            pieces = [self._at(found, ARRAY_DATA)]
        texts: list[str] = []
        for piece in pieces:
            texts += self._strings(self._data(piece), most - len(texts))
        return texts

    def type_text(self, address: int) -> str:
        """Return the DataType at ``address`` as pyarrow shows it, such as ``dictionary<values=…>``. Raises Fault,
        NotBelieved.
        """
        return self._type_text(self._owned(address)[0])

    def _spend(self, pieces: int = 1) -> None:
        """Count ``pieces`` more arrays or fields of types. Raises NotBelieved if their total exceeds MAX_PIECES."""
        self._left -= pieces
        if self._left < 0:
            raise NotBelieved

    def _owned(self, address: int) -> tuple[int, str]:
        """Return the address in the object's ``shared_ptr``, and the class name of its control block.

        The ``shared_ptr`` is recognised because a plain pointer with the same value follows it. Raises NotBelieved if
        there is none.
        """
        words = self._fields.raw(address)
        for pointer, counts, again in zip(words, words[1:], words[2:]):
            if pointer and pointer == again and self._classes.name(counts).startswith(COUNTED):
                return pointer, self._classes.name(counts)
        raise NotBelieved

    def _at(self, address: int, place: int) -> int:
        return self._memory.word(address + place * self._word)

    def _pointers(self, address: int, place: int, most: int) -> list[int]:
        """Return the addresses of the objects in a std::vector of shared_ptr.

        ``place``: the offset of the vector in the object at ``address``, in words. Raises NotBelieved if the vector has
        more than ``most`` items.
        """
        first, last = self._at(address, place), self._at(address, place + 1)
        count, rest = divmod(last - first, 2 * self._word)
        if rest or not 0 <= count <= most:
            raise NotBelieved
        self._spend(count // TOGETHER)
        return self._fields.words(first, 2 * count)[::2]

    def _columns(self, address: int, what: str) -> tuple[list[DataColumn], int]:
        found, _counts = self._owned(address)
        if not self._classes.name(found).endswith(what):
            raise NotBelieved
        names = self._names(self._at(found, SCHEMA))
        rows = self._length(self._at(found, ROWS))
        pointers = self._pointers(found, COLUMNS, MAX_COLUMNS)
        if len(names) != len(pointers):
            raise NotBelieved
        of_one = self._chunked if what == TABLE else lambda data: self._of_data([data])
        columns = [DataColumn(COLUMN, name, of_one(pointer)) for name, pointer in zip(names, pointers)]
        if any(column.values.length != rows for column in columns):
            raise NotBelieved
        return columns, rows

    @staticmethod
    def _length(count: int) -> int:
        if count > MAX_LENGTH:
            raise NotBelieved
        return count

    def _names(self, schema: int) -> list[str]:
        if self._classes.name(schema) != "arrow::Schema":
            raise NotBelieved
        fields = self._pointers(self._at(schema, SCHEMA_FIELDS), 0, MAX_COLUMNS)
        return [self._shown(self._field(field)[0]) for field in fields]

    def _field(self, address: int) -> tuple[str, int]:
        """Return the name of a field, and the address of its type.

        The type follows the name. The name is a std::string of four words, or of one word in older wheels.
        """
        self._spend()
        if self._classes.name(address) != "arrow::Field":
            raise NotBelieved
        for place in FIELD_TYPES:
            kind = self._at(address, place)
            if self._is_type(kind):
                return self._string(address + FIELD_NAME * self._word, place == FIELD_TYPES[0]), kind
        raise NotBelieved

    def _shown(self, name: str) -> str:
        """Return a column's label, hidden if contents may not be shown: a label is data, like a value."""
        return self._fields.repr.disclosure.text(name)

    def _string(self, address: int, is_long: bool) -> str:
        """Return the text of the std::string at ``address``.

        ``is_long``: the string consists of a pointer to the text and a length. Otherwise it is only the pointer, and
        the length is the first of three words right before the text.
        """
        start = self._memory.word(address)
        length = self._memory.word(address + self._word if is_long else start - COW_LENGTH * self._word)
        if length > MAX_NAME:
            raise NotBelieved
        self._spend(length // TOGETHER)
        raw = self._memory.read(start, length + 1)
        if raw[-1]:
            raise NotBelieved
        return raw[:-1].decode("utf-8", "replace")

    def _is_type(self, address: int) -> bool:
        name = self._classes.name(address)
        return name.startswith("arrow::") and name.endswith("Type")

    def _chunked(self, address: int) -> ColumnValues:
        """Return the values of the ChunkedArray at ``address``.

        Raises NotBelieved unless its length is the sum of its chunks' lengths.
        """
        chunks = self._pointers(address, CHUNKS, MAX_CHUNKS)
        places = next((both for both in CHUNKED if self._is_type(self._at(address, both[0]))), None)
        if places is None:
            raise NotBelieved
        kind, length = (self._at(address, place) for place in places)
        found = self._of_data([self._at(chunk, ARRAY_DATA) for chunk in chunks])
        if found.length != length:
            raise NotBelieved
        return ColumnValues(self._type_text(kind), length, found.bytes, found.pieces)

    def _of_data(self, addresses: list[int]) -> ColumnValues:
        pieces: list[ItemRun] = []
        length, size, text = 0, 0, ""
        known = True
        for address in addresses:
            data = self._data(address)
            text = text or self._type_text(data.type)
            length += data.length
            for start, count in self._ranges_of(data, data.offset, data.length, 0):
                known = known and start is not None
                size += count
                if start and count:
                    pieces.append(run(start, count))
        return ColumnValues(text, length, size if known else None, tuple(pieces))

    def _data(self, address: int) -> _Data:
        """Return the ArrayData at ``address``.

        Raises NotBelieved unless its type is a DataType and the target has memory for its buffers.
        """
        self._spend()
        words = self._fields.words(address, DICTIONARY + 1)
        kind = self._classes.name(words[DATA_TYPE])
        if not self._is_type(words[DATA_TYPE]):
            raise NotBelieved
        buffers = [self._buffer(one) for one in self._pointers(address, BUFFERS, MAX_CHUNKS)]
        children = self._pointers(address, CHILDREN, MAX_COLUMNS)
        length, offset = self._length(words[LENGTH]), self._length(words[OFFSET])
        return _Data(kind.rpartition("::")[2], words[DATA_TYPE], offset, length, buffers, children, words[DICTIONARY])

    def _buffer(self, address: int) -> tuple[int, int] | None:
        """Return (address of the first byte, number of bytes) of the Buffer at ``address``; None if ``address`` is
        0.
        """
        if not address:
            return None
        if "Buffer" not in self._classes.name(address):
            raise NotBelieved
        start, size = self._at(address, BUFFER_DATA), self._at(address, BUFFER_SIZE)
        if size and not self._fits(start, size):
            raise NotBelieved
        return start, size

    def _ranges_of(self, data: _Data, offset: int, length: int, depth: int) -> Iterator[tuple[int | None, int]]:
        """Yield (address of the first byte, number of bytes) of the memory of ``length`` items, beginning with item
        ``offset``.

        The address is None if unknown.
        """
        if depth > MAX_DEPTH:
            raise NotBelieved
        if data.buffers and data.buffers[0] is not None:
            yield _part(data, 0, offset // BITS, _covering(offset, length))
        bits = self._bits(data)
        if bits is not None:
            if bits % BITS:
                yield _part(data, 1, offset * bits // BITS, _covering(offset, length))
            else:
                yield _part(data, 1, offset * bits // BITS, length * bits // BITS)
            if data.dictionary:
                inner = self._data(data.dictionary)
                yield from self._ranges_of(inner, inner.offset, inner.length, depth + 1)
        elif data.kind in BINARY or data.kind in LISTS:
            yield from self._variable(data, offset, length, depth)
        elif data.kind in ("StructType", "FixedSizeListType"):
            each = self._parameter(data.type) if data.kind == "FixedSizeListType" else 1
            for child in map(self._data, data.children):
                yield from self._ranges_of(child, child.offset + offset * each, length * each, depth + 1)
        elif data.kind != "NullType":
            yield None, 0

    def _variable(self, data: _Data, offset: int, length: int, depth: int) -> Iterator[tuple[int | None, int]]:
        """Yield (start, number of bytes) of the items' offsets, then of their data: bytes, or items of the child array.

        A start is None if it is unknown.
        """
        size = {**BINARY, **LISTS}[data.kind][1]
        yield _part(data, 1, offset * size, length * size)
        first, last = self._offsets(data, size, offset, length) if length else (0, 0)
        if not 0 <= first <= last:
            raise NotBelieved
        if data.kind in BINARY:
            yield _part(data, 2, first, last - first)
            return
        for child in map(self._data, data.children[:1]):
            yield from self._ranges_of(child, child.offset + first, last - first, depth + 1)

    def _offsets(self, data: _Data, size: int, offset: int, length: int) -> tuple[int, int]:
        """Return where the data of ``length`` items begins and ends in the array's data.

        ``offset``: the index of the first item. ``size``: the bytes of each number in the buffer of offsets.
        """
        start, _size = _part(data, 1, offset * size, (length + 1) * size)
        ends = (start, start + length * size)
        first, last = (int.from_bytes(self._memory.read(at, size), "little", signed=True) for at in ends)
        return first, last

    def _strings(self, data: _Data, most: int) -> Iterator[str]:
        size = BINARY.get(data.kind, ("", 0))[1]
        if BINARY.get(data.kind, ("",))[0] not in TEXTS:
            raise NotBelieved
        for place in range(data.offset, data.offset + min(data.length, most)):
            first, last = self._offsets(data, size, place, 1)
            if not 0 <= first <= last <= first + MAX_NAME:
                raise NotBelieved
            start, count = _part(data, 2, first, last - first)
            yield self._memory.read(start, count).decode("utf-8", "replace") if count else ""

    def _parameter(self, kind: int) -> int:
        """Return the number that follows the fields common to all types: a unit, a width, or a number of items."""
        return self._memory.u32(self._after(kind, PARAMETER))

    def _after(self, kind: int, place: int) -> int:
        """Return the address of a field of the type at ``kind``.

        ``place``: the offset of the field in words, for types that begin with a pointer to themselves
        (``enable_shared_from_this``). In releases without this pointer, the field lies two words earlier.
        """
        known = self._at(kind, ITSELF) == kind
        return kind + (place if known else place + BEFORE_ITSELF) * self._word

    def _bits(self, data: _Data) -> int | None:
        """Return the number of bits of an item, for types of fixed width; None for types of variable width."""
        return self._width(data.kind, data.type)

    def _width(self, name: str, kind: int) -> int | None:
        for table in (PLAIN, TIMED):
            if name in table:
                return table[name][1]
        if name in DECIMAL:
            return DECIMAL[name]
        if name == "FixedSizeBinaryType":
            return self._parameter(kind) * BITS
        if name == "DictionaryType":
            index = self._memory.word(self._after(kind, PARAMETER))
            name = self._classes.name(index).rpartition("::")[2]
            return PLAIN[name][1] if self._is_type(index) and name in PLAIN else None
        return None

    def _type_text(self, kind: int, depth: int = 0) -> str:
        """Return a type as pyarrow shows it; an unknown class is shown by its name.

        Each type is read once, because forged types may contain the same type in several places."""
        if kind not in self._types:
            self._types[kind] = self._read_type_text(kind, depth)
        text = self._types[kind]
        self._spend(len(text) // TOGETHER)
        return text

    def _read_type_text(self, kind: int, depth: int) -> str:
        if depth > MAX_DEPTH or not self._is_type(kind):
            raise NotBelieved
        name = self._classes.name(kind).rpartition("::")[2]
        if name in PLAIN:
            return PLAIN[name][0]
        if name in BINARY:
            return BINARY[name][0]
        if name in TIMED:
            return self._timed(name, kind)
        if name in DECIMAL:
            precision, scale = (self._memory.u32(self._after(kind, PARAMETER) + at) for at in (4, 8))
            return f"decimal{DECIMAL[name]}({precision}, {scale})"
        if name == "FixedSizeBinaryType":
            return f"fixed_size_binary[{self._parameter(kind)}]"
        if name == "DictionaryType":
            places = (self._after(kind, PARAMETER + place) for place in (0, 2))
            index, values = (self._type_text(self._memory.word(place), depth + 1) for place in places)
            ordered = self._memory.read(self._after(kind, PARAMETER + 4), 1)[0]
            return f"dictionary<values={values}, indices={index}, ordered={ordered}>"
        return self._nested(name, kind, depth)

    def _timed(self, name: str, kind: int) -> str:
        unit = self._parameter(kind)
        if unit >= len(UNITS):
            raise NotBelieved
        zone = self._zone(kind) if name == "TimestampType" else ""
        return f"{TIMED[name][0]}[{UNITS[unit]}{f', tz={zone}' if zone else ''}]"

    def _zone(self, kind: int) -> str:
        """Return the time zone of a timestamp type; "" if it has none.

        ``std::string`` has two layouts. Both are tried, and the first one that yields printable text is used.
        """
        at = self._after(kind, PARAMETER + 1)
        for is_long in (False, True):
            try:
                found = self._string(at, is_long)
            except (Fault, NotBelieved, OverflowError):
                continue
            if found.isprintable():
                return found if found == "UTC" or not found else self._shown(found)
        raise NotBelieved

    def _nested(self, name: str, kind: int, depth: int) -> str:
        fields = [self._field(field) for field in self._pointers(self._after(kind, TYPE_CHILDREN), 0, MAX_COLUMNS)]
        own = OF_LISTS if name in LISTS or name == "FixedSizeListType" else ()
        labels = [label if label in own else self._shown(label) for label, _one in fields]
        shown = ", ".join(f"{label}: {self._type_text(one, depth + 1)}" for label, (_, one) in zip(labels, fields))
        if name == "MapType" and len(fields) == 1:
            pairs = self._pointers(self._after(fields[0][1], TYPE_CHILDREN), 0, 2)
            return f"map<{', '.join(self._type_text(self._field(one)[1], depth + 2) for one in pairs)}>"
        if name == "FixedSizeListType":
            return f"fixed_size_list<{shown}>[{self._parameter(kind)}]"
        if name == "StructType":
            return f"struct<{shown}>"
        return f"{LISTS[name][0]}<{shown}>" if name in LISTS else "null" if name == "NullType" else name


def _part(data: _Data, number: int, start: int, size: int) -> tuple[int, int]:
    """Return (address, size) of the ``size`` bytes at the offset ``start`` in the buffer with the index ``number``.

    Raises NotBelieved if the buffer does not contain them.
    """
    buffer = data.buffers[number] if number < len(data.buffers) else None
    if buffer is None:
        if size:
            raise NotBelieved
        return 0, 0
    if start + size > buffer[1]:
        raise NotBelieved
    return buffer[0] + start, size


def _covering(offset: int, length: int) -> int:
    """Return how many bytes contain the ``length`` bits that begin with bit ``offset`` (arrow/util/bit_util.h,
    CoveringBytes).
    """
    return (offset + length + BITS - 1) // BITS - offset // BITS if length else 0
