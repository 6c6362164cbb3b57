"""Give parts of large blocks to madvise, so that the kernel keeps their mappings in parts: parted.py SEED COUNT.

Writes mallinfo's count and bytes of mmapped chunks, then waits for standard input. numpy does this to its arrays.
"""

from __future__ import annotations

import ctypes
import os
import random
import sys

PAGE = 4096
ADVICE = (14, 15)
"""MADV_HUGEPAGE, MADV_NOHUGEPAGE: each makes another mapping of what it is given."""


class Mallinfo2(ctypes.Structure):
    """What ``mallinfo2`` returns."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


def main() -> None:
    """Ask, advise, count."""
    rng, libc = random.Random(int(sys.argv[1])), ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_size_t, [ctypes.c_size_t]
    libc.madvise.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
    for _ in range(int(sys.argv[2])):
        size = rng.randrange(1 << 20, 8 << 20)
        first = libc.malloc(size) + PAGE & -PAGE
        ctypes.memset(first, 1, size - PAGE)
        for _part in range(rng.randrange(4)):
            start = rng.randrange(size // PAGE - 2)
            libc.madvise(first + start * PAGE, rng.randrange(PAGE, size - (start + 1) * PAGE), rng.choice(ADVICE))
    libc.mallinfo2.restype = Mallinfo2
    told = libc.mallinfo2()
    print(told.hblks, told.hblkhd, file=sys.stderr, flush=True)
    os.read(0, 1)


if __name__ == "__main__":
    main()
