"""Python objects that are too large for pymalloc, among blocks that only look like objects.

Usage: large.py SEED TABLE. TABLE is JSON: {type's name: [address of the object's block]}, of all live objects of two
classes that only this program has, and of some bytes objects. Then it pauses.
"""

from __future__ import annotations

import json
import random
import signal
import sys
from array import array

GC_HEAD = 16
HAVE_GC = 1 << 14


class Blob(bytes):
    """A bytes object with a garbage collector's header before it, as every instance of a class has."""

    __slots__ = ()


class Row(tuple):
    """A tuple, which the collector tracks anyway."""

    __slots__ = ()


def block(found: object) -> int:
    """Return the start of an object's block."""
    return id(found) - (GC_HEAD if type(found).__flags__ & HAVE_GC else 0)


def main() -> None:
    """Make objects, free some, and keep decoys: buffers with a count and a type at the places of an object's."""
    rng = random.Random(int(sys.argv[1]))
    raw = [rng.randbytes(rng.randrange(600, 9000)) for _ in range(300)]
    blobs = [Blob(plain) for plain in raw] + [Blob(bytes(rng.randrange(200_000, 900_000))) for _ in range(5)]
    rows = [Row(range(rng.randrange(80, 900))) for _ in range(300)]
    decoys = [array("Q", [0, 0, 1, id(kind), 64, 0] * rng.randrange(20, 90)) for kind in (Blob, Row) * 20]
    for objects in (raw, blobs, rows):
        rng.shuffle(objects)
        del objects[rng.randrange(50, 250) :]
    table = {"__main__.Blob": blobs, "__main__.Row": rows, "bytes": raw}
    with open(sys.argv[2], "w", encoding="ascii") as file:
        json.dump({name: [block(found) for found in objects] for name, objects in table.items()}, file)
    assert decoys
    signal.pause()


main()
