"""Keep some hundred thousand small blocks by a few holders, which share some of them, and rest.

    holders_of_many.py COUNT SEED

COUNT: how many blocks there are, about. Any CPython 3 runs it."""

import os
import random
import sys

count, rng = int(sys.argv[1]), random.Random(int(sys.argv[2]))


class Record:
    table = []

    def __init__(self, number):
        self.number, self.body = number, os.urandom(rng.randrange(20, 200))


def block():
    return os.urandom(rng.randrange(20, 400))


rows = [block() for _ in range(count // 4)]
by_name = {f"name {n}": [n * 1000003, block()] for n in range(count // 10)}
records = [Record(n) for n in range(count // 10)]
Record.table += [(block(), block()) for _ in range(count // 20)]
# Objects with two holders, neither of which keeps them alone.
shared = rng.sample(rows, len(rows) // 10)
cycle = [block() for _ in range(1000)]
cycle.append(cycle)
del cycle
os.read(0, 1)
