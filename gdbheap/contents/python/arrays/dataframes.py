"""Read the DataFrames, Series and indexes of pandas 1.2 to 3 from memory.

Fields are found by the class of the object to which they refer (``fields.py``). Blocks and their placements are Cython
classes; up to 1.2 they were Python classes with slots. A DataFrame is accepted only if each column is in the placement
of one block and is as long as the index. Bytes are counted as ``memory_usage(index=True, deep=False)`` counts them. The
hash table that an index makes at its first look-up does not count, because it has no values.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from gdbheap.contents.python.arrays.arrow import Arrow
from gdbheap.contents.python.arrays.columns import (
    COLUMN,
    DATAFRAME,
    INDEX,
    SERIES,
    ArrayOrTable,
    ColumnValues,
    DataColumn,
    ItemRun,
    NotBelieved,
)
from gdbheap.contents.python.arrays.fields import Fields
from gdbheap.contents.python.arrays.ndarrays import KIND as NDARRAY_KIND
from gdbheap.contents.python.arrays.ndarrays import Array, NumpyArrays
from gdbheap.contents.python.text.repr import BRIEF
from gdbheap.errors import Fault
from gdbheap.layout.cpython import OBJECT_HEAD

KINDS = {f"pandas.{name}": name for name in (DATAFRAME, SERIES, INDEX)}
EXTENSION = "pandas.ExtensionArray"
VALUES = (NDARRAY_KIND, EXTENSION)
MAX_COLUMNS = 1 << 16
# The most columns, labels and pieces of values that are read, together.
MAX_READ = 1 << 21
MAX_LEVELS = 64
# The deepest nesting of parts. A MultiIndex whose levels are categories of intervals of dates with a time zone is eight
# deep.
MAX_DEPTH = 16
MAX_PLACES = 1 << 17
RANGE_FIELDS = ("start", "stop", "step")
# The letters of the struct module for numbers of 1, 2 and 4 bytes and of a word.
NUMBERS = {"i": "bhiN", "u": "BHIP"}
MANAGERS = {"pandas.BlockManager", "pandas.SingleBlockManager"}
NAMES_SHOWN = 200


class DataFrames:
    """Reads the tables of pandas.

    Raises NotBelieved after more than MAX_READ columns, labels and runs of items in total.
    """

    def __init__(self, fields: Fields, arrays: NumpyArrays, arrow: Arrow) -> None:
        self._fields = fields
        self._arrays = arrays
        self._arrow = arrow
        self._left = MAX_READ
        self._depth = 0
        self._known: dict[tuple[str, int], ColumnValues | None] = {}

    def frame(self, address: int) -> ArrayOrTable:
        """Return the DataFrame, Series or Index at ``address``. Raises Fault, NotBelieved."""
        kinds = self._fields.kinds_of(address)
        name = self._fields.type_name(address)
        if "pandas.DataFrame" in kinds:
            return self._dataframe(address, name)
        if "pandas.Series" in kinds:
            return self._series(address, name)
        if "pandas.Index" not in kinds:
            raise NotBelieved
        index = self.index(address)
        label = self._own_name(address)
        return ArrayOrTable(INDEX, name, address, label, (index.length,), index.dtype, [DataColumn(INDEX, None, index)])

    def _dataframe(self, address: int, name: str) -> ArrayOrTable:
        blocks, axes = self._manager(address)
        if len(axes) != 2:
            raise NotBelieved
        found: dict[int, ColumnValues] = {}
        for block in blocks:
            places = self._places(block)
            self._spend(len(places) + 1)
            values = self._values(self._values_of(block), len(places))
            if set(places) & found.keys() or len(set(places)) != len(values):
                raise NotBelieved
            found.update(zip(places, values))
        index = self.index(axes[1])
        if sorted(found) != list(range(len(found))) or any(one.length != index.length for one in found.values()):
            raise NotBelieved
        labels = self._labels(axes[0], len(found))
        columns = [DataColumn(COLUMN, labels[place], found[place]) for place in range(len(found))]
        shape = (index.length, len(found))
        return ArrayOrTable(
            DATAFRAME, name, address, None, shape, None, [DataColumn(INDEX, self._own_name(axes[1]), index), *columns]
        )

    def _spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise NotBelieved

    def _series(self, address: int, name: str) -> ArrayOrTable:
        blocks, axes = self._manager(address)
        if len(axes) != 1 or len(blocks) != 1:
            raise NotBelieved
        values, index = self._values(self._values_of(blocks[0]), 1), self.index(axes[0])
        if len(values) != 1 or values[0].length != index.length:
            raise NotBelieved
        label = self._own_name(address)
        columns = [DataColumn(INDEX, self._own_name(axes[0]), index), DataColumn(COLUMN, label, values[0])]
        return ArrayOrTable(SERIES, name, address, label, (index.length,), values[0].dtype, columns)

    def _manager(self, address: int) -> tuple[list[int], list[int]]:
        """Return the blocks and the axes of a DataFrame or Series. They are its manager's tuple of blocks and list of
        indexes.
        """
        manager = self._fields.attribute(address, "_mgr", "_data")
        if not self._fields.kinds_of(manager) & MANAGERS:
            raise NotBelieved
        blocks: list[int] | None = None
        axes: list[int] | None = None
        for held in self._fields.held(manager, "tuple", "list"):
            items = self._fields.items(held, MAX_COLUMNS)
            if axes is None and items and all("pandas.Index" in self._fields.kinds_of(item) for item in items):
                axes = items
            elif blocks is None and all("pandas.Block" in self._fields.kinds_of(item) for item in items):
                blocks = items
        if blocks is None or axes is None:
            raise NotBelieved
        return blocks, axes

    def _values_of(self, block: int) -> int:
        found = self._fields.held(block, *VALUES)
        if not found:
            raise NotBelieved
        return found[0]

    def _places(self, block: int) -> list[int]:
        """Return the column number for each row of a block's array, in the order of the rows."""
        found = self._fields.held(block, "pandas.BlockPlacement")
        held = self._fields.held(found[0], "slice", NDARRAY_KIND) if found else []
        for one in held:
            if "slice" in self._fields.kinds_of(one):
                return self._slice(one)
        if not held:
            raise NotBelieved
        return self._numbers(self._arrays.read(held[0]), MAX_PLACES)

    def _slice(self, address: int) -> list[int]:
        """Return the numbers that a PySliceObject (start, stop, step) selects."""
        fields, head = self._fields, self._fields.release.at(OBJECT_HEAD)
        ends = fields.words(address + head, 3)
        start, stop = fields.number(ends[0]), fields.number(ends[1])
        step = 1 if fields.type_name(ends[2]) == "NoneType" else fields.number(ends[2])
        if not step or len(range(start, stop, step)) > MAX_PLACES:
            raise NotBelieved
        return list(range(start, stop, step))

    def _values(self, address: int, rows: int) -> list[ColumnValues]:
        """Return the values of each row of a block. A row of a block has the values of one column.

        A two-dimensional array has ``rows`` rows. Any other array counts as one row.
        """
        kinds = self._fields.kinds_of(address)
        array = self._backing(address) if EXTENSION in kinds else self._arrays.read(address)
        if array is not None and len(array.shape) == 2:
            if array.shape[0] != rows:
                raise NotBelieved
            dtype = self._dtype(address, kinds) if EXTENSION in kinds else None
            found = [array.values(row) for row in range(rows)]
            return [_as(values, dtype) for values in found]
        return [self.values(address)]

    def _backing(self, address: int) -> Array | None:
        """Return the numpy array with an extension array's values; None unless it has exactly one numpy array."""
        found = self._fields.held(address, NDARRAY_KIND)
        return self._arrays.read(found[0]) if len(found) == 1 else None

    def values(self, address: int) -> ColumnValues:
        """Return the values of the array at ``address``, numpy's or one of pandas' own. Raises Fault, NotBelieved."""
        return self._once("values", address, self._read_values)

    def _once(self, what: str, address: int, read: Callable[[int], ColumnValues]) -> ColumnValues:
        """Return the values at an address. ``read`` is called only once for each address, and the result is cached.

        Forged arrays may have parts in common or contain themselves, so the work is limited. Raises NotBelieved if an
        earlier read failed. Raises NotBelieved also if parts are nested too deeply or are too many.
        """
        self._spend(1)
        if (what, address) not in self._known:
            if self._depth >= MAX_DEPTH:
                raise NotBelieved
            self._known[what, address] = None
            self._depth += 1
            try:
                self._known[what, address] = read(address)
            finally:
                self._depth -= 1
        found = self._known[what, address]
        if found is None:
            raise NotBelieved
        self._spend(len(found.pieces) + len(found.objects))
        return found

    def _read_values(self, address: int) -> ColumnValues:
        kinds = self._fields.kinds_of(address)
        if NDARRAY_KIND in kinds:
            return self._arrays.read(address).values()
        if EXTENSION not in kinds:
            raise NotBelieved
        dtype = self._dtype(address, kinds)
        if "pandas.ArrowExtensionArray" in kinds or "pandas.ArrowStringArray" in kinds:
            found = self._arrow.values(self._fields.attribute(address, "_pa_array", "_data"))
            return _as(found, dtype or f"{found.dtype}[pyarrow]")
        if "pandas.SparseArray" in kinds:
            return self._sparse(address)
        parts = [self.values(part) for part in self._parts(address)]
        if not parts or any(part.length != parts[0].length for part in parts):
            raise NotBelieved
        if "pandas.Categorical" in kinds:
            parts.append(self.index(self._categories(address)))
        return _together(parts, dtype or parts[0].dtype)

    def _parts(self, address: int) -> list[int]:
        """Return the numpy arrays inside an array of pandas: values and mask, or the left and right ends of
        intervals.
        """
        attributes = self._fields.attributes(address)
        named = [
            value for name, value in attributes.items() if name in ("_left", "_right", "_data", "_mask", "_ndarray")
        ]
        found = [value for value in named if self._fields.kinds_of(value) & {*VALUES, "pandas.Index"}]
        found = found or self._fields.held(address, NDARRAY_KIND)
        return [self._inner(one) for one in dict.fromkeys(found)]

    def _inner(self, address: int) -> int:
        """Return the array of an index; the address of any other object is returned unchanged."""
        return self._fields.attribute(address, "_data") if "pandas.Index" in self._fields.kinds_of(address) else address

    def _sparse(self, address: int) -> ColumnValues:
        """Return the values of a sparse array: the items that are present, and the index of their positions."""
        values = self._arrays.read(self._fields.attribute(address, "_sparse_values"))
        index = self._fields.attribute(address, "_sparse_index")
        places = [self._arrays.read(one) for one in self._fields.held(index, NDARRAY_KIND)]
        dtype = f"Sparse[{values.dtype.name}{self._filled(address)}]"
        found = _together([values.values(), *(one.values() for one in places)], dtype)
        return ColumnValues(found.dtype, self._sparse_length(index), found.bytes, found.pieces)

    def _filled(self, address: int) -> str:
        """Return the fill value, which stands for absent items, as ", " and its text; "" if it is unknown."""
        dtype = self._fields.attributes(address).get("_dtype", 0)
        value = self._fields.attributes(dtype).get("_fill_value", 0) if dtype else 0
        text = self._fields.repr.text(value, BRIEF) if value else None
        return f", {text}" if text else ""

    def _sparse_length(self, index: int) -> int:
        """Return the number of items, including the absent ones.

        IntIndex has ``Py_ssize_t length, npoints``, BlockIndex ``int32_t nblocks, npoints, length``. In IntIndex and
        BlockIndex, these fields follow a pointer to a table of methods (pandas/_libs/sparse.pyx, 1.2 to 3)."""
        kinds, raw = self._fields.kinds_of(index), self._fields.raw(index)
        if "pandas.IntIndex" in kinds:
            return raw[1]
        if "pandas.BlockIndex" not in kinds:
            raise NotBelieved
        return raw[2] & 0xFFFFFFFF

    def _categories(self, address: int) -> int:
        for dtype in self._fields.held(address, "pandas.CategoricalDtype"):
            return self._fields.attribute(dtype, "_categories")
        raise NotBelieved

    def index(self, address: int) -> ColumnValues:
        """Return the values of the Index at ``address``. Raises Fault, NotBelieved."""
        return self._once("index", address, self._read_index)

    def _read_index(self, address: int) -> ColumnValues:
        kinds = self._fields.kinds_of(address)
        if "pandas.RangeIndex" in kinds:
            numbers, size = self._range(address)
            return ColumnValues("int64", len(numbers), size)
        if "pandas.MultiIndex" in kinds:
            return self._multi(address)
        if "pandas.Index" not in kinds:
            raise NotBelieved
        return self.values(self._fields.attribute(address, "_data"))

    def _range(self, address: int) -> tuple[range, int]:
        """Return the numbers of a RangeIndex, and the bytes of its range object with start, stop and step, as
        sys.getsizeof() counts them.
        """
        fields = self._fields
        held = fields.attribute(address, "_range")
        if "range" not in fields.kinds_of(held):
            raise NotBelieved
        raw = fields.raw(held)
        ends = [fields.number(one) for one in raw[: len(RANGE_FIELDS)]]
        sizes = [fields.size(one) for one in raw[: len(RANGE_FIELDS)]]
        if len(ends) != len(RANGE_FIELDS) or not ends[2] or None in sizes:
            raise NotBelieved
        own = fields.release.at(OBJECT_HEAD) + len(raw) * fields.memory.machine.word
        numbers = range(*ends)
        if max(map(abs, ends)) > 1 << 60:
            raise NotBelieved
        return numbers, own + sum(size for size in sizes if size is not None)

    def _multi(self, address: int) -> ColumnValues:
        """Return the values of a MultiIndex: its levels and, for each level, the codes of all rows."""
        levels, codes = self._levels(address)
        names = self._fields.items(self._fields.attribute(address, "_names"), MAX_LEVELS)
        sizes = [self._fields.size(name) for name in names]
        own = None if None in sizes else sum(size for size in sizes if size is not None)
        found = _together([*(one.values() for one in codes), *map(self.index, levels)], "MultiIndex")
        size = None if own is None or found.bytes is None else found.bytes + own
        return ColumnValues(found.dtype, codes[0].length, size, found.pieces, found.objects)

    def _levels(self, address: int) -> tuple[list[int], list[Array]]:
        levels, codes = (
            self._fields.items(self._fields.attribute(address, name), MAX_LEVELS) for name in ("_levels", "_codes")
        )
        arrays = [self._arrays.read(one) for one in codes]
        # A level cannot have several levels itself.
        if any("pandas.MultiIndex" in self._fields.kinds_of(level) for level in levels):
            raise NotBelieved
        if not arrays or len(levels) != len(arrays) or any(one.length != arrays[0].length for one in arrays):
            raise NotBelieved
        return levels, arrays

    def _labels(self, address: int, count: int) -> list[str | None]:
        """Return the labels, as text, of the index at ``address`` of length ``count``; a list of None if they are
        unknown.
        """
        if self.index(address).length != count or count > MAX_COLUMNS:
            raise NotBelieved
        try:
            found: list[str | None] = list(self._texts(address, count))
        except (Fault, NotBelieved, OverflowError):
            found = []
        return found if len(found) == count else [None] * count

    def _texts(self, address: int, count: int) -> list[str]:
        self._spend(count)
        kinds = self._fields.kinds_of(address)
        if "pandas.RangeIndex" in kinds:
            numbers = self._range(address)[0]
            # The default labels 0, 1, 2, … reveal nothing.
            is_plain = (numbers.start, numbers.step) == (0, 1)
            return [str(number) if is_plain else self._shown(str(number)) for number in islice(numbers, count)]
        if "pandas.MultiIndex" in kinds:
            return self._tuples(address, count)
        data = self._fields.attribute(address, "_data")
        kinds = self._fields.kinds_of(data)
        if EXTENSION in kinds and ("pandas.ArrowExtensionArray" in kinds or "pandas.ArrowStringArray" in kinds):
            texts = self._arrow.texts(self._fields.attribute(data, "_pa_array", "_data"), count)
            return [self._shown(text) for text in texts]
        array = self._backing(data) if EXTENSION in kinds else self._arrays.read(data)
        if array is None:
            raise NotBelieved
        if array.dtype.is_object:
            return [self._label(one) for one in self._pointers(array, count)]
        return [self._shown(str(number)) for number in self._numbers(array, count)]

    def _tuples(self, address: int, count: int) -> list[str]:
        """Return the labels of a MultiIndex: for each row the labels of its levels, joined with commas."""
        levels, codes = self._levels(address)
        texts = []
        for level, numbers in zip(levels, codes):
            own = self._texts(level, min(self.index(level).length, MAX_COLUMNS))
            texts.append([own[code] if 0 <= code < len(own) else "NaN" for code in self._numbers(numbers, count)])
        return [", ".join(parts) for parts in zip(*texts)]

    def _label(self, address: int) -> str:
        """Return a label as text: a str unchanged, another object as its repr."""
        if self._fields.is_str(address):
            return self._shown(self._fields.text(address, NAMES_SHOWN))
        found = self._fields.repr.key_text(address, BRIEF)
        if found is None:
            raise NotBelieved
        return found

    def _shown(self, text: str) -> str:
        """Return a label, hidden if contents may not be shown.

        A label is data, even if it looks like a name, because pivoting turns values into labels.
        """
        return self._fields.repr.disclosure.text(text)

    def _own_name(self, address: int) -> str | None:
        """Return the name of a Series or Index; None if it has no name or the name cannot be read."""
        try:
            held = self._fields.attribute(address, "_name")
            return None if self._fields.type_name(held) == "NoneType" else self._label(held)
        except (Fault, NotBelieved, OverflowError):
            return None

    def _pointers(self, array: Array, count: int) -> list[int]:
        return self._items(array, count, "P")

    def _numbers(self, array: Array, count: int) -> list[int]:
        """Return the first ``count`` items of an array of integers."""
        sizes = (1, 2, 4, self._fields.memory.machine.word)
        letters = NUMBERS.get(array.dtype.name[0])
        if letters is None or array.dtype.size not in sizes:
            raise NotBelieved
        return self._items(array, count, letters[sizes.index(array.dtype.size)])

    def _items(self, array: Array, count: int, letter: str) -> list[int]:
        if len(array.shape) != 1 or array.length > MAX_PLACES:
            raise NotBelieved
        item = self._fields.memory.machine.structure(letter)
        stride = array.strides[0]
        if stride == item.size:
            raw = self._fields.memory.read(array.data, min(count, array.length) * item.size) if array.length else b""
            return [row[0] for row in item.iter_unpack(raw)]
        places = (array.data + place * stride for place in range(min(count, array.length)))
        return [item.unpack(self._fields.memory.read(place, item.size))[0] for place in places]

    def _dtype(self, address: int, kinds: frozenset[str]) -> str | None:
        """Return the name of an array's dtype if pandas defines it, such as "category"; None if the dtype is
        numpy's.
        """
        if "pandas.Categorical" in kinds:
            return "category"
        if "pandas.BooleanArray" in kinds:
            return "boolean"
        if kinds & {"pandas.IntegerArray", "pandas.FloatingArray"}:
            name = self._arrays.read(self._fields.attribute(address, "_data")).dtype.name
            return name.replace("ui", "UI", 1) if name.startswith("ui") else name.capitalize()
        for dtype in self._fields.held(address, "pandas.ExtensionDtype"):
            return self._named(dtype, self._fields.kinds_of(dtype))
        if "pandas.IntervalArray" in kinds:
            return f"interval[{self.values(self._parts(address)[0]).dtype}]"
        return None

    def _named(self, dtype: int, kinds: frozenset[str]) -> str | None:
        fields = self._fields
        if "pandas.ArrowDtype" in kinds:
            text = self._arrow.type_text(fields.attribute(dtype, "pyarrow_dtype"))
            return f"{text}[pyarrow]"
        if "pandas.StringDtype" in kinds:
            missing = fields.attributes(dtype).get("_na_value", 0)
            return "str" if missing and fields.type_name(missing) == "float" else "string"
        if "pandas.DatetimeTZDtype" in kinds:
            found = self._fields.attributes(dtype)
            unit = fields.text(found["_unit"]) if "_unit" in found else "ns"
            return f"datetime64[{unit}, {self._zone(found.get('_tz', 0))}]"
        if "pandas.IntervalDtype" in kinds:
            found = fields.attributes(dtype)
            side = (
                f", {fields.text(found['_closed'])}" if "_closed" in found and fields.is_str(found["_closed"]) else ""
            )
            return (
                f"interval[{self._arrays.dtype(found['_subtype']).name}{side}]" if "_subtype" in found else "interval"
            )
        return "period" if "pandas.PeriodDtype" in kinds else None

    def _zone(self, address: int) -> str:
        """Return the name of a time zone: the key of a zoneinfo zone, "UTC" for datetime.timezone.utc, otherwise
        "tz"."""
        kind = self._fields.type_name(address) if address else ""
        key = self._fields.attributes(address).get("key", 0) if address else 0
        if key:
            name = self._fields.text(key)
            return name if name == "UTC" else self._shown(name)
        return "UTC" if kind.rpartition(".")[2] in ("UTC", "timezone") and self._is_utc(address, kind) else "tz"

    def _is_utc(self, address: int, kind: str) -> bool:
        """Return whether a time zone is UTC.

        A PyDateTime_TimeZone has an offset and a name. The offset is a timedelta; its days, seconds and microseconds
        lie after its hash."""
        if kind != "datetime.timezone":
            return True
        head, memory = self._fields.release.at(OBJECT_HEAD), self._fields.memory
        offset = self._fields.raw(address)[0]
        return self._fields.type_name(offset) == "datetime.timedelta" and not any(
            memory.u32(offset + head + memory.machine.word + at) for at in (0, 4, 8)
        )


def _as(values: ColumnValues, dtype: str | None) -> ColumnValues:
    return values if dtype is None else ColumnValues(dtype, values.length, values.bytes, values.pieces, values.objects)


def _together(parts: list[ColumnValues], dtype: str) -> ColumnValues:
    """Return one column made of several parts, such as values and mask. Its length is that of the first part."""
    sizes = [part.bytes for part in parts]
    total = None if None in sizes else sum(size for size in sizes if size is not None)
    pieces: tuple[ItemRun, ...] = tuple(piece for part in parts for piece in part.pieces)
    objects = tuple(piece for part in parts for piece in part.objects)
    return ColumnValues(dtype, parts[0].length, total, pieces, objects)
