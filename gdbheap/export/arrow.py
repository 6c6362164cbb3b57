"""Convert batches of rows to Arrow, without copying the columns that the native code has packed. pyarrow is imported on
use.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from gdbheap.errors import Unsupported
from gdbheap.export.batches import Batch, Batches, Cells, Constant, NumberColumn, TextColumn
from gdbheap.export.declaration import FLAG, INTEGER, REAL, TEXT, ExportTable

__all__ = ["METADATA", "encoded", "missing", "pyarrow", "reader_of", "record_batch", "schema_of"]

METADATA = "gdbheap"


def missing(what: str, library: str, extra: str) -> Unsupported:
    """Return the error for a feature whose library is not installed. ``what``: the feature. ``extra``: the extra of
    gdbheap that contains the library."""
    step = f"pip install 'gdbheap[{extra}]'"
    return Unsupported(f"{what} needs {library}, which is not installed with gdbheap: {step}", [step])


def pyarrow() -> Any:
    """Import and return pyarrow. Raises Unsupported if it is not installed."""
    try:
        import pyarrow as found
    except ImportError:
        raise missing("Parquet", "pyarrow", "parquet") from None
    return found


def _types() -> dict[str, Any]:
    arrow = pyarrow()
    return {INTEGER: arrow.int64(), TEXT: arrow.string(), REAL: arrow.float64(), FLAG: arrow.bool_()}


def schema_of(table: ExportTable) -> Any:
    """Return the Arrow schema of a table. Its metadata describes the columns, and is also written to files."""
    arrow, types = pyarrow(), _types()
    about = {"table": table.name, "row": table.row, "columns": list(map(vars, table.columns))}
    fields = [arrow.field(column.name, types[column.kind], column.may_lack) for column in table.columns]
    return arrow.schema(fields, {METADATA: json.dumps(about)})


def encoded(schema: Any) -> Any:
    """Return a copy of the schema in which text columns are dictionary-encoded."""
    arrow = pyarrow()
    coded = arrow.dictionary(arrow.int32(), arrow.string())
    fields = [field.with_type(coded) if field.type == arrow.string() else field for field in schema]
    return arrow.schema(fields, schema.metadata)


def record_batch(batch: Batch, schema: Any) -> Any:
    """Convert a batch of rows to an Arrow record batch. ``schema``: the result of ``encoded``."""
    cells = [_array(found, batch.count, field.type) for found, field in zip(batch.columns, schema)]
    return pyarrow().RecordBatch.from_arrays(cells, schema=schema)


def reader_of(table: ExportTable, batches: Batches) -> Any:
    """Return an Arrow reader of all rows, with the table's schema. The reader can be read only once."""
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
    if isinstance(cells, NumberColumn):
        return arrow.Array.from_buffers(kind, count, [None, arrow.py_buffer(cells.data)])
    if isinstance(cells, TextColumn):
        return _coded(cells, count)
    if isinstance(cells, Constant):
        if cells.value is None:
            return arrow.nulls(count, kind)
        numbers = arrow.nulls(count, arrow.int32()).fill_null(0)
        return arrow.DictionaryArray.from_arrays(numbers, arrow.array([cells.value]))
    if arrow.types.is_dictionary(kind):
        # A name from the target may contain characters that cannot be encoded.
        texts = [None if text is None else text.encode("utf-8", "replace").decode("utf-8") for text in cells]
        return arrow.array(texts, arrow.string()).dictionary_encode()
    return arrow.array(cells, kind)


def _coded(cells: TextColumn, count: int) -> Any:
    """Return the strings of a column as a dictionary-encoded array.

    A missing string has no index, because Parquet allows no missing entry in the dictionary.
    """
    arrow = pyarrow()
    import pyarrow.compute as compute

    numbers = arrow.Array.from_buffers(arrow.int32(), count, [None, arrow.py_buffer(cells.codes)])
    if None in cells.names:
        lacking = arrow.array([place for place, name in enumerate(cells.names) if name is None], arrow.int32())
        unknown = compute.is_in(numbers, value_set=lacking)
        numbers = compute.if_else(unknown, arrow.scalar(None, arrow.int32()), numbers)
    names = arrow.array([(name or "").encode("utf-8", "replace").decode("utf-8") for name in cells.names])
    return arrow.DictionaryArray.from_arrays(numbers, names)
