"""Leave a few objects in each of many arenas, and drop the requested ones.

Usage: pinned_arenas.py SEED KEPT TRUTH [SPARE].

TRUTH is a JSON list of the addresses of the remaining objects. Each line on standard input is the path of a JSON list
of addresses: these are dropped, and the cyclic garbage collector runs. With SPARE, smaller objects are made between
them, one beside so many; the line "spare" drops these, a second later.
"""

from __future__ import annotations

import gc
import json
import random
import sys
import time


class Spare:
    """Objects in blocks of another size."""

    __slots__ = tuple(f"slot{number}" for number in range(20))


class Left:
    """An object with slots only: a block of a size that little else has."""

    __slots__ = tuple(f"slot{number}" for number in range(40))


def main() -> None:
    """Make the objects, delete nearly all, write the truth, then follow the requests."""
    generator = random.Random(int(sys.argv[1]))
    kept_of = int(sys.argv[2])
    made, spare, every = [], [], int(sys.argv[4]) if len(sys.argv) > 4 else 0
    for number in range(150_000):
        made.append(Left())
        if every and number % every == 0:
            spare.append(Spare())
    kept = {id(thing): thing for thing in made if generator.randrange(kept_of) == 0}
    del made
    gc.collect()
    with open(sys.argv[3], "w") as file:
        json.dump(sorted(kept), file)
    for line in sys.stdin:
        if line.strip() == "spare":
            # mimalloc waits for 10 ms, and one more for each page that was freed before.
            time.sleep(1)
            del spare
            continue
        with open(line.strip()) as file:
            for address in json.load(file):
                del kept[address]
        gc.collect()


if __name__ == "__main__":
    main()
