"""Set the garbage collector at random, print its state, rest: collector.py SEED TRUTH.

TRUTH is JSON: {"enabled": ..., "thresholds": [...], "counts": [...], "frozen": ...}; the youngest count continues while
it is written, and it is written again after a collection in between.
"""

import gc
import json
import random
import signal
import sys


def write_truth(path):
    """Write the truth; return whether it still holds afterwards."""
    truth = {"enabled": gc.isenabled(), "thresholds": gc.get_threshold(), "counts": gc.get_count()}
    truth["frozen"] = gc.get_freeze_count() > 0
    with open(path, "w") as file:
        file.write(json.dumps(truth))
    return gc.get_count()[1:] == truth["counts"][1:]


def main():
    """Set it, write the truth, pause."""
    generator = random.Random(int(sys.argv[1]))
    gc.set_threshold(generator.randrange(3) * 900, 1 + generator.randrange(40), 1 + generator.randrange(40))
    if generator.random() < 0.5:
        gc.freeze()
    if generator.random() < 0.5:
        gc.disable()
    held = [[number] for number in range(generator.randrange(20000))]
    while not write_truth(sys.argv[2]):
        pass
    signal.pause()
    del held


if __name__ == "__main__":
    main()
