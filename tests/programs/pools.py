"""Fill and empty pymalloc's pools at random, print sys._debugmallocstats(), pause: pools.py SEED OBJECTS.

Nothing is allocated between the figures and the pause: both calls take no arguments and were looked up before. Plain
enough for Python 2.7, which has no such function and prints nothing.
"""

import gc
import random
import signal
import sys


def one(generator):
    """Return an object of a random kind and size; most are small, some beyond pymalloc's 512 bytes."""
    size = generator.randrange(generator.choice((16, 64, 200, 480, 700)))
    kind = generator.randrange(7)
    if kind == 0:
        return "x" * (size + 2)
    if kind == 1:
        return bytes(bytearray(size + 2))
    if kind == 2:
        return (None,) * (size // 8 + 1)
    if kind == 3:
        return [None] * (size // 8)
    if kind == 4:
        return generator.random()
    if kind == 5:
        return dict.fromkeys(range(size // 16))
    return bytearray(size)


def churn(generator, count):
    """Return the objects left after clustered and scattered deletions, in full, partly used and empty pools."""
    held = [one(generator) for _ in range(count)]
    for _ in range(generator.randrange(1, 6)):
        first = generator.randrange(len(held))
        last = min(len(held), first + generator.randrange(1, count // 2))
        held[first:last] = [None] * (last - first)
        for _ in range(generator.randrange(count // 4)):
            held[generator.randrange(len(held))] = None
        held.extend(one(generator) for _ in range(generator.randrange(count // 8)))
    return held


def tell(stats=getattr(sys, "_debugmallocstats", gc.isenabled), pause=signal.pause):
    """Print the figures, then stop, without allocating a block in between."""
    stats()
    pause()


def main():
    """Read the arguments, churn, print."""
    generator = random.Random(int(sys.argv[1]))
    kept = churn(generator, int(sys.argv[2]))
    gc.disable()
    tell()
    del kept


if __name__ == "__main__":
    main()
