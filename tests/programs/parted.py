"""Pass parts of large blocks to madvise or mprotect, so that the kernel divides their mappings: parted.py SEED COUNT.

Writes mallinfo's count and bytes of mmapped chunks, then the address and malloc_usable_size() of each block, a line
each, then waits for standard input. numpy does this to its arrays.
"""

from __future__ import annotations

import ctypes
import os
import random
import sys

PAGE = 4096
ADVICE = (14, 15)
"""MADV_HUGEPAGE, MADV_NOHUGEPAGE: each makes another mapping of what it is given."""
PROT_READ = 1


class Mallinfo2(ctypes.Structure):
    """The result of ``mallinfo2``."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


def main() -> None:
    """Allocate, advise, count."""
    rng, libc = random.Random(int(sys.argv[1])), ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_size_t, [ctypes.c_size_t]
    libc.malloc_usable_size.restype, libc.malloc_usable_size.argtypes = ctypes.c_size_t, [ctypes.c_size_t]
    for function in (libc.madvise, libc.mprotect):
        function.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
    blocks = []
    for _ in range(int(sys.argv[2])):
        size = rng.randrange(1 << 20, 8 << 20)
        blocks.append(libc.malloc(size))
        first = blocks[-1] + PAGE & -PAGE
        ctypes.memset(first, 1, size - PAGE)
        for _part in range(rng.randrange(4)):
            start = rng.randrange(size // PAGE - 2)
            length = rng.randrange(PAGE, size - (start + 1) * PAGE)
            libc.madvise(first + start * PAGE, length, rng.choice(ADVICE))
            if rng.randrange(4) == 0:
                libc.mprotect(first + start * PAGE, length, PROT_READ)
    libc.mallinfo2.restype = Mallinfo2
    told = libc.mallinfo2()
    sizes = [f"{block} {libc.malloc_usable_size(block)}" for block in blocks]
    print(f"{told.hblks} {told.hblkhd}", *sizes, sep="\n", file=sys.stderr, flush=True)
    os.read(0, 1)


if __name__ == "__main__":
    main()
