"""Ask malloc for blocks, fill them and forget their addresses: lost.py COUNT SEED TRUTH. Then wait for standard input.

TRUTH is JSON: ``key``, and ``blocks``, a list of [address ^ key, bytes, apparent contents]; so no address stays in this
process. A C++ object is a vtable's address followed by a few numbers, if libstdc++ is found.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import random
import string
import struct
import sys
from typing import Callable

KEY = 0x5A5A_0000_A5A5_0000
LEAST, MOST = 1200, 9000


def makers(rng: random.Random) -> dict[str, Callable[[int], bytes]]:
    """Return for each kind of contents a function that fills a block."""
    libc = ctypes.CDLL(None)
    functions = [ctypes.cast(getattr(libc, name), ctypes.c_void_p).value or 0 for name in ("malloc", "free", "printf")]
    found: dict[str, Callable[[int], bytes]] = {
        "zeros": bytes,
        "text": lambda size: "".join(rng.choices(string.ascii_letters, k=size)).encode(),
        # No word is an address or a small number.
        "data": lambda size: struct.pack("<Q", 0xEE1E_D000_0000_0001) * (size // 8),
        "pointers": lambda size: struct.pack("<Q", rng.choice(functions)) * (size // 8),
    }
    try:
        vtable = ctypes.addressof(ctypes.c_void_p.in_dll(ctypes.CDLL("libstdc++.so.6"), "_ZTVSt9exception")) + 16
    except (OSError, ValueError):
        return found
    found["C++ object of class std::exception"] = lambda size: struct.pack("<Q", vtable) + bytes(size - 8)
    return found


def main() -> None:
    """Lose them."""
    count, rng = int(sys.argv[1]), random.Random(int(sys.argv[2]))
    malloc = ctypes.CDLL(None).malloc
    malloc.restype, malloc.argtypes = ctypes.c_size_t, [ctypes.c_size_t]
    fill = makers(rng)
    blocks: list[list[object]] = []
    for _ in range(count):
        look, size = rng.choice(list(fill)), rng.randrange(LEAST, MOST) // 8 * 8
        at = malloc(size)
        ctypes.memmove(at, fill[look](size), size)
        blocks.append([at ^ KEY, size, look])
    del at
    with open(sys.argv[3], "w") as file:
        json.dump({"key": KEY, "blocks": blocks}, file)
    blocks.clear()
    fill.clear()
    gc.collect()
    os.read(0, 1)


if __name__ == "__main__":
    main()
