"""Fill arenas with objects of one class and leave one in each few thousand: pinned.py SEED TRUTH.

TRUTH is a JSON list of the addresses of those that are left.
"""

from __future__ import annotations

import json
import random
import signal
import sys


class Left:
    """An object with slots only: a block of a size that little else has."""

    __slots__ = tuple(f"slot{number}" for number in range(48))


def main() -> None:
    """Make the objects, delete nearly all, write the truth, pause."""
    generator = random.Random(int(sys.argv[1]))
    made = [Left() for _ in range(20_000)]
    kept = [thing for thing in made if generator.randrange(1500) == 0]
    del made
    with open(sys.argv[2], "w") as file:
        json.dump([id(thing) for thing in kept], file)
    signal.pause()
    del kept


if __name__ == "__main__":
    main()
