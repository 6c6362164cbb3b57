"""Keep marbles: keeps_marbles.py COUNT SIZE.

COUNT blocks of C, SIZE bytes each, in a chain that only a masked word leads to; prints its first address, then rests.
"""

import ctypes
import os
import sys

MARBLE = 0x5EED0FA11AB1E5
MASK = 0x5A5A5A5A5A5A5A5A


def main():
    """Build the chain from its end, so that no word of this program is an address in it."""
    count, size = map(int, sys.argv[1:])
    malloc = ctypes.CDLL(None).malloc
    malloc.restype, malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    words = ctypes.c_uint64 * 2
    after = 0
    for _ in range(count):
        block = malloc(size)
        words.from_address(block)[:] = [MARBLE, after]
        after = block
    kept = ctypes.c_uint64(after ^ MASK)
    sys.stderr.write(f"{after:#x}\n")
    sys.stderr.flush()
    block = after = 0
    os.read(0, 1)
    return kept


if __name__ == "__main__":
    main()
