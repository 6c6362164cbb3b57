"""List the DataFrames, tables and arrays of a target, with their columns.

The ``bytes`` of a row are those that its library counts, so two rows that use the same memory both count it.
``repeated`` is the part of a row's bytes that earlier rows count too. The sum leaves out these repeated bytes, so it
counts no byte twice.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import field, replace
from functools import partial

from gdbheap.answers.accounting.paths import ways
from gdbheap.answers.views import kept_by_views
from gdbheap.contents.python.arrays.array_types import ArrayReader
from gdbheap.contents.python.arrays.columns import (
    ARROW_ARRAY,
    CHUNKED_ARRAY,
    DATAFRAME,
    INDEX,
    NDARRAY,
    RECORD_BATCH,
    SERIES,
    TABLE,
    TENSOR,
    ArrayOrTable,
    ColumnValues,
    DataColumn,
    NotBelieved,
)
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault, GdbheapError
from gdbheap.heap import Heap
from gdbheap.targets.ranges import joined

__all__ = ["ArrayColumn", "ArrayRow", "Arrays", "InArray", "array_at", "arrays", "frames_of"]

# Objects of WHOLE kinds always have a row. Objects of PARTS kinds have a row only if they use memory that no earlier
# row uses.
WHOLE, PARTS = (DATAFRAME, TABLE, RECORD_BATCH), (SERIES, INDEX, CHUNKED_ARRAY, ARROW_ARRAY, TENSOR, NDARRAY)
TABLES = tuple(what for what in (*WHOLE, *PARTS) if what not in (TENSOR, NDARRAY))
# The most objects that are read in each group of kinds (tables, tensors, arrays).
MAX_OBJECTS = 100_000
# The most pointers that are followed to add the sizes of the objects that they point to.
MAX_POINTERS = 1 << 20
POINTERS_AT_ONCE = 1 << 13
# Values of these types are read only if symbols give the layout; values of a LazyFrame are never read.
UNREAD = ("polars.DataFrame", "polars.Series", "polars.LazyFrame")
# A process with such arrays has one of these libraries loaded.
LIBRARIES = ("_multiarray_umath", "libarrow.so", "libtorch_python.so", "polars")


@dataclass(frozen=True)
class ArrayColumn:
    """A column or an index of a table. ``address``: the address of its first values."""

    what: str
    name: str | None
    dtype: str
    shape: tuple[int, ...]
    bytes: int | None
    deep: int | None
    address: int | None


@dataclass(frozen=True)
class KeptBy:
    """Views of one type that alone keep a buffer alive: the number of views, and how many bytes of the buffer they
    show."""

    type: str
    count: int
    shown: int


@dataclass(frozen=True)
class ArrayRow:
    """A table with its columns, or an array.

    For a tensor, ``bytes`` are the bytes of its storage, if the storage lies in the target's memory. ``retained``: the
    bytes that the object keeps alive; a slice may keep far more bytes alive than it contains.
    """

    what: str
    type: str
    name: str | None
    shape: tuple[int, ...]
    dtype: str | None
    bytes: int | None
    deep: int | None
    repeated: int
    address: int
    data_address: int | None
    base: str | None
    views: int
    path: str | None
    columns: list[ArrayColumn] = field(default_factory=list)
    device: str | None = None
    nbytes: int | None = None
    absent: int = 0
    retained: int | None = None
    kept_by: KeptBy | None = None


@dataclass(frozen=True)
class Arrays:
    """The requested rows, largest first. ``count`` and ``bytes`` count all rows, even if rows were cut."""

    rows: list[ArrayRow]
    count: int
    bytes: int
    absent: int = 0


@dataclass(frozen=True)
class InArray:
    """The column or array whose values include an address.

    ``what``, ``name``, ``dtype`` and ``shape`` describe the column. ``of``, ``type``, ``address`` and ``whole_shape``
    describe the table with that column. For an array, both groups of fields describe the array.
    """

    what: str
    name: str | None
    dtype: str | None
    shape: tuple[int, ...]
    of: str
    type: str
    address: int
    whole_shape: tuple[int, ...]


def frames_of(heap: Heap) -> ArrayReader:
    """Return the reader of the target's tables and arrays. Raises NotAPython or Unsupported."""
    return ArrayReader(heap.python.objects, partial(_fits, heap))


