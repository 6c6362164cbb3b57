"""Leave holes as fragmented.py does; then for each line on standard input call malloc_trim(LINE); SEED BUFFERS."""

from __future__ import annotations

import ctypes
import os
import random
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from fragmented import M_MMAP_THRESHOLD, fragment


def main() -> None:
    """Allocate everything in the heap of the program break, drop the buffers, and wait for input."""
    library = ctypes.CDLL(None)
    library.mallopt(M_MMAP_THRESHOLD, 32 << 20)
    kept = fragment(random.Random(int(sys.argv[1])), int(sys.argv[2]))
    library.malloc_trim.argtypes = [ctypes.c_size_t]
    while True:
        line = os.read(0, 64)
        if not line:
            break
        library.malloc_trim(int(line))
    del kept


if __name__ == "__main__":
    main()
