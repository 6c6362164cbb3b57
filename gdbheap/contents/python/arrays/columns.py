"""Records of arrays and of tables with columns, for all libraries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from gdbheap.dataclass import dataclass
from gdbheap.targets.ranges import Ranges

# The kinds of frames: a table with columns, an object with one column, or one array.
DATAFRAME, SERIES, INDEX, COLUMN = "DataFrame", "Series", "Index", "column"
TABLE, RECORD_BATCH, CHUNKED_ARRAY, ARROW_ARRAY = "Table", "RecordBatch", "ChunkedArray", "Array"
NDARRAY, TENSOR = "ndarray", "Tensor"

# A function of an address and a size that returns whether these bytes can be a buffer.
#
# They can if they lie in one block in use, or in readable mappings.
Fits = Callable[[int, int], bool]


class NotBelieved(Exception):
    """Raised if the fields of an object have impossible values. The object is then not listed."""


@dataclass(frozen=True)
class ItemRun:
    """``count`` items of ``size`` bytes each.

    Each item begins ``stride`` bytes after the one before; ``stride`` may be negative.
    """

    start: int
    count: int
    stride: int
    size: int

    @property
    def span(self) -> tuple[int, int]:
        """The address of the first byte, and the address after the last byte. The two are equal if there is no item."""
        if not self.count:
            return self.start, self.start
        ends = (self.start, self.start + self.stride * (self.count - 1))
        return min(ends), max(ends) + self.size

    def __contains__(self, address: int) -> bool:
        low, high = self.span
        if not low <= address < high:
            return False
        return not self.stride or (address - low) % abs(self.stride) < self.size


def run(start: int, size: int) -> ItemRun:
    """Return the run of items for ``size`` contiguous bytes at ``start``."""
    return ItemRun(start, 1, size, size)


@dataclass(frozen=True)
class ColumnValues:
    """The values of one column.

    ``bytes``: as the library counts them (``nbytes``), or None if unknown. ``pieces``: the runs of items in memory.
    ``objects``: the runs whose items are pointers to Python objects.
    """

    dtype: str
    length: int
    bytes: int | None
    pieces: tuple[ItemRun, ...] = ()
    objects: tuple[ItemRun, ...] = ()


@dataclass(frozen=True)
class DataColumn:
    """A column, or the index of a table.

    ``name``: its label as text; None if it has no label or the label is unknown. The bytes of ``values`` are counted as
    in ``DataFrame.memory_usage()`` and ``ChunkedArray.nbytes``."""

    what: str
    name: str | None
    values: ColumnValues


@dataclass(frozen=True)
class ArrayOrTable:
    """An array, or a table with its columns.

    ``address``: the Python object.
    ``type``: the name of its type.
    ``base``: for an array, the object whose memory it uses, 0 if it has its own memory.

    Fields of tensors only:
    ``device``: as str() shows it.
    ``nbytes``: the bytes of its own items.
    ``is_contiguous``: whether its items are adjacent.
    ``storage``: the address of the object that contains its bytes, 0 if unknown.
    """

    what: str
    type: str
    address: int
    name: str | None
    shape: tuple[int, ...]
    dtype: str | None
    columns: Sequence[DataColumn] = field(default_factory=list)
    base: int = 0
    device: str | None = None
    nbytes: int | None = None
    is_contiguous: bool = True
    storage: int = 0

    @property
    def bytes(self) -> int | None:
        """The bytes of all columns in total; None if the bytes of any column are unknown."""
        sizes = [column.values.bytes for column in self.columns]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    @property
    def spans(self) -> Ranges:
        """The address ranges of the values, ascending; ranges may overlap."""
        spans = {piece.span for column in self.columns for piece in column.values.pieces}
        return sorted(span for span in spans if span[0] < span[1])
