"""Convert batches to Arrow, without copying what the native half packed. pyarrow is imported on use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from gdbheap.errors import Unsupported
from gdbheap.export.batches import Batch, Batches, Cells, Coded, Constant, Packed
from gdbheap.export.declaration import FLAG, INTEGER, REAL, TEXT, Table

__all__ = ["METADATA", "MISSING", "encoded", "pyarrow", "reader_of", "record_batch", "schema_of"]

METADATA = "gdbheap"
MISSING = "{} needs {}, which is not installed beside gdbheap: pip install 'gdbheap[{}]'"


def pyarrow() -> Any:
    """Import and return pyarrow. Raises Unsupported if it is not installed."""
    try:
        import pyarrow as found
    except ImportError:
        raise Unsupported(MISSING.format("Parquet", "pyarrow", "parquet")) from None
    return found


def _types() -> dict[str, Any]:
    arrow = pyarrow()
    return {INTEGER: arrow.int64(), TEXT: arrow.string(), REAL: arrow.float64(), FLAG: arrow.bool_()}


def schema_of(table: Table) -> Any:
    """Return the Arrow schema of a table. Its metadata, which a file gets too, describes the columns."""
    arrow, types = pyarrow(), _types()
    about = {"table": table.name, "row": table.row, "columns": list(map(vars, table.columns))}
    fields = [arrow.field(column.name, types[column.kind], column.may_lack) for column in table.columns]
    return arrow.schema(fields, {METADATA: json.dumps(about)})


def encoded(schema: Any) -> Any:
    """Return the schema with texts dictionary-encoded."""
    arrow = pyarrow()
    coded = arrow.dictionary(arrow.int32(), arrow.string())
    fields = [field.with_type(coded) if field.type == arrow.string() else field for field in schema]
    return arrow.schema(fields, schema.metadata)


def record_batch(batch: Batch, schema: Any) -> Any:
    """Return a batch as Arrow's, in an ``encoded`` schema."""
    cells = [_array(found, batch.count, field.type) for found, field in zip(batch.columns, schema)]
    return pyarrow().RecordBatch.from_arrays(cells, schema=schema)


def reader_of(table: Table, batches: Batches) -> Any:
    """Return a reader of all rows, to be read once, with the table's schema."""
    arrow, schema = pyarrow(), schema_of(table)
    coded = encoded(schema)

    def plain() -> Iterator[Any]:
        for batch in batches():
            columns = record_batch(batch, coded).columns
            cells = [cells.cast(field.type) for cells, field in zip(columns, schema)]
            yield arrow.RecordBatch.from_arrays(cells, schema=schema)

    return arrow.RecordBatchReader.from_batches(schema, plain())


def _array(cells: Cells, count: int, kind: Any) -> Any:
    arrow = pyarrow()
    if isinstance(cells, Packed):
        return arrow.Array.from_buffers(kind, count, [None, arrow.py_buffer(cells.data)])
    if isinstance(cells, Coded):
        return _coded(cells, count)
    if isinstance(cells, Constant):
        if cells.value is None:
            return arrow.nulls(count, kind)
        numbers = arrow.nulls(count, arrow.int32()).fill_null(0)
        return arrow.DictionaryArray.from_arrays(numbers, arrow.array([cells.value]))
    if arrow.types.is_dictionary(kind):
        # A name from the target may not be valid text in any encoding.
        texts = [None if text is None else text.encode("utf-8", "replace").decode("utf-8") for text in cells]
        return arrow.array(texts, arrow.string()).dictionary_encode()
    return arrow.array(cells, kind)


def _coded(cells: Coded, count: int) -> Any:
    """Return dictionary-encoded texts. Parquet allows no missing name in the dictionary, so the numbers are missing."""
    arrow = pyarrow()
    import pyarrow.compute as compute

    numbers = arrow.Array.from_buffers(arrow.int32(), count, [None, arrow.py_buffer(cells.codes)])
    if None in cells.names:
        lacking = arrow.array([place for place, name in enumerate(cells.names) if name is None], arrow.int32())
        unknown = compute.is_in(numbers, value_set=lacking)
        numbers = compute.if_else(unknown, arrow.scalar(None, arrow.int32()), numbers)
    names = arrow.array([(name or "").encode("utf-8", "replace").decode("utf-8") for name in cells.names])
    return arrow.DictionaryArray.from_arrays(numbers, names)
