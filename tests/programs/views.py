"""Short slices of long arrays: views.py SEED FILE writes JSON of the arrays; at a line on standard input it copies
them."""

import json
import random
import sys

import numpy as np

generator = random.Random(int(sys.argv[1]))
rows = generator.randrange(100_000, 200_000)
heads = [np.full(rows, number, float)[: generator.randrange(1, 20)] for number in range(1, 13)]
mixed = [(whole[:3], memoryview(whole)[4:9]) for whole in (np.full(rows, number, "f4") for number in range(5))]
held = np.full(rows, 7.0)
short = held[:5]
truth = {
    "alone": {id(one.base): one.nbytes for one in heads},
    "two": {id(one.base): one.nbytes + view.nbytes for one, view in mixed},
    "held": [id(held)],
    "kept": sum(one.base.nbytes for one in heads) + sum(one.base.nbytes for one, _view in mixed),
    "shown": sum(one.nbytes for one in heads) + sum(one.nbytes + view.nbytes for one, view in mixed),
}
with open(sys.argv[2], "w") as out:
    json.dump(truth, out)
sys.stdin.readline()
heads = [one.copy() for one in heads]
mixed = [(one.copy(), bytes(view)) for one, view in mixed]
sys.stdin.readline()
