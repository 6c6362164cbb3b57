"""Read polars' DataFrames and Series from memory, for polars 0.20 to 2.1.

Rust guarantees no layout, so the offset of a word alone proves nothing. The symbols of the functions in a vtable show
the type of a ``Series``. polars' wheels have these symbols; without them no Series is accepted. A vector consists of
capacity, pointer and length. The buffer of an array is accepted if the object that keeps it alive (``SharedStorage``)
states the same bytes. The parts of an array must be as long as the array, and all arrays together as long as the
column. All columns must be as long as the frame (polars-core's ``frame/mod.rs``, ``chunked_array/mod.rs``,
polars-arrow's ``array/``, ``buffer/`` and ``bitmap/immutable.rs``).

Bytes are counted as ``estimated_size()`` counts them: for texts the characters, not the views of 16 bytes each. A
column that stores one value for all rows has no bytes here; ``estimated_size()`` would first create the rows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from gdbheap import _native
from gdbheap.contents.python.arrays.columns import (
    COLUMN,
    DATAFRAME,
    SERIES,
    ArrayOrTable,
    ColumnValues,
    DataColumn,
    Fits,
    ItemRun,
    NotBelieved,
    run,
)
from gdbheap.contents.python.arrays.fields import Fields
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault
from gdbheap.targets.elf import LoadedObject
from gdbheap.targets.target import Target

KINDS = {f"polars.{name}": name for name in (DATAFRAME, SERIES)}
# The types of the Python objects that contain Rust objects.
HOLDERS = ("PyDataFrame", "PySeries")
SCALAR = "scalar"
# The bytes of an item by type. The type's name is known, but not its unit or number of digits.
WIDTHS = {
    "Int8": 1, "UInt8": 1, "Int16": 2, "UInt16": 2, "Float16": 2, "Int32": 4, "UInt32": 4, "Float32": 4, "Date": 4,
    "Int64": 8, "UInt64": 8, "Float64": 8, "Datetime": 8, "Duration": 8, "Time": 8, "Int128": 16, "UInt128": 16,
    "Decimal": 16,
}  # fmt: skip
BOOLEAN, TEXTS = "Boolean", ("String", "Binary")
KNOWN = frozenset((*WIDTHS, BOOLEAN, *TEXTS))
RENAMED = {
    "Utf8": "String",
    "FixedSizeList": "Array",
    **dict.fromkeys((f"Categorical{n}" for n in (8, 16, 32)), "Categorical"),
}
VIEW = 16
BITS = 8
MAX_COLUMNS = 1 << 16
MAX_CHUNKS = 1 << 17
MAX_READ = 1 << 20
MAX_BODY, MAX_FIELD = 512, 14
MAX_NAME = 4000
MAX_LENGTH = 1 << 46
# STRIDES: the possible sizes, in words, of an element of a frame's vector. PLACES: the possible offsets of the pointer
# to a series in an element. PROBED: the number of elements that are tested.
STRIDES, PLACES, PROBED = range(2, 41), range(4), 8
# The number of words of a buffer, of a bitmap, and of the storage that keeps either alive.
BUFFER, BITMAP, STORAGE_WORDS = 3, 4, 8
LEAST_OF_ARRAY = 2 * BITMAP
METHODS, LEAST = 64, 8
# compact_str: the last of its 24 bytes is 0xc0 plus the length, or 0xd8 if the text is on the heap. In a text of 24
# bytes it is the last byte of the text. smartstring: the first byte is twice the length plus 1.
INLINE, HEAP, TEXT_BYTES = 0xC0, 0xD8, 24
COMPACT, SMART = "compact_str", "smartstring"
Place = tuple[int, str]
_WRAPPED = "SeriesWrap"
# The type's name in a symbol, searched after the first _WRAPPED.
_TYPE = re.compile(r"\b(\w+?)(?:Type|Chunked)\b(?!<)")


class _Types:
    """Finds the type of a column by the vtable of its series."""

    def __init__(self, fields: Fields, target: Target) -> None:
        self._fields = fields
        self._target = target
        self._found: dict[int, str] = {}

    def of(self, vtable: int) -> str:
        """Return the name of a column's type as polars shows it; "" if ``vtable`` is not the address of a known
        vtable.
        """
        if vtable not in self._found:
            self._found[vtable] = self._read(vtable)
        return self._found[vtable]

    def _read(self, vtable: int) -> str:
        """Return the type to which most functions of the vtable belong; "" if no type has most of them.

        Some functions may have the name of another type, because compilers merge equal functions of two types.
        """
        loaded = self._library(vtable)
        if loaded is None:
            return ""
        try:
            words = self._fields.words(vtable, METHODS)
        except (Fault, OverflowError):
            return ""
        types = Counter(found for found in map(_type_in, (_named(loaded, word) for word in words)) if found)
        first, second = (*types.most_common(2), ("", 0), ("", 0))[:2]
        return first[0] if first[1] >= LEAST and 2 * first[1] > 3 * second[1] else ""

    def _library(self, address: int) -> LoadedObject | None:
        """Return polars' library if it contains ``address``; otherwise None."""
        loaded = self._target.object_of(address)
        return loaded if loaded is not None and "polars" in loaded.path else None


