"""Hold DataFrames, tables and arrays of random sizes, and write their own figures: frames.py SEED TRUTH.

TRUTH is {"frames": [{path, what, shape, bytes, columns: [[name, dtype, bytes, deep or null]]}], "arrays": [{path,
shape, dtype, bytes, data, views, base}], "places": [[address, what, name, shape]]}. Packages that are not installed are
left out.
"""

from __future__ import annotations

import importlib.util
import json
import random
import signal
import sys
import warnings

# This folder has programs with the names of modules.
del sys.path[0]
warnings.simplefilter("ignore")
SEED, TRUTH = int(sys.argv[1]), sys.argv[2]
RANDOM = random.Random(SEED)
truth = {"frames": [], "arrays": [], "places": []}


def some(low, high):
    return RANDOM.randrange(low, high)


def text():
    return "".join(RANDOM.choice("abcdefghij") for _ in range(some(1, 30)))


def numpy_part():
    import numpy as np

    held = {}
    for name in ("float64", "int8", "bool", "complex64", "U7", "S5", "M8[us]", "m8[h]", ">i4", "f2", "uint16"):
        shape = tuple(some(30, 60) for _ in range(some(1, 4)))
        held[name] = np.zeros(shape, dtype=name)
    held["fortran"] = np.asfortranarray(np.zeros((some(100, 200), some(100, 200))))
    held["record"] = np.zeros(some(1000, 2000), dtype=[("a", "i4"), ("b", "f8")])
    views = [held["float64"][1:], held["float64"].T, held["float64"][1:][::2]]
    of_bytes = np.frombuffer(bytes(some(50000, 60000)), dtype="u1")
    for name, array in held.items():
        truth["arrays"].append({
            "path": f"sys.modules['__main__'].ARRAYS['{name}']", "shape": list(array.shape), "bytes": array.nbytes,
            "dtype": array.dtype.str if name == "record" else str(array.dtype), "data_address": array.ctypes.data,
            "views": 3 if name == "float64" else 0, "base": None,
        })  # fmt: skip
        truth["places"].append([array.ctypes.data + array.nbytes // 2, "ndarray", None, list(array.shape)])
    truth["arrays"].append({
        "path": "sys.modules['__main__'].OF_BYTES", "shape": list(of_bytes.shape), "bytes": of_bytes.nbytes,
        "dtype": "uint8", "data_address": of_bytes.ctypes.data, "views": 0, "base": "bytes",
    })  # fmt: skip
    return held, views, of_bytes


def tables_of(index, deep):
    """Return the bytes of the hash tables that lookups made, which memory_usage() counts for their index."""
    own = index._engine.sizeof(deep) if hasattr(getattr(index, "_engine", None), "sizeof") else 0
    return own + sum(tables_of(level, deep) for level in getattr(index, "levels", []))


def described(path, what, frame):
    """Return a row with the columns' bytes by memory_usage(), index first."""
    shallow, deep = frame.memory_usage(index=True), frame.memory_usage(index=True, deep=True)
    names = [None, *map(label, frame.columns)]
    dtypes = [None, *map(str, frame.dtypes)]
    held = [frame.index, *(getattr(dtype, "categories", None) for dtype in frame.dtypes)]
    shallow, deep = (
        [int(size) - (0 if index is None else tables_of(index, is_deep)) for size, index in zip(sizes, held)]
        for sizes, is_deep in ((shallow, False), (deep, True))
    )
    rows = [[*row] for row in zip(names, dtypes, shallow, deep)]
    truth["frames"].append({
        "path": path, "what": what, "shape": list(frame.shape), "bytes": sum(shallow), "columns": rows,
    })  # fmt: skip


def label(name):
    return ", ".join(map(str, name)) if isinstance(name, tuple) else str(name)


def pandas_part(np):
    import pandas as pd

    n = some(3000, 6000)
    columns = {
        "price": np.random.rand(n), "count": np.arange(n), "small": np.zeros(n, dtype="i2"),
        "more": np.random.rand(n), "flag": np.zeros(n, dtype=bool),
        "kind": pd.Categorical([text() for _ in range(20)] * (n // 20) + ["z"] * (n % 20)),
        "word": pd.Series([text() for _ in range(n)], dtype=object),
        "mixed": pd.Series([text() if at % 3 else at * 1.5 if at % 2 else None for at in range(n)], dtype=object),
        "when": pd.date_range("2020", periods=n, freq="s"),
        "zone": pd.date_range("2020", periods=n, freq="s", tz="UTC"),
        "wait": pd.timedelta_range("1s", periods=n), "span": pd.period_range("2020", periods=n, freq="D"),
        "whole": pd.array([1] * n, dtype="Int32"), "maybe": pd.array([True] * n, dtype="boolean"),
        "between": pd.interval_range(0, n), "rare": pd.arrays.SparseArray([0.0] * (n - 9) + [1.0] * 9, fill_value=0.0),
        "named": pd.array([text() for _ in range(n)], dtype="string"),
    }  # fmt: skip
    held = {
        "mixed": pd.DataFrame(columns),
        "numbers": pd.DataFrame(np.random.rand(n, 5)),
        "dated": pd.DataFrame({"a": np.arange(n)}, index=pd.date_range("2020", periods=n, freq="s", name="at")),
        "by two": pd.DataFrame(
            np.random.rand(100, 4),
            columns=pd.MultiIndex.from_product([["x", "y"], [1, 2]]),
            index=pd.MultiIndex.from_product([range(10), range(10)], names=["i", "j"]),
        ),
        "words": pd.DataFrame({"s": range(500)}, index=[text() + str(at) for at in range(500)]),
        "empty": pd.DataFrame({"a": [], "b": []}),
        "wide": pd.DataFrame({f"c{at}": [at] for at in range(300)}),
    }
    if hasattr(pd, "ArrowDtype") and importlib.util.find_spec("pyarrow"):
        held["arrow"] = pd.DataFrame({
            "i": pd.array(range(n), dtype="int64[pyarrow]"),
            "s": pd.array([text() for _ in range(n)], dtype="string[pyarrow]"),
        })  # fmt: skip
    for name, frame in held.items():
        described(f"sys.modules['__main__'].FRAMES['{name}']", "DataFrame", frame)
    series = pd.Series(np.random.rand(n), name="alone")
    size = int(series.memory_usage())
    truth["frames"].append({
        "path": "sys.modules['__main__'].SERIES", "what": "Series", "shape": [n], "bytes": size,
        "columns": [[None, None, size - n * 8, None], ["alone", "float64", n * 8, n * 8]],
    })  # fmt: skip
    for name in ("price", "count", "small", "more"):
        place = held["mixed"][name].values.__array_interface__["data"][0]
        truth["places"].append([place + 8, "column", name, [n]])
    return held, series


def pyarrow_part():
    import pyarrow as pa

    n = some(2000, 5000)
    words = pa.array([text() if at % 7 else None for at in range(n)])
    table = pa.table({
        "i": pa.array(range(n), pa.int32()), "s": words, "d": words.dictionary_encode(),
        "l": pa.array([[at] * (at % 4) for at in range(n)]), "t": pa.array([at % 3 == 0 for at in range(n)]),
        "u": pa.array(range(n), pa.timestamp("ns", "UTC")), "f": pa.array([bytes(5)] * n, pa.binary(5)),
        "r": pa.array([{"a": at, "b": text()} for at in range(n)]), "ls": words.cast(pa.large_string()),
        "v": pa.array([[1, 2, 3]] * n, pa.list_(pa.int16(), 3)), "two words": pa.nulls(n),
        "map": pa.array([[("k", at)] for at in range(n)], pa.map_(pa.string(), pa.int8() if n < 100 else pa.int64())),
        "money": pa.array([None] * n, pa.decimal128(12, 3)),
    })  # fmt: skip
    held = {"whole": table, "part": table.slice(13, n // 2), "twice": pa.concat_tables([table, table.slice(7, 100)])}
    batch = pa.record_batch([pa.array(range(n)), pa.array([text() for _ in range(n)])], names=["x", "y"])
    for name, one in held.items():
        add_table(f"sys.modules['__main__'].TABLES['{name}']", "Table", one)
    add_table("sys.modules['__main__'].BATCH", "RecordBatch", batch)
    chunked = pa.chunked_array([[text() for _ in range(n)], [text()]])
    truth["frames"].append({
        "path": "sys.modules['__main__'].CHUNKED", "what": "ChunkedArray", "shape": [n + 1], "bytes": chunked.nbytes,
        "columns": [],
    })  # fmt: skip
    array = pa.array(range(n), pa.int16())
    truth["frames"].append({
        "path": "sys.modules['__main__'].ARROW", "what": "Array", "shape": [n], "bytes": array.nbytes, "columns": [],
    })  # fmt: skip
    data = table.column("i").chunk(0).buffers()[1].address
    truth["places"].append([data + 4, "column", "i", [n]])
    return held, batch, chunked, array


def add_table(path, what, table):
    columns = [[name, str(column.type), column.nbytes, None] for name, column in zip(table.schema.names, table.columns)]
    truth["frames"].append({
        "path": path, "what": what, "shape": [table.num_rows, table.num_columns], "bytes": table.nbytes,
        "columns": columns,
    })  # fmt: skip


def main():
    """Make an object for each installed package, as variables of this module; write their figures, and wait."""
    import numpy

    own = sys.modules["__main__"].__dict__
    own.update(zip(("ARRAYS", "VIEWS", "OF_BYTES"), numpy_part()))
    if importlib.util.find_spec("pandas"):
        own.update(zip(("FRAMES", "SERIES"), pandas_part(numpy)))
    if importlib.util.find_spec("pyarrow"):
        own.update(zip(("TABLES", "BATCH", "CHUNKED", "ARROW"), pyarrow_part()))
    with open(TRUTH, "w") as file:
        json.dump(truth, file)
    signal.pause()


main()
