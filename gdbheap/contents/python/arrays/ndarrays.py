"""Read numpy's arrays and dtypes from memory.

PyArrayObject_fields is the same in numpy 1 and 2 (numpy/core/include/numpy/ndarraytypes.h). PyArray_Descr is not: numpy
2 (``_PyArray_Descr``, NPY_2_0_API_VERSION) has 8 bytes of flags where numpy 1 has ``int elsize, alignment``. The two
are distinguished because an alignment is never 0, while the flags use only their lowest byte.
"""

from __future__ import annotations

from math import prod

from gdbheap.contents.python.arrays.columns import (
    NDARRAY,
    ArrayOrTable,
    ColumnValues,
    DataColumn,
    Fits,
    ItemRun,
    NotBelieved,
)
from gdbheap.contents.python.arrays.fields import Fields
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault

KIND = "numpy.ndarray"
DTYPE_KINDS = ("numpy.dtype",)
# The offsets of fields in an array, then the offsets in a dtype.
DATA, ND, DIMENSIONS, STRIDES, BASE, DESCR = 16, 24, 32, 40, 48, 56
KIND_AT, NUMBER, SIZE_1, ALIGNMENT_1, METADATA_1 = 24, 28, 32, 36, 80
SIZE_2, ALIGNMENT_2, METADATA_2 = 40, 48, 112
# NPY_MAXDIMS; it was 32 up to numpy 1.
MAX_DIMENSIONS = 64
MAX_BYTES = 1 << 46
MAX_BASES = 16
ALIGNMENTS = (1, 2, 4, 8, 16)
# enum NPY_TYPES: the name of each type, and the bytes of an item.
NUMBERS = {
    0: ("bool", 1), 1: ("int8", 1), 2: ("uint8", 1), 3: ("int16", 2), 4: ("uint16", 2), 5: ("int32", 4),
    6: ("uint32", 4), 7: ("int64", 8), 8: ("uint64", 8), 9: ("int64", 8), 10: ("uint64", 8), 11: ("float32", 4),
    12: ("float64", 8), 13: ("float128", 16), 14: ("complex64", 8), 15: ("complex128", 16), 16: ("complex256", 32),
    17: ("object", 8), 23: ("float16", 2),
}  # fmt: skip
OBJECT, BYTES, TEXT, VOID, DATETIME, TIMEDELTA = 17, 18, 19, 20, 21, 22
STRING_DTYPE = 2056
CHARACTER = 4
# NPY_DATETIMEUNIT, after NpyAuxData (two functions and two reserved words).
UNITS = ("Y", "M", "W", "B", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as", "")
AUXILIARY = 32


@dataclass(frozen=True)
class Dtype:
    """A dtype: its name as str() shows it (for a structure ``dtype.str``), and the bytes of an item.

    ``is_object``: items are pointers to Python objects."""

    name: str
    size: int
    is_object: bool


@dataclass(frozen=True)
class Array:
    """A numpy array. ``base``: the object whose memory it uses, 0 if it has its own memory."""

    address: int
    dtype: Dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    data: int
    base: int

    @property
    def length(self) -> int:
        """The number of items in all dimensions together."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """The bytes of all items, as in ``nbytes``."""
        return self.length * self.dtype.size

    @property
    def span(self) -> tuple[int, int]:
        """The range of addresses that the array's items occupy, even if the strides are negative: (first, after the
        last)."""
        if not self.length:
            return self.data, self.data
        reach = [(size - 1) * stride for size, stride in zip(self.shape, self.strides)]
        low, high = sum(min(0, way) for way in reach), sum(max(0, way) for way in reach)
        return self.data + low, self.data + high + self.dtype.size

    def values(self, row: int | None = None) -> ColumnValues:
        """Return the items as a column: all items, or with ``row`` only those of one row of the first dimension."""
        shape, strides, data = self.shape, self.strides, self.data
        if row is not None:
            shape, strides, data = shape[1:], strides[1:], data + row * strides[0]
        part = Array(self.address, self.dtype, shape, strides, data, self.base)
        if len(shape) == 1:
            piece = ItemRun(data, shape[0], strides[0], self.dtype.size)
        else:
            piece = ItemRun(part.span[0], 1, 0, part.span[1] - part.span[0])
        objects = (piece,) if self.dtype.is_object and len(shape) == 1 else ()
        low, high = part.span
        # Repeated items (a stride of 0) count once.
        return ColumnValues(self.dtype.name, shape[0] if shape else 1, min(part.bytes, high - low), (piece,), objects)


class NumpyArrays:
    """Reads numpy's arrays; each dtype is read once."""

    def __init__(self, fields: Fields, fits: Fits) -> None:
        self._fields = fields
        self._fits = fits
        self._dtypes: dict[int, Dtype] = {}

    def frame(self, address: int) -> ArrayOrTable:
        """Return the array at ``address`` as a table with one column. Raises Fault, NotBelieved."""
        array = self.read(address)
        column = DataColumn(NDARRAY, None, array.values())
        name = self._fields.type_name(address)
        return ArrayOrTable(NDARRAY, name, address, None, array.shape, array.dtype.name, [column], array.base)

    def read(self, address: int) -> Array:
        """Return the array at ``address``. Raises Fault. Raises NotBelieved if the array's fields or the addresses of
        its items are impossible.
        """
        fields, at = self._fields, self._fields.release.at
        if KIND not in fields.kinds_of(address):
            raise NotBelieved
        data, dimensions, strides, base, descr = (
            fields.memory.word(address + at(offset)) for offset in (DATA, DIMENSIONS, STRIDES, BASE, DESCR)
        )
        count = fields.memory.u32(address + at(ND))
        if count > MAX_DIMENSIONS:
            raise NotBelieved
        found = Array(
            address, self.dtype(descr), self._sizes(dimensions, count), self._sizes(strides, count), data, base
        )
        if min(found.shape, default=0) < 0 or not self._fitting(found):
            raise NotBelieved
        return found

    def _fitting(self, array: Array) -> bool:
        """Return whether the target has memory for all items of the array, and the items do not overlap.

        Items may overlap only if they are repeated (a stride of 0).
        """
        size = array.bytes
        if size > MAX_BYTES:
            return False
        low, high = array.span
        if not size:
            return True
        repeats = any(stride == 0 and count > 1 for count, stride in zip(array.shape, array.strides))
        return (repeats or size <= high - low) and self._fits(low, high - low)

    def _sizes(self, start: int, count: int) -> tuple[int, ...]:
        """Return the ``count`` signed words at ``start``: an array's shape or strides."""
        machine = self._fields.memory.machine
        raw = self._fields.memory.read(start, count * machine.word) if count else b""
        return machine.structure(f"{count}N").unpack(raw) if count else ()

    def begins_within(self, address: int, start: int, end: int) -> bool:
        """Return whether the data of the array at ``address`` begins in [start, end), by reading only one word."""
        try:
            return start <= self._fields.memory.word(address + self._fields.release.at(DATA)) < end
        except Fault:
            return False

    def owner(self, address: int) -> int:
        """Return the array that owns the memory of the array at ``address``, following all bases in between."""
        for _ in range(MAX_BASES):
            try:
                base = self._fields.memory.word(address + self._fields.release.at(BASE))
            except Fault:
                break
            if not base or KIND not in self._fields.kinds_of(base):
                break
            address = base
        return address

    def dtype(self, address: int) -> Dtype:
        """Return the dtype at ``address``. Raises Fault, NotBelieved."""
        if address not in self._dtypes:
            self._dtypes[address] = self._read_dtype(address)
        return self._dtypes[address]

    def _read_dtype(self, address: int) -> Dtype:
        memory, at = self._fields.memory, self._fields.release.at
        if not self._fields.kinds_of(address) & set(DTYPE_KINDS):
            raise NotBelieved
        letter, order = memory.read(address + at(KIND_AT), 3)[::2]
        number, alignment = memory.u32(address + at(NUMBER)), memory.u32(address + at(ALIGNMENT_1))
        size, metadata = memory.u32(address + at(SIZE_1)), METADATA_1
        if not alignment:
            size, alignment, metadata = (
                memory.word(address + at(SIZE_2)),
                memory.word(address + at(ALIGNMENT_2)),
                METADATA_2,
            )
        if alignment not in ALIGNMENTS or size > MAX_BYTES:
            raise NotBelieved
        mark = ">" if order == ord(">") else "<"
        if number in NUMBERS:
            name, wanted = NUMBERS[number]
            if size != wanted:
                raise NotBelieved
            return Dtype(f">{chr(letter)}{size}" if mark == ">" else name, size, number == OBJECT)
        return Dtype(self._other(address, number, size, mark, metadata), size, False)

    def _other(self, address: int, number: int, size: int, mark: str, metadata: int) -> str:
        """Return the name of a dtype whose items have no fixed size, such as ``|S10`` or ``datetime64[ns]``.

        ``number``: numpy's number of the type.
        ``size``: the bytes of an item.
        ``mark``: the byte order, such as "<".
        ``metadata``: the offset of the pointer to the unit of a time.
        """
        if number == BYTES:
            return f"|S{size}"
        if number == TEXT:
            return f"{mark}U{size // CHARACTER}"
        if number == VOID:
            return f"|V{size}"
        if number in (DATETIME, TIMEDELTA):
            unit = self._unit(self._fields.memory.word(address + self._fields.release.at(metadata)))
            if mark == ">":
                return f">{'M' if number == DATETIME else 'm'}{size}{unit}"
            return f"{'datetime64' if number == DATETIME else 'timedelta64'}{unit}"
        return "StringDType()" if number == STRING_DTYPE else self._fields.type_name(address)

    def _unit(self, metadata: int) -> str:
        memory = self._fields.memory
        unit, count = memory.u32(metadata + AUXILIARY), memory.u32(metadata + AUXILIARY + 4)
        if unit >= len(UNITS):
            raise NotBelieved
        text = UNITS[unit]
        return f"[{count if count > 1 else ''}{text}]" if text else ""
