"""Maps shared memory directly beside each private mapping, of the given size, each with a pattern; prints the
addresses."""

import ctypes
import json
import sys
import time

MAP_SHARED, MAP_ANONYMOUS, MAP_FIXED_NOREPLACE = 0x1, 0x20, 0x100000
size = int(sys.argv[1])
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
kept = [str(number) for number in range(100_000)]
places = []
for row in [line.split() for line in open("/proc/self/maps")]:
    if row[1] == "rw-p" and row[-1] != "[stack]":
        start, end = (int(word, 16) for word in row[0].split("-"))
        for at in (end, start - size):
            if libc.mmap(at, size, 3, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == at:
                ctypes.c_uint64.from_address(at).value = at
                ctypes.c_uint64.from_address(at + size - 8).value = at + 1
                places.append(at)
print(json.dumps(places), flush=True)
time.sleep(3600)
