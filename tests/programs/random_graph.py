"""A process with random graphs of objects, and the objects that each of some objects retains, found by leaving it out.

Usage: random_graph.py SEED SIZES ASKED TRUTH. SIZES: how many objects each graph has, with commas. Writes [[id, ids of
the objects that only it keeps]] to TRUTH, for at most ASKED objects of each graph.
"""

import gc
import json
import os
import random
import sys


class Slotted(object):  # noqa: UP004
    """A class with two references."""

    __slots__ = ("one", "two")

    def __init__(self):
        self.one = self.two = None


def connect(kind, source, target, rng):
    """Let an object refer to another one."""
    if kind == 0:
        source.append(target)
    elif kind == 1:
        # Python 2 has many floats in one block, but not many complex numbers.
        source[complex(rng.random())] = target
    else:
        setattr(source, rng.choice(("one", "two")), target)


def build(rng, count, kinds):
    """Return the objects of a random graph."""
    made = [([], {}, Slotted())[kind] if kind < 2 else Slotted() for kind in kinds]
    for place in range(1, count):
        # Mostly trees, so that some objects are retained.
        near = max(0, place - 1 - int(rng.expovariate(0.05)))
        connect(kinds[near], made[near], made[place], rng)
    for _ in range(rng.randrange(count)):
        source, target = rng.randrange(count), rng.randrange(count)
        connect(kinds[source], made[source], made[target], rng)
    return made


def targets(kind, thing, numbers):
    """Return the numbers of an object's references."""
    found = thing if kind == 0 else thing.values() if kind == 1 else (thing.one, thing.two)
    return [numbers[id(one)] for one in found if id(one) in numbers]


def reached(rows, roots, without):
    """Return the numbers that are reachable from the roots without the node ``without``."""
    seen = {root for root in roots if root != without}
    open_ = list(seen)
    while open_:
        for target in rows[open_.pop()]:
            if target != without and target not in seen:
                seen.add(target)
                open_.append(target)
    return seen


def asked_of(rng, count, most):
    """Return the roots of a new graph, and [id, ids of the objects that only it keeps] for some of its objects."""
    kinds = [rng.randrange(3) for _ in range(count)]
    made = build(rng, count, kinds)
    numbers = {id(thing): place for place, thing in enumerate(made)}
    rows = [targets(kind, thing, numbers) for kind, thing in zip(kinds, made)]
    roots = sorted({0} | {rng.randrange(count) for _ in range(5)})
    ids = [id(thing) for thing in made]
    # Objects that the roots do not reach are garbage.
    whole = reached(rows, roots, None)
    some = rng.sample(sorted(whole), min(most, len(whole)))
    truth = [[ids[one], [ids[other] for other in whole - reached(rows, roots, one)]] for one in some]
    return [made[root] for root in roots], truth


def main():
    """Build, compute, wait."""
    rng, sizes, most = random.Random(int(sys.argv[1])), map(int, sys.argv[2].split(",")), int(sys.argv[3])
    globals()["held"], truth = [], []
    for size in sizes:
        roots, found = asked_of(rng, size, most)
        globals()["held"] += roots
        truth += found
    gc.collect()
    with open(sys.argv[4], "w") as file:
        json.dump(truth, file)
    del file, truth, roots, found
    os.read(0, 1)


if __name__ == "__main__":
    main()
