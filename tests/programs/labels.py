"""Hold tables whose labels contain a secret: labels.py SECRET. All look like names in code."""

from __future__ import annotations

import signal
import sys

# This folder has programs with the names of modules.
del sys.path[0]

import pandas as pd  # noqa: E402
import polars as pl  # noqa: E402
import pyarrow as pa  # noqa: E402

SECRET = sys.argv[1]
COUNT = 20_000
NUMBERS = range(COUNT)
# Pivoting turns values into labels.
WHO = [f"{SECRET}{number % 2}" for number in NUMBERS]
DAYS = [number // 2 for number in NUMBERS]
struct = pa.struct([(f"{SECRET}_of_struct", pa.int64())])
held = [
    pl.DataFrame({"who": WHO, "day": DAYS, "n": NUMBERS}).pivot(on="who", index="day", values="n"),
    pl.Series(f"{SECRET}_of_series", NUMBERS),
    pd.DataFrame({"who": WHO, "day": DAYS, "n": NUMBERS}).pivot(columns="who", index="day", values="n"),
    pd.Series(NUMBERS, name=f"{SECRET}_of_series"),
    pa.table({f"{SECRET}_of_table": NUMBERS, "n": pa.nulls(COUNT, struct), "lists": pa.nulls(COUNT, pa.list_(struct))}),
    pa.nulls(COUNT, struct),
]
signal.pause()
