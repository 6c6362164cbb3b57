"""last_members.py SEED COUNT TABLE: blocks of malloc's, COUNT of them in a list, and as many that are lost.

The list leads through last members, which overlap the next chunks' headers. The table has "kept ADDRESS" or "lost
ADDRESS".
"""

import ctypes
import random
import signal
import sys

seed, count, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
size = 16 * random.Random(seed).randrange(40, 200) + 8
head = ctypes.c_uint64(0)
with open(path, "w") as table:
    for place in range(2 * count):
        block = libc.malloc(size)
        ctypes.memset(block, 1, size)
        if place % 2:
            ctypes.c_uint64.from_address(block + size - 8).value = head.value
            head.value = block + size - 8
        kind = "kept" if place % 2 else "lost"
        table.write(f"{kind} {block}\n")
signal.pause()