def _named(loaded: LoadedObject, address: int) -> str:
    """Return the name of the function at ``address`` if it is a method of a series; otherwise return ""."""
    return next((name for name in loaded.names_at(address) if _WRAPPED in name), "")


def _type_in(symbol: str) -> str:
    """Return the type whose method has this symbol; "" if there is none."""
    inside = (_native.demangle(symbol) or "").partition(f"{_WRAPPED}<")[2] if symbol else ""
    found = _TYPE.search(inside)
    return RENAMED.get(found[1], found[1]) if found else ""


@dataclass(frozen=True)
class _Series:
    """The values of a series, and the texts that may be its name.

    ``names``: these texts, by (offset in polars' ``Field`` of the series, layout of the text).
    """

    values: ColumnValues
    names: dict[Place, str]


class Polars:
    """Reads polars' objects. Raises NotBelieved if it has read more than MAX_READ columns and chunks in total."""

    def __init__(self, fields: Fields, target: Target, fits: Fits) -> None:
        self._fields = fields
        self._memory = fields.memory
        self._word = fields.memory.machine.word
        self._types = _Types(fields, target)
        self._fits = fits
        self._left = MAX_READ
        self._form: tuple[int, int] | None = None
        self._name_place: Place | None = None

    def frame(self, address: int) -> ArrayOrTable:
        """Return the DataFrame or Series at ``address``. Raises Fault, NotBelieved."""
        kinds = self._fields.kinds_of(address)
        name = self._fields.type_name(address)
        if "polars.DataFrame" in kinds:
            columns, rows = self._columns(self._fields.raw(self._fields.attribute(address, "_df")))
            return ArrayOrTable(DATAFRAME, name, address, None, (rows, len(columns)), None, columns)
        if "polars.Series" not in kinds:
            raise NotBelieved
        words = self._fields.raw(self._fields.attribute(address, "_s"))
        found = next((pair for pair in zip(words, words[1:]) if self._is_series(*pair)), None)
        if found is None:
            raise NotBelieved
        series = self._series(*found, None)
        label = self._names([series])[0]
        column = DataColumn(SERIES, label, series.values)
        return ArrayOrTable(SERIES, name, address, label, (series.values.length,), series.values.dtype, [column])

    def _spend(self, count: int = 1) -> None:
        self._left -= count
        if self._left < 0:
            raise NotBelieved

    def _columns(self, words: list[int]) -> tuple[list[DataColumn], int]:
        """Return the columns, and the number of rows.

        Exactly one vector among ``words`` contains series; its elements are the columns."""
        for capacity, start, count in zip(words, words[1:], words[2:]):
            if not count <= capacity <= MAX_COLUMNS or start % self._word:
                continue
            if not count:
                if not capacity and start <= 2 * self._word:
                    return [], 0
                continue
            form = self._form_of(start, count)
            if form is not None:
                return self._in_vector(start, count, form)
        raise NotBelieved

    def _form_of(self, start: int, count: int) -> tuple[int, int] | None:
        """Return where the series lie in the vector of columns at ``start``; None if no element has a series.

        The result is (number of words of an element, index of the series' first word in an element). It is the pair
        with which most of the first elements have a series.
        """
        probed = min(count, PROBED)
        best, form = 0, None
        for stride in STRIDES if self._form is None else (self._form[0],):
            for place in PLACES if self._form is None else (self._form[1],):
                at = [start + (number * stride + place) * self._word for number in range(probed)]
                found = sum(self._has_series(one) for one in at) if place + 2 <= stride else 0
                if found > best:
                    best, form = found, (stride, place)
        if form is not None and best > 1:
            self._form = form
        return form

    def _has_series(self, at: int) -> bool:
        try:
            return self._is_series(self._memory.word(at), self._memory.word(at + self._word))
        except (Fault, OverflowError):
            return False

    def _is_series(self, address: int, vtable: int) -> bool:
        """Return whether ``vtable`` is that of a series, and an Arc is at ``address``: it begins with two reference
        counts.
        """
        if not address or address % self._word or not self._types.of(vtable):
            return False
        try:
            counts = self._fields.words(address, 2)
        except (Fault, OverflowError):
            return False
        return all(0 < count < 1 << 32 for count in counts)

    def _in_vector(self, start: int, count: int, form: tuple[int, int]) -> tuple[list[DataColumn], int]:
        stride, place = form
        self._spend(count)
        words = self._fields.words(start, count * stride)
        slots = [words[at : at + stride] for at in range(0, len(words), stride)]
        are = [self._is_series(*slot[place : place + 2]) for slot in slots]
        pairs = {n: (slot[place], slot[place + 1]) for n, slot in enumerate(slots) if are[n]}
        rows = next(filter(None, (self._length(*pair) for pair in pairs.values())), None)
        found = {number: self._series(*pair, rows) for number, pair in pairs.items()}
        lengths = {series.values.length for series in found.values()}
        if len(lengths) != 1:
            raise NotBelieved
        rows = lengths.pop()
        names = dict(zip(found, self._names(list(found.values()))))
        columns = [
            DataColumn(COLUMN, names[number], found[number].values)
            if number in found
            else self._scalar(slots[number], rows)
            for number in range(count)
        ]
        return columns, rows

    def _length(self, address: int, vtable: int) -> int | None:
        """Return the length of a column, from its arrays; None if gdbheap cannot read values of the column's type."""
        if self._types.of(vtable) not in KNOWN:
            return None
        return self._series(address, vtable, None).values.length

    def _scalar(self, words: list[int], rows: int) -> DataColumn:
        """Return a column that has one value for all rows.

        It is recognised by the number of rows, which follows the column's name in ``words``. Raises NotBelieved if
        ``words`` has no such column.
        """
        for at in range(len(words) - 3):
            if words[at + 3] == rows:
                name = self._text((at, COMPACT), words)
                if name is not None:
                    return DataColumn(COLUMN, self._shown(name), ColumnValues(SCALAR, rows, 0))
        raise NotBelieved

    def _series(self, address: int, vtable: int, rows: int | None) -> _Series:
        """Return the series at ``address``, which consists of its arrays, its field, and its length.

        ``rows``: the length to use for a type whose values are not read; None if it is unknown.
        """
        self._spend()
        dtype = self._types.of(vtable)
        size = self._memory.word(vtable + self._word)
        if not size <= MAX_BODY:
            raise NotBelieved
        words = self._fields.words(address + 2 * self._word, size // self._word)
        if dtype not in KNOWN:
            if rows is None:
                raise NotBelieved
            return _Series(ColumnValues(dtype, rows, None), self._texts_in(words, self._arrays_at(words)))
        found = [series for series in self._believed(dtype, words) if series.names]
        if not found:
            raise NotBelieved
        # The last one is right: a wrapped array (a Datetime's numbers) lies after its type, and gaps in the type may
        # hold remains of an older array.
        return found[-1]

    def _arrays_at(self, words: list[int]) -> int:
        return next((at for at in range(len(words) - 2) if self._chunks(*words[at : at + 3])), len(words))

    def _believed(self, dtype: str, words: list[int]) -> Iterator[_Series]:
        """Yield a series for each vector of arrays among the words.

        There may be several, because freed data may look like a vector too.
        """
        lengths = _lengths(words, self._word)
        for at in range(len(words) - 2):
            chunks = self._chunks(*words[at : at + 3])
            try:
                values = self._of_chunks(dtype, chunks)
            except (Fault, OverflowError, NotBelieved):
                continue
            if chunks and values.length in lengths:
                yield _Series(values, self._texts_in(words, at))

    def _chunks(self, capacity: int, start: int, count: int) -> list[list[int]]:
        """Return the words of each array in a ``Vec<Box<dyn Array>>``; an empty list if the arguments are no such
        vector.

        The arguments are the vector's three words.
        """
        if not 0 < count <= capacity <= MAX_CHUNKS or start % self._word or not start:
            return []
        try:
            self._spend(count)
            pairs = self._fields.words(start, 2 * count)
            return [self._array(*pair) for pair in zip(pairs[::2], pairs[1::2])]
        except (Fault, OverflowError, NotBelieved):
            return []

    def _array(self, address: int, vtable: int) -> list[int]:
        """Return the words of an array. Its vtable states their number: the first word of a vtable is a function, and
        the size and the alignment follow."""
        size, alignment = self._fields.words(vtable + self._word, 2)
        if alignment not in (self._word, 2 * self._word) or not 0 < size <= MAX_BODY or size % self._word:
            raise NotBelieved
        return self._fields.words(address, size // self._word)

    def _of_chunks(self, dtype: str, chunks: list[list[int]]) -> ColumnValues:
        """Return the values of a column; its length is the sum of the lengths of its arrays."""
        length, size, known = 0, 0, True
        pieces: list[ItemRun] = []
        for words in chunks:
            count, counted, found = self._part(dtype, words)
            length += count
            known = known and counted is not None
            size += counted or 0
            pieces += [piece for piece in found if piece.size]
        return ColumnValues(dtype, length, size if known else None, tuple(pieces))

    def _part(self, dtype: str, words: list[int]) -> tuple[int, int | None, list[ItemRun]]:
        """Return (number of items, bytes or None if unknown, runs of items) of an array.

        The words after the array's type are its values and the bitmap of valid items. An array of texts also has two
        numbers of bytes: those of all texts, and those of the longer texts.
        """
        if len(words) < LEAST_OF_ARRAY:
            raise NotBelieved
        if dtype in TEXTS:
            return self._texts_of(words)
        if dtype == BOOLEAN:
            count, values = self._bits(words[-2 * BITMAP : -BITMAP])
        else:
            count, values = self._items(words[-BITMAP - BUFFER : -BITMAP], WIDTHS[dtype])
        pieces = [values, *self._validity(words[-BITMAP:], count)]
        return count, sum(piece.size for piece in pieces), pieces

    def _texts_of(self, words: list[int]) -> tuple[int, int | None, list[ItemRun]]:
        """Return (number of texts, their bytes or None if unknown, runs of items) of an array of texts.

        The runs are its views, the buffers of longer texts, and the bitmap of valid items. The buffers are shared and
        not counted separately. The array stores these buffers as two words (an Arc of a slice) or as a buffer of
        buffers.
        """
        end = len(words) - 2 - BITMAP
        for skipped in (2, BUFFER):
            try:
                at = end - skipped
                count, views = self._items(words[at - BUFFER : at], VIEW)
            except (Fault, OverflowError, NotBelieved):
                continue
            pieces = [views, *self._buffers(words[at:end]), *self._validity(words[end:-2], count)]
            return count, words[-2] if words[-2] <= MAX_LENGTH else None, pieces
        raise NotBelieved

    def _items(self, words: list[int], width: int) -> tuple[int, ItemRun]:
        """Return the number of items in a buffer, and their addresses.

        A buffer has a storage, a first item and a number of items.
        """
        storage, start, count = words
        if not self._is_stored(storage, start, count, count * width):
            raise NotBelieved
        return count, run(start, count * width)

    def _bits(self, words: list[int]) -> tuple[int, ItemRun]:
        """Return the number of bits in a bitmap, and their addresses.

        A bitmap has a storage, a first bit, a number of bits, and a number of unset bits.
        """
        storage, offset, count = words[:3]
        if not storage or max(offset, count) > MAX_LENGTH:
            raise NotBelieved
        start = self._stored_bits(storage, (offset + count + BITS - 1) // BITS)
        return count, run(start + offset // BITS, (offset % BITS + count + BITS - 1) // BITS)

    def _validity(self, words: list[int], count: int) -> list[ItemRun]:
        """Return a list with the addresses of the bitmap of valid items; the list is empty if all items are valid."""
        if not words[0]:
            return []
        length, piece = self._bits(words)
        if length != count:
            raise NotBelieved
        return [piece]

    def _is_stored(self, storage: int, start: int, count: int, size: int) -> bool:
        """Return whether the storage that keeps a buffer alive contains the buffer.

        The storage has its pointer and its length, in bytes or in items, in adjacent words.
        """
        if not storage or storage % self._word or count > MAX_LENGTH or not start:
            return False
        try:
            words = self._fields.words(storage, STORAGE_WORDS)
        except (Fault, OverflowError):
            return False
        width = size // count if count else 1
        for first, length in zip(words, words[1:]):
            for held in (length, length * width):
                if first and first <= start and start + size <= first + held and length <= MAX_LENGTH:
                    return not size or self._fits(start, size)
            if not size and first == start and not length:
                return True
        return False

    def _stored_bits(self, storage: int, size: int) -> int:
        words = self._fields.words(storage, STORAGE_WORDS)
        for start, held in zip(words, words[1:]):
            if size <= held <= MAX_LENGTH < start and self._fits(start, size):
                return start
        raise NotBelieved

    def _buffers(self, words: list[int]) -> Iterator[ItemRun]:
        """Yield the buffers of longer texts.

        Each buffer has a storage, a pointer and a length; the buffers follow the two counts of an Arc.
        """
        start, count = words[-2:]
        if not 0 < count <= MAX_CHUNKS:
            return
        self._spend(count)
        start += 2 * self._word if len(words) == 2 else 0
        found = self._fields.words(start, BUFFER * count)
        for storage, first, size in zip(found[::3], found[1::3], found[2::3]):
            if not self._is_stored(storage, first, size, size):
                raise NotBelieved
            yield run(first, size)

    def _texts_in(self, words: list[int], at: int) -> dict[Place, str]:
        """Return the texts that may be the column's name, from the field (``Arc<Field>``) to which the word after the
        vector points.

        The keys are (offset in the field, layout of the text).
        """
        field = words[at + 3] if at + 3 < len(words) else 0
        if not field or field % self._word:
            return {}
        try:
            found = self._fields.words(field, MAX_FIELD)
        except (Fault, OverflowError):
            return {}
        if not all(0 < count < 1 << 32 for count in found[:2]):
            return {}
        places = [(place, form) for place in range(2, MAX_FIELD - 2) for form in (COMPACT, SMART)]
        texts = {where: self._text(where, found) for where in places}
        return {where: text for where, text in texts.items() if text is not None}

    def _names(self, series: list[_Series]) -> list[str | None]:
        """Return the names of a frame's columns; None for an unknown name.

        All names lie at the same offset in their fields, and no two are equal. Freed memory may look like names at a
        second offset. Then the offset that was found in other frames is used. If no other frame showed it, the names
        are unknown.
        """
        named = [one for one in series if one.names]
        places = set.intersection(*(set(one.names) for one in named)) if named else set()
        found = [place for place in places if len({one.names[place] for one in named}) == len(named)]
        if len(found) == 1 and len(named) > 1:
            self._name_place = found[0]
        place = self._name_place if self._name_place in found else found[0] if len(found) == 1 else None
        texts = [one.names.get(place) if place is not None else None for one in series]
        return [None if text is None else self._shown(text) for text in texts]

    def _text(self, where: tuple[int, str], words: list[int]) -> str | None:
        """Return the text that ``where`` selects in ``words``; None if it is not valid.

        ``where``: (offset in words, layout). The layout is SMART in polars before 1.0, and COMPACT since.
        """
        place, form = where
        return (self._compact if form == COMPACT else self._smart)(words[place : place + 3])

    def _shown(self, name: str) -> str:
        return self._fields.repr.disclosure.text(name)

    def _compact(self, words: list[int]) -> str | None:
        """Return the text of a compact_str of three words; None if the words cannot be one."""
        raw = self._memory.machine.structure("P" * 3).pack(*words)
        last = raw[-1]
        if INLINE <= last < HEAP:
            length = last - INLINE
            return None if any(raw[length:-1]) else _printable(raw[:length])
        if last == HEAP:
            return self._long(words[0], words[1])
        return _printable(raw) if last < INLINE and min(raw) >= ord(" ") else None

    def _smart(self, words: list[int]) -> str | None:
        """Return the text of a smartstring of three words; None if the words cannot be one."""
        raw = self._memory.machine.structure("P" * 3).pack(*words)
        length = raw[0] >> 1
        if raw[0] & 1 and length < TEXT_BYTES:
            return _printable(raw[1 : 1 + length]) if length and not any(raw[1 + length :]) else None
        return self._long(words[0], words[2]) if words[2] <= words[1] <= MAX_NAME else None

    def _long(self, start: int, length: int) -> str | None:
        if not TEXT_BYTES <= length <= MAX_NAME:
            return None
        try:
            return _printable(self._memory.read(start, length))
        except (Fault, OverflowError):
            return None


def _printable(raw: bytes) -> str | None:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return text if "\0" not in text else None


def _lengths(words: list[int], word: int) -> set[int]:
    """Return the numbers that may be a length: all words and all halves of words, up to MAX_LENGTH."""
    half = 1 << 4 * word
    return {number for one in words for number in (one, one % half, one // half) if number <= MAX_LENGTH}
