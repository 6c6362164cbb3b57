"""Fork two workers that make the same objects: equal_workers.py SEED.

Each has strings, which do not change, and byte arrays, each of which it may write to a moment later. The bytes of the
objects of both kinds are printed.
"""

import json
import os
import random
import sys

seed = int(sys.argv[1])
alive, held = os.pipe()


def make():
    """Make the same objects in each worker."""
    rng = random.Random(seed)
    size = rng.randrange(100, 300)
    strings = [f"{number:0{size}d}" for number in range((6 << 20) // size)]
    return strings, [bytearray(b"%09d" % (number % 10) * 200) for number in range(rng.randrange(4000, 6000))]


for _worker in range(2):
    reading, writing = os.pipe()
    if not os.fork():
        os.close(reading)
        os.close(held)
        made = make()
        told = json.dumps([sum(map(sys.getsizeof, each)) for each in made])
        os.write(writing, told.encode())
        os.close(writing)
        os.read(alive, 1)
        os._exit(0)
    os.close(writing)
    answer = os.read(reading, 100).decode()
    os.close(reading)
sys.stderr.write(answer + "\n")
sys.stderr.flush()
os.read(0, 1)
