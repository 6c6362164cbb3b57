"""An array whose memory is in a pool of a session: the array's base is a capsule that also leads to the pool.

capsules.py PLACES: writes the addresses of the region with the array's items, and of another region, as JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any

import numpy

ITEMS, SIZE, DEEP = 50_000, 500_000, 4
libc = ctypes.CDLL(None)
libc.calloc.restype, libc.calloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t, ctypes.c_size_t]
new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
NAME = b"dltensor"
CPU, FLOAT = 1, 2


class Managed(ctypes.Structure):
    """The C structure DLManagedTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p), ("device", ctypes.c_int * 2), ("ndim", ctypes.c_int), ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
    ]  # fmt: skip


def block(*words: int) -> int:
    """Return the address of a block of malloc's that begins with these words."""
    made = libc.calloc(1, max(SIZE if not words else 0, 8 * len(words)))
    (ctypes.c_uint64 * len(words)).from_address(made)[:] = words
    return int(made)


class Shown:
    """An object from which numpy makes an array."""

    def __init__(self, data: int, pool: int) -> None:
        made = libc.calloc(1, ctypes.sizeof(Managed))
        managed = Managed.from_address(made)
        managed.data, managed.context, managed.shape = data, pool, block(ITEMS)
        managed.device[0], managed.ndim, managed.code, managed.bits, managed.lanes = CPU, 1, FLOAT, 32, 1
        self.capsule = new_capsule(made, NAME, None)

    def __dlpack__(self, **_how: Any) -> Any:
        """Return the capsule."""
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the device of the items."""
        return CPU, 0


def held(place: int) -> int:
    """Return the address of a block from which a chain of further blocks leads to ``place``."""
    for _ in range(DEEP):
        place = block(place, 7)
    return place


regions = [block(), block()]
pool = block(*regions)
session = ctypes.c_void_p(held(pool))
outputs = numpy.from_dlpack(Shown(regions[0] + 64, pool))
with open(sys.argv[1], "w") as file:
    json.dump(regions, file)
del regions, pool
sys.stderr.write("ready\n")
sys.stderr.flush()
os.read(0, 1)
