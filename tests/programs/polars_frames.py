"""Hold frames and series of polars: polars_frames.py SEED FILE.

Writes {version, frames: {address: {shape, columns}}, false: addresses, place} to FILE; a column is [name, dtype,
estimated_size() or None if it is not computed], place is the address of the first value of the series "numbers". The
false ones are frames with one changed word.
"""

from __future__ import annotations

import ctypes
import datetime
import json
import random
import signal
import struct
import sys

# This folder has programs with the names of modules.
del sys.path[0]

import polars as pl  # noqa: E402

rng = random.Random(int(sys.argv[1]))
NUMBERS = ["Int8", "UInt8", "Int16", "UInt16", "Int32", "UInt32", "Int64", "UInt64", "Float32", "Float64"]
UNREAD = ("List", "Struct", "Categorical")


def column(name, rows):
    """Return a column of a random kind, some with missing values."""
    kind = rng.choice([*NUMBERS, "Boolean", "String", "Binary", "Date", "Datetime", "Duration", "Time"])
    lacks = rng.choice([0, 0, 0.3])
    longest = rng.choice([0, 5, 12, 13, 90])
    made = {
        "Boolean": lambda: rng.random() < 0.5,
        "String": lambda: "x" * rng.randrange(longest + 1),
        "Binary": lambda: b"y" * rng.randrange(longest + 1),
        "Date": lambda: datetime.date(2000, 1, 1) + datetime.timedelta(rng.randrange(9999)),
        "Datetime": lambda: datetime.datetime(2000, 1, 1) + datetime.timedelta(rng.randrange(9999)),
        "Duration": lambda: datetime.timedelta(rng.randrange(9999)),
        "Time": lambda: datetime.time(rng.randrange(24), rng.randrange(60)),
    }.get(kind, lambda: rng.randrange(100))
    values = [None if rng.random() < lacks else made() for _ in range(rows)]
    return pl.Series(name, values, dtype=getattr(pl, kind))


def name_of(number):
    """Return a unique name; some are longer than 12, 23 or 24 bytes."""
    return f"{number}{'ä' * rng.choice([0, 3])}{'n' * rng.choice([0, 1, 9, 20, 21, 22, 23, 24, 60])}"


def frame():
    """Return a frame with one or several parts, whole or sliced.

    With one row polars keeps single values instead of arrays.
    """
    rows = rng.randrange(2, 2000)
    made = pl.DataFrame([column(name_of(number), rows) for number in range(rng.randrange(1, 12))])
    if rng.random() < 0.4:
        made = pl.concat([made] * rng.randrange(2, 4), rechunk=False)
    return made.slice(rng.randrange(len(made) - 1), rng.randrange(2, len(made) + 1)) if rng.random() < 0.4 else made


def changed(place):
    """Return a frame with one changed word, of its vector or of arrays; it may not be used again."""
    made = pl.DataFrame({"a": list(range(1000)), "b": [1.5] * 1000})
    at = id(made._df)
    words = struct.unpack("9Q", ctypes.string_at(at, 72))
    vector = next(i for i in range(2, 6) if words[i + 2] == 2 and words[i] >= 2)
    if place == "count":
        ctypes.c_uint64.from_address(at + 8 * (vector + 2)).value = 1 << 60
    elif place == "start":
        ctypes.c_uint64.from_address(at + 8 * (vector + 1)).value = 0x7F0000000008
    else:
        # Half a gigabyte of items in the length of both columns' arrays.
        for series in (made["a"], made["b"]):
            told = struct.unpack("5Q", ctypes.string_at(id(series._s), 40))
            body = next(word for word in told[2:] if word > 4096 and word % 8 == 0)
            chunks = struct.unpack("9Q", ctypes.string_at(body, 72))[3]
            array = struct.unpack("2Q", ctypes.string_at(chunks, 16))[0]
            for word in range(16):
                if ctypes.c_uint64.from_address(array + 8 * word).value == 1000:
                    ctypes.c_uint64.from_address(array + 8 * word).value = 1 << 29
                    break
    return made


def size_of(series):
    return None if str(series.dtype).startswith(UNREAD) else series.estimated_size()


def place(series):
    """Return the address of its first value: polars has it up to 1.31, later Arrow if it is here."""
    if hasattr(series._s, "_get_buffer_info"):
        return series._s._get_buffer_info()[0]
    try:
        return series.to_arrow().buffers()[1].address
    except ImportError:
        return None


def said(what):
    columns = what.get_columns() if isinstance(what, pl.DataFrame) else [what]
    return {
        "shape": list(what.shape),
        "columns": [[one.name, str(one.dtype).partition("(")[0], size_of(one)] for one in columns],
    }


KEPT = [frame() for _ in range(12)]
KEPT += [column(name_of(number), rng.randrange(1, 500)) for number in range(4)]
nested = frame()
ROWS = len(nested)
KEPT.append(nested.with_columns(pl.Series("a list", [[1, 2]] * ROWS), pl.Series("a struct", [{"x": 1}] * ROWS)))
KEPT.append(nested.with_columns(pl.Series("a category", (["u", "v"] * ROWS)[:ROWS], dtype=pl.Categorical)))
FALSE = [changed(place) for place in ("count", "start", "items")]
PLAIN = pl.Series("numbers", list(range(1234)), dtype=pl.Int64)
KEPT.append(PLAIN)
truth = {
    "version": pl.__version__,
    "frames": {str(id(one)): said(one) for one in KEPT},
    "false": [id(one) for one in FALSE],
    "place": place(PLAIN),
}
with open(sys.argv[2], "w") as file:
    json.dump(truth, file)
signal.pause()
