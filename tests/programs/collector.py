"""Set the garbage collector at random, say how it stands, rest: collector.py SEED TRUTH.

TRUTH is JSON: {"enabled": …, "thresholds": […], "counts": […], "frozen": …}; the youngest count goes on while
it is written.
"""

import gc
import json
import random
import signal
import sys


def main():
    """Set it, write the truth, pause."""
    generator = random.Random(int(sys.argv[1]))
    gc.set_threshold(generator.randrange(3) * 900, 1 + generator.randrange(40), 1 + generator.randrange(40))
    if generator.random() < 0.5:
        gc.freeze()
    if generator.random() < 0.5:
        gc.disable()
    held = [[number] for number in range(generator.randrange(20000))]
    truth = {"enabled": gc.isenabled(), "thresholds": gc.get_threshold(), "counts": gc.get_count()}
    truth["frozen"] = gc.get_freeze_count() > 0
    with open(sys.argv[2], "w") as file:
        file.write(json.dumps(truth))
    signal.pause()
    del held


if __name__ == "__main__":
    main()
