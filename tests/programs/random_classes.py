"""A process with a random graph of objects of several classes, and the bytes that all objects of each keep together,
found by leaving them out.

Usage: random_classes.py SEED OBJECTS TRUTH. Writes {name of a class: ids of the objects that only its objects keep}
to TRUTH.
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


CLASSES = [type("Class" + str(number), (Slotted,), {"__slots__": ()}) for number in range(8)]


def build(rng, count):
    """Return the objects: mostly trees, so that some are retained, with some more references."""
    made = [rng.choice(CLASSES)() for _ in range(count)]
    for place in range(1, count):
        near = made[max(0, place - 1 - int(rng.expovariate(0.05)))]
        setattr(near, "two" if near.one is not None else "one", made[place])
    for _ in range(rng.randrange(count)):
        setattr(rng.choice(made), rng.choice(("one", "two")), rng.choice(made))
    return made


def reached(roots, without):
    """Return the ids of the objects that are reachable from some objects without those of a class."""
    seen, left = {}, [root for root in roots if type(root) is not without]
    while left:
        one = left.pop()
        if id(one) not in seen:
            seen[id(one)] = one
            left += [other for other in (one.one, one.two) if other is not None and type(other) is not without]
    return set(seen)


def truth_of(rng, count):
    """Return the roots of a new graph, and the objects that each class keeps."""
    made = build(rng, count)
    roots = [made[0]] + [rng.choice(made) for _ in range(5)]
    whole = reached(roots, None)
    return roots, {kind.__name__: sorted(whole - reached(roots, kind)) for kind in CLASSES}


def main():
    """Build, compute, wait."""
    globals()["held"], truth = truth_of(random.Random(int(sys.argv[1])), int(sys.argv[2]))
    gc.collect()
    with open(sys.argv[3], "w") as file:
        json.dump(truth, file)
    del file, truth
    os.read(0, 1)


if __name__ == "__main__":
    main()
