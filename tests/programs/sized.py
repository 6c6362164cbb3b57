"""Hold objects with a known size, then delete them: sized.py SEED COUNT TRUTH.

TRUTH is JSON: {block size: [objects, bytes requested]} by sys.getsizeof(), of the objects that are held at the first
stop and gone at the second. A stop is a read of standard input.
"""

from __future__ import annotations

import json
import os
import random
import sys


class Plain:
    """A class with attributes in a dict that was never requested."""


class Slotted:
    """A class with three slots."""

    __slots__ = ("a", "b", "c")


def one(generator: random.Random) -> object:
    """Return an object of random kind and size that owns no block and shares none."""
    size = generator.randrange(2, 430)
    kind = generator.randrange(9)
    if kind < 3:
        return "".join(generator.choices(("ab", "éa", "ж", "😀")[generator.randrange(4)], k=size // (kind + 1) + 2))
    if kind == 3:
        return bytes(size)
    if kind == 4:
        return (None,) * (size // 8 + 2)
    if kind == 5:
        # Sums and products may have room for a digit that they do not need; this has not.
        return int(generator.choice("+-") + "f" * (size + 15), 16)
    if kind == 6:
        return generator.random()
    # 3.13 does not count the values after an object.
    return Plain() if kind == 7 and sys.version_info < (3, 13) else Slotted()


def main() -> None:
    """Make the objects, write the truth, stop, delete them, stop."""
    generator = random.Random(int(sys.argv[1]))
    made = [one(generator) for _ in range(int(sys.argv[2]))]
    kept = list({id(thing): thing for thing in made}.values())
    del made
    truth: dict[int, list[int]] = {}
    for thing in kept:
        asked = sys.getsizeof(thing)
        if asked <= 512:
            row = truth.setdefault(-(-asked // 16) * 16, [0, 0])
            row[0] += 1
            row[1] += asked
    with open(sys.argv[3], "w") as file:
        json.dump(truth, file)
    # The last one is deleted with the loop's own name for it.
    del thing, file, row, truth, asked
    os.read(0, 1)
    kept.clear()
    os.read(0, 1)


if __name__ == "__main__":
    main()
