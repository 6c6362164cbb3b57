"""Hold arrays with overwritten fields, beside sound ones: false_arrays.py SEED.

Writes {false: [address], sound: [[address, bytes]]} on standard error.
"""

from __future__ import annotations

import ctypes
import json
import random
import signal
import sys

# This folder has programs with the names of modules.
del sys.path[0]

import numpy as np  # noqa: E402

RANDOM = random.Random(int(sys.argv[1]))
DATA, ND, DIMENSIONS, STRIDES, DESCR = 16, 24, 32, 40, 56
HUGE = ((1 << 40) - 1, 1 << 62, (1 << 63) - 1, (1 << 64) - 5)


def word(address):
    return ctypes.c_uint64.from_address(address)


def overwritten(array, which):
    """Return the array with one of its fields overwritten."""
    at, huge = id(array), RANDOM.choice(HUGE)
    if which == "shape":
        word(word(at + DIMENSIONS).value).value = huge
    elif which == "larger":
        word(word(at + DIMENSIONS).value).value += RANDOM.randrange(100, 10000)
    elif which == "stride":
        word(word(at + STRIDES).value).value = huge
    elif which == "data":
        word(at + DATA).value = huge
    elif which == "dimensions":
        ctypes.c_uint32.from_address(at + ND).value = RANDOM.choice((65, 1000, (1 << 32) - 1))
    elif which == "pointer":
        word(at + DIMENSIONS).value = huge
    else:
        word(at + DESCR).value = RANDOM.choice((huge, id(None), id(array)))
    return array


fields = ("shape", "larger", "stride", "data", "dimensions", "pointer", "descr")
false = [overwritten(np.ones((RANDOM.randrange(20, 50), 30)), which) for which in fields]
sound = [np.ones((RANDOM.randrange(20, 50), 30)) for _ in fields]
said = {"false": list(map(id, false)), "sound": [[id(one), one.nbytes] for one in sound]}
print(json.dumps(said), file=sys.stderr, flush=True)
signal.pause()
