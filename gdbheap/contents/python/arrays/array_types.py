"""Recognise the types of arrays and tables of numpy, pandas, polars, pyarrow and torch, and read their objects."""

from __future__ import annotations

import struct

from gdbheap.contents.python.arrays import arrow, dataframes, ndarrays, polars, tensors
from gdbheap.contents.python.arrays.arrow import Arrow
from gdbheap.contents.python.arrays.columns import NDARRAY, TENSOR, ArrayOrTable, Fits, NotBelieved
from gdbheap.contents.python.arrays.dataframes import DataFrames
from gdbheap.contents.python.arrays.fields import Fields
from gdbheap.contents.python.arrays.native_classes import Classes
from gdbheap.contents.python.arrays.ndarrays import NumpyArrays
from gdbheap.contents.python.arrays.polars import Polars
from gdbheap.contents.python.arrays.tensors import Tensors
from gdbheap.contents.python.objects.census import Objects
from gdbheap.errors import Fault, Unsupported

# The kinds (as in fields.Fields) of all types with values. A subclass stands before its base.
KINDS = {**dataframes.KINDS, **polars.KINDS, **arrow.KINDS, ndarrays.KIND: NDARRAY, tensors.KIND: TENSOR}
BROKEN = (Fault, NotBelieved, Unsupported, OverflowError, ValueError, RecursionError, struct.error)


class ArrayReader:
    """Reads the arrays and tables of one target.

    ``fits``: a function that returns whether a buffer can lie at an address that an object states.
    """

    def __init__(self, objects: Objects, fits: Fits) -> None:
        self.fields = Fields(objects)
        self.arrays = NumpyArrays(self.fields, fits)
        classes = Classes(self.fields.memory, objects.target)
        self._arrow = Arrow(self.fields, classes, fits)
        self._tensors = Tensors(self.fields, classes, fits)
        self._pandas = DataFrames(self.fields, self.arrays, self._arrow)
        self._polars = Polars(self.fields, objects.target, fits)
        self._kinds: dict[int, str | None] = {}

    def what(self, kind: int) -> str | None:
        """Return which kind of array or table the instances of a type are (a value of ``ArrayOrTable.what``).

        Return None if they are neither. ``kind``: the address of the type.
        """
        if kind not in self._kinds:
            kinds = self.fields.kinds(kind)
            self._kinds[kind] = next((what for name, what in KINDS.items() if name in kinds), None)
        return self._kinds[kind]

    def read(self, address: int, what: str) -> ArrayOrTable | None:
        """Return the array or table at ``address``; None if its fields have impossible values."""
        try:
            if what == NDARRAY:
                return self.arrays.frame(address)
            if what == TENSOR:
                return self._tensors.frame(address)
            if polars.KINDS.keys() & self.fields.kinds_of(address):
                return self._polars.frame(address)
            reader = self._pandas if what in dataframes.KINDS.values() else self._arrow
            return reader.frame(address)
        except BROKEN:
            return None
