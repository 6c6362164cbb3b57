"""Map a file of a folder shared, and a memfd at two places that overlap in the file; touch both, and print the bytes
of the file and those that the memfd's two mappings share."""

import json
import mmap
import os
import random
import sys

PAGE = mmap.PAGESIZE
rng = random.Random(int(sys.argv[1]))


def file_of(path, size):
    """Return a descriptor of a file of that size without holes."""
    number = os.open(path, os.O_RDWR | os.O_CREAT, 0o600) if path else os.memfd_create("cache")
    os.ftruncate(number, size)
    return number


def touched(mapped):
    """Return the mapping after all of its pages were read."""
    return mapped, sum(mapped[::PAGE])


size = rng.randrange(6000, 7000) * PAGE
whole = rng.randrange(6000, 7000) * PAGE
skipped = rng.randrange(1000, 2000) * PAGE
on_disk = file_of(sys.argv[2], size)
os.pwrite(on_disk, b"x" * size, 0)
cache = file_of("", whole)
kept = [
    touched(mmap.mmap(on_disk, size, mmap.MAP_SHARED, mmap.PROT_READ)),
    touched(mmap.mmap(cache, whole)),
    touched(mmap.mmap(cache, whole - skipped, offset=skipped)),
]
sys.stderr.write(json.dumps([size, whole - skipped]) + "\n")
sys.stderr.flush()
os.read(0, 1)
