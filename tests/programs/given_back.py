"""Leave lists that lead to freed blocks, as in the middle of a resize: given_back.py SEED COUNT."""

from __future__ import annotations

import ctypes
import os
import random
import sys

OB_ITEM = 24
# Sizes that little else requests.
LEAST, MOST = 400, 512


def main() -> None:
    """Allocate blocks, free them, and store their addresses in empty lists, whose field is otherwise null."""
    rng, api = random.Random(int(sys.argv[1])), ctypes.pythonapi
    api.PyObject_Malloc.restype, api.PyObject_Malloc.argtypes = ctypes.c_size_t, [ctypes.c_size_t]
    api.PyObject_Free.restype, api.PyObject_Free.argtypes = None, [ctypes.c_size_t]
    held: list[list[object]] = [[] for _ in range(int(sys.argv[2]))]
    blocks = [api.PyObject_Malloc(rng.randrange(LEAST, MOST)) for _ in held]
    for thing, block in zip(held, blocks):
        ctypes.c_size_t.from_address(id(thing) + OB_ITEM).value = block
    for block in blocks:
        api.PyObject_Free(block)
    os.read(0, 1)
    os._exit(0)


if __name__ == "__main__":
    main()
