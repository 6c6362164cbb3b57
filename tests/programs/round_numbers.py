"""Objects with 1.0 as a float, and a lost block at the address with these bits.

The program must be linked at a fixed address, so that its heap can grow over that address.
"""

from __future__ import annotations

import ctypes
import os
import sys

from stray import libc, move

ONE = 0x3F80_0000
ALIGNED, SIZE, BEFORE = 1 << 20, 4096, 16 << 20
MMAP_THRESHOLD = -3


def take() -> None:
    """Allocate the block at that address and lose its address."""
    libc.mallopt(MMAP_THRESHOLD, 1 << 30)
    libc.memalign.restype, libc.memalign.argtypes = ctypes.c_size_t, [ctypes.c_size_t, ctypes.c_size_t]
    while (found := libc.memalign(ALIGNED, SIZE)) != ONE:
        assert found < ONE, hex(found)


def main() -> None:
    """Grow, lose a block, wait."""
    numbers = [ctypes.c_float(1 + number / 1000) for number in range(1, 200)]
    ones = [ctypes.c_float(1.0) for _ in range(int(sys.argv[1]))]
    move(ONE - BEFORE)
    take()
    sys.stderr.write("ready\n")
    sys.stderr.flush()
    os.read(0, 1)
    del numbers, ones


if __name__ == "__main__":
    main()
