"""A pandas job: sales that are read, joined and grouped: frames.py COUNT READY"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import numpy
import pandas

rows = int(sys.argv[1])
numbers = numpy.random.default_rng(4)
sales = pandas.DataFrame({
    "product": numbers.choice([f"product {number}" for number in range(3000)], rows),
    "price": numbers.normal(10, 3, rows),
    "pieces": numbers.integers(1, 20, rows),
    "day": pandas.date_range("2020-01-01", periods=rows, freq="min"),
    "shop": pandas.Categorical(numbers.choice(["north", "south", "east"], rows)),
})  # fmt: skip
products = pandas.DataFrame({"product": sales["product"].unique()})
products["maker"] = [f"maker {number % 70}" for number in range(len(products))]
joined = sales.merge(products, on="product")
by_maker = joined.groupby("maker").agg({"price": ["mean", "std"], "pieces": "sum"})
Path(sys.argv[2]).touch()
signal.pause()
