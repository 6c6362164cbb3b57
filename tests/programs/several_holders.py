"""Hold items with several holders each, one of which thousands of generators hold too; then rest: SEED."""

import os
import random
import sys

rng = random.Random(int(sys.argv[1]))


class Shared:
    """An item in two lists."""

    def __init__(self):
        self.data = bytearray(rng.randrange(2000, 4000))


class Scattered(Shared):
    """An item in two variables of its own."""


def waits(thing):
    yield thing


listed = [Shared() for _ in range(rng.randrange(60, 200))]
again = list(listed)
scattered = [Scattered() for _ in range(rng.randrange(60, 200))]
for number, one in enumerate(scattered):
    globals()[f"first_{number}"] = globals()[f"second_{number}"] = one
generators = []
for hot in (min(listed, key=id), min(scattered, key=id)):
    for _ in range(5000):
        generator = waits(hot)
        next(generator)
        generators.append(generator)
del scattered, number, one, hot, generator
os.read(0, 1)
