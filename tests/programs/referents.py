"""A process that writes the references of its objects, as the collector visits them.

Usage: referents.py SEED OBJECTS TRUTH. Writes a line for each of some objects of the collector: its id, and the ids of
its referents. All of them still exist when it waits.
"""

import gc
import os
import random
import sys

import references


def main():
    """Build, collect the references, write, wait."""
    rng, count = random.Random(int(sys.argv[1])), int(sys.argv[2])
    references.few = [references.started(object()) for _ in range(count // 10)]
    references.others = [references.closure(object(), [number]) for number in range(count // 10)]
    references.head = references.linked(count // 10)
    references.first = references.ring(count // 10)
    gc.collect()
    gc.disable()
    everything = gc.get_objects()
    with open(sys.argv[3], "w") as file:
        for one in rng.sample(everything, min(len(everything), count)):
            file.write(" ".join(map(str, map(id, [one] + gc.get_referents(one)))) + "\n")
    del file
    os.read(0, 1)
    return everything


if __name__ == "__main__":
    main()
