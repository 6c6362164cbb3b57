"""A file that is mapped privately, with all its pages written."""

import mmap
import signal

SIZE = 96 << 20
with open("index.db", "wb") as stream:
    stream.truncate(SIZE)
with open("index.db", "r+b") as stream:
    table = mmap.mmap(stream.fileno(), SIZE, flags=mmap.MAP_PRIVATE)
for place in range(0, SIZE, 4096):
    table[place] = 1
print("READY", flush=True)
signal.pause()
