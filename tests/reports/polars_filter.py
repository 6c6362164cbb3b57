"""A polars frame and a filtered and sorted copy of half of it."""

import sys

import numpy as np
import polars as pl

ROWS = 1_500_000
frame = pl.DataFrame(
    {"a": np.arange(ROWS), "b": np.random.rand(ROWS), "s": [f"name-{n % 1000}-{n}" for n in range(ROWS)]}
)
grouped = frame.group_by("a").agg(pl.col("b").sum())
chosen = frame.filter(pl.col("b") > 0.5).sort("b")
del grouped
print("READY", flush=True)
sys.stdin.readline()
