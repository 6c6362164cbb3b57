"""Keep a table of equal strings and fork a worker, which shares all of it: forked_table.py SEED."""

import os
import random
import sys

rng = random.Random(int(sys.argv[1]))
values = [f"value {number} of a driver " for number in range(rng.randrange(3, 9))]
count = rng.randrange(150_000, 200_000)
table = ["".join([rng.choice(values), str(number % 2)]) for number in range(count)]
alive, held = os.pipe()
if not os.fork():
    os.close(held)
    os.read(alive, 1)
    os._exit(0)
sys.stderr.write("ready\n")
sys.stderr.flush()
os.read(0, 1)