def _fits(heap: Heap, start: int, size: int) -> bool:
    """Return whether ``size`` bytes at ``start`` can be one buffer: in a block in use, or in readable mappings."""
    if size < 0:
        return False
    block = heap.block_at(start)
    if block is not None:
        # A block with a header extends one word into the header of the next block.
        beyond = heap.target.machine.word if block.address + block.size > block.end else 0
        return block.state == "used" and start + size <= block.end + beyond
    at = start
    while at < start + size:
        mapping = heap.target.mappings.find(at)
        if mapping is None or not mapping.readable:
            return False
        at = mapping.end
    return True


class _CoveredMemory:
    """The memory that the rows so far use, as ascending ranges that do not touch."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> int:
        """Add a range, and return how many of its bytes were not covered before."""
        first, last = bisect_left(self._ends, start), bisect_right(self._starts, end)
        low, high = min([start, *self._starts[first:last]]), max([end, *self._ends[first:last]])
        had = sum(min(end, self._ends[at]) - max(start, self._starts[at]) for at in range(first, last))
        self._starts[first:last], self._ends[first:last] = [low], [high]
        return end - start - had


@dataclass(frozen=True)
class _SurveyedArray:
    """A table or array. ``new``: the bytes that no earlier table or array has. ``shared``: the bytes that an earlier
    one has too.
    """

    frame: ArrayOrTable
    new: int
    shared: int


class _Survey:
    """Reads all tables and arrays of one target.

    ``views``: the number of views, by the address of the array or tensor whose memory they use. ``doubted``: how many
    objects could not be read. ``unread``: how many objects have values that are not read, by type.
    """

    def __init__(self, heap: Heap) -> None:
        self.frames = frames_of(heap)
        self.views: dict[int, int] = {}
        self.doubted = 0
        self.unread: dict[str, int] = {}
        self._heap = heap
        self._covered = _CoveredMemory()

    def rows(self) -> Iterator[_SurveyedArray]:
        """Yield the tables first, then the tensors, then the arrays. Memory that several of them use counts for the
        first one."""
        for address, what in self._instances(TABLES):
            frame = self._read(address, what)
            if frame is not None:
                yield from self._surveyed(frame)
        for frame in self._tensors():
            yield from self._surveyed(frame)
        for address, what in self._instances((NDARRAY,)):
            frame = self._array(address, what)
            if frame is not None:
                yield from self._surveyed(frame)

    def frames_within(self, start: int, end: int) -> Iterator[ArrayOrTable]:
        """Yield the tables, tensors and arrays that may have values in [start, end), in the order of ``rows``.

        There may be very many arrays, so an array is read only if its data begins in the range.
        """
        for address, what in self._instances(TABLES):
            frame = self._read(address, what)
            if frame is not None:
                yield frame
        yield from self._tensors()
        for address, what in self._instances((NDARRAY,)):
            if self.frames.arrays.begins_within(address, start, end):
                frame = self._array(address, what)
                if frame is not None:
                    yield frame

    def _tensors(self) -> Iterator[ArrayOrTable]:
        """Yield one tensor for each storage: the one with the most items, preferably one that is not transposed. All
        further tensors of the storage count as views of the yielded one.
        """
        found = [self._read(address, what) for address, what in self._instances((TENSOR,))]
        frames = sorted((one for one in found if one is not None), key=_whole_first)
        owners: dict[int, int] = {}
        for frame in frames:
            owner = owners.setdefault(frame.storage, frame.address) if frame.storage else frame.address
            if owner == frame.address:
                yield frame
            else:
                self.views[owner] = self.views.get(owner, 0) + 1

    def _array(self, address: int, what: str) -> ArrayOrTable | None:
        """Return the array at ``address``. None if it uses the memory of another array: it then counts as a view of
        that array."""
        owner = self.frames.arrays.owner(address)
        if owner == address:
            return self._read(address, what)
        self.views[owner] = self.views.get(owner, 0) + 1
        return None

    def _read(self, address: int, what: str) -> ArrayOrTable | None:
        frame = self.frames.read(address, what)
        if frame is None:
            kinds = self.frames.fields.kinds_of(address).intersection(UNREAD)
            self.doubted += not kinds
            for kind in kinds:
                self.unread[kind] = self.unread.get(kind, 0) + 1
        return frame

    def _instances(self, wanted: tuple[str, ...]) -> list[tuple[int, str]]:
        """Return (address, kind) of the live objects of the ``wanted`` kinds: sorted by kind, then by size, the largest
        first."""
        census = self._heap.python.census
        known = {row.address: self.frames.what(row.address) for row in census.rows}
        kinds = {address: what for address, what in known.items() if what in wanted and what is not None}
        if not kinds:
            return []
        found = self._heap.python.objects.instances(
            dict.fromkeys(kinds, 0), set(census.contested), "together", MAX_OBJECTS, self._heap.python.classifying
        )
        if found.count > len(found.rows):
            self._heap.note("too-many-arrays", count=found.count, most=MAX_OBJECTS)
        rows = [(row.address, kinds[row.type_address]) for row in found.rows]
        return sorted(rows, key=lambda row: wanted.index(row[1]))

    def _surveyed(self, frame: ArrayOrTable) -> Iterator[_SurveyedArray]:
        """Yield the array or table ``frame`` if it gets a row. A table always gets a row; a column or array gets one
        only if it adds memory.
        """
        spans = joined(frame.spans)
        new = sum(self._covered.add(start, end) for start, end in spans)
        is_elsewhere = frame.what == TENSOR and not spans and (frame.bytes is None or bool(frame.nbytes))
        if new or is_elsewhere or frame.what not in PARTS:
            yield _SurveyedArray(frame, new, sum(end - start for start, end in spans) - new)


def _whole_first(frame: ArrayOrTable) -> tuple[int, bool, int]:
    return -(frame.nbytes or 0), not frame.is_contiguous, frame.address


def arrays(heap: Heap, minimum: int, top: int | None) -> Arrays:
    """Return the ``top`` largest tables and arrays of at least ``minimum`` bytes. Raises NotAPython or Unsupported."""
    survey = _Survey(heap)
    found = list(survey.rows())
    _note_unread(heap, survey)
    if survey.doubted:
        heap.note("arrays-not-there", count=survey.doubted)
    total = sum(_own(row) for row in found)
    found = [row for row in found if (row.frame.bytes or 0) >= minimum]
    found.sort(key=lambda row: (-(row.frame.bytes or 0), row.frame.address))
    shown = found[:top]
    paths = ways(heap, [row.frame.address for row in shown])
    deep = _Deep(survey.frames)
    rows = [
        replace(_row(survey, deep, row, paths.get(row.frame.address)), absent=_absent(heap, row.frame.spans))
        for row in shown
    ]
    rows = _with_holders(heap, survey.frames, rows)
    return Arrays(rows, len(found), total, _absent(heap, (span for row in found for span in row.frame.spans)))


def _with_holders(heap: Heap, frames: ArrayReader, rows: list[ArrayRow]) -> list[ArrayRow]:
    """Return the rows with the bytes that each retains, and with the small views that alone keep a row's buffer
    alive."""
    try:
        graph, views = heap.references.graph, kept_by_views(heap, frames)
    except GdbheapError:
        return rows
    numbers = {row.address: number for row in rows if (number := graph.find(row.address)) is not None}
    sizes = dict(zip(numbers, graph.retained(list(numbers.values()))))
    kept_by = {start: KeptBy(row.type, *counts) for row in views for start, counts in row.views.items()}
    starts = {row.address: _start(heap, row.data_address) for row in rows}
    return [replace(row, retained=sizes.get(row.address), kept_by=kept_by.get(starts[row.address])) for row in rows]


def _start(heap: Heap, address: int | None) -> int:
    """Return the start of the block that contains ``address``; 0 if no block does."""
    block = None if address is None else heap.block_at(address)
    return 0 if block is None else block.address


def _absent(heap: Heap, spans: Iterable[tuple[int, int]]) -> int:
    """Return how many bytes of these ranges are not resident; 0 if residency is unknown."""
    pages = heap.target.pages
    if pages is None:
        return 0
    return sum(end - start - pages.count(start, end).resident for start, end in joined(sorted(spans)))


def _note_unread(heap: Heap, survey: _Survey) -> None:
    """Add a remark that names the types whose values gdbheap cannot read. Objects of these types have no rows."""
    counts = dict(survey.unread)
    for row in heap.python.census.rows:
        if survey.frames.what(row.address) is None:
            for kind in survey.frames.fields.kinds(row.address).intersection(UNREAD):
                counts[kind] = counts.get(kind, 0) + row.live.count
    told = {kind: count for kind, count in counts.items() if count}
    if told:
        heap.note("values-not-read", counts=told)


def _own(row: _SurveyedArray) -> int:
    """Return the number of a row's bytes that no earlier row has.

    For a row without a buffer (a RangeIndex), all bytes count.
    """
    return row.new if row.frame.bytes is None else max(row.frame.bytes - row.shared, 0)


def _row(survey: _Survey, deep: _Deep, row: _SurveyedArray, path: str | None) -> ArrayRow:
    frame = row.frame
    whole = [_column(column, deep) for column in frame.columns]
    known = [column.deep for column in whole]
    fields, base = survey.frames.fields, None
    if frame.base:
        base = fields.type_name(frame.base) if fields.kinds_of(frame.base) else None
    return ArrayRow(
        what=frame.what, type=frame.type, name=frame.name, shape=frame.shape, dtype=frame.dtype, bytes=frame.bytes,
        deep=None if None in known else sum(size for size in known if size is not None), repeated=row.shared,
        address=frame.address,
        data_address=next((column.address for column in whole if column.address is not None), None),
        base=base, views=survey.views.get(frame.address, 0), path=path,
        columns=whole if frame.what in (*WHOLE, SERIES) else [], device=frame.device, nbytes=frame.nbytes,
    )  # fmt: skip


def _column(column: DataColumn, deep: _Deep) -> ArrayColumn:
    values = column.values
    address = next((piece.start for piece in values.pieces if piece.count), None)
    return ArrayColumn(column.what, column.name, values.dtype, (values.length,), values.bytes, deep.of(values), address)


class _Deep:
    """Adds up the sizes of objects behind pointers. It follows at most MAX_POINTERS pointers in total."""

    def __init__(self, frames: ArrayReader) -> None:
        self._fields = frames.fields
        self._left = MAX_POINTERS

    def of(self, values: ColumnValues) -> int | None:
        """Return the bytes of a column including the objects that it points to.

        None if the size of an object is unknown, or if the column has too many pointers.
        """
        if values.bytes is None or not values.objects:
            return values.bytes
        count = sum(piece.count for piece in values.objects)
        if count > self._left:
            return None
        self._left -= count
        sizes: dict[int, int | None] = {}
        total = values.bytes
        try:
            for pointer in self._pointers(values):
                if pointer not in sizes:
                    sizes[pointer] = self._fields.size(pointer) if pointer else 0
                size = sizes[pointer]
                if size is None:
                    return None
                total += size
        except (Fault, NotBelieved, OverflowError):
            return None
        return total

    def _pointers(self, values: ColumnValues) -> Iterator[int]:
        memory = self._fields.memory
        word = memory.machine.word
        for piece in values.objects:
            if piece.stride != word:
                yield from (memory.word(piece.start + place * piece.stride) for place in range(piece.count))
                continue
            for first in range(0, piece.count, POINTERS_AT_ONCE):
                yield from self._fields.words(piece.start + first * word, min(POINTERS_AT_ONCE, piece.count - first))


def array_at(heap: Heap, address: int, within: tuple[int, int]) -> InArray | None:
    """Return the column or array whose values include ``address``; None if there is none or none can be read.

    If several columns or arrays share the memory, the first one is returned. ``within``: the range, end exclusive, in
    which the values must begin, namely the block or the mappings around ``address``.
    """
    if not any(name in loaded.path for loaded in heap.target.objects for name in LIBRARIES):
        return None
    if heap.python.objects_or_none is None:
        return None
    for frame in _Survey(heap).frames_within(*within):
        for column in frame.columns:
            if any(address in piece for piece in column.values.pieces):
                return _in_array(frame, column)
    return None


def _in_array(frame: ArrayOrTable, column: DataColumn) -> InArray:
    shape = frame.shape if column.what == frame.what else (column.values.length,)
    return InArray(
        column.what, column.name, column.values.dtype, shape, frame.what, frame.type, frame.address, frame.shape
    )
