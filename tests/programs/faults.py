"""A Python program with one fault, or none: faults.py SEED FAULT.

It comes to rest when it reads standard input; at the first line it does what the advice says. At each rest it has printed
sys._debugmallocstats(). FAULT: idle (objects on free lists), healthy. Plain enough for Python 2.7, which prints nothing.
"""

import gc
import random
import sys


class Fault(object):
    """Nothing wrong: a few kinds of objects in a few containers."""

    def __init__(self, generator):
        """Make it."""
        count = generator.randrange(60000, 90000)
        self.words = {str(number): number * 1000003 for number in range(count)}
        self.rows = [(number, str(number + count)) for number in range(count)]
        self.texts = ["%d of %d" % (number, count) for number in range(count)]

    def mend(self):
        """Follow the advice."""
        gc.collect()


class Idle(Fault):
    """Tuples of every length that has a free list, on it: two thousand each, and some that no list takes."""

    def __init__(self, generator):
        """Make it."""
        lengths = [1 + number % 20 for number in range(2000 * 20 + generator.randrange(1000))]
        generator.shuffle(lengths)
        made = [(None,) * length for length in lengths]
        gc.collect()
        gc.disable()
        while made:
            made.pop()


FAULTS = {"healthy": Fault, "idle": Idle}


def rest(stats=getattr(sys, "_debugmallocstats", gc.isenabled)):
    """Print the figures and wait for a line."""
    stats()
    sys.stdin.readline()


def main():
    """Make the fault, rest, mend it, rest."""
    fault = FAULTS[sys.argv[2]](random.Random(int(sys.argv[1])))
    rest()
    fault.mend()
    rest()


if __name__ == "__main__":
    main()
