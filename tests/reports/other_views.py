"""Small views keep large buffers: memoryview, numpy.frombuffer, slices of Arrow and polars."""

import os
import sys

import numpy as np
import polars as pl
import pyarrow as pa

held = {"memoryview": [], "frombuffer": [], "arrow": [], "polars": []}
for n in range(10):
    held["memoryview"].append(memoryview(os.urandom(2_000_000))[:16])
    held["frombuffer"].append(np.frombuffer(bytearray(os.urandom(2_000_000)), dtype="u1")[:16])
    held["arrow"].append(pa.array(np.random.default_rng(n).random(250_000)).slice(0, 2))
    held["polars"].append(pl.Series(np.random.default_rng(n).random(250_000)).head(2))
print("READY", flush=True)
sys.stdin.readline()
