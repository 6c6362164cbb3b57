"""Resize tables without end: resizing.py SEED. During a resize, only a register may have a table's address."""

from __future__ import annotations

import random
import sys


def main() -> None:
    """Fill dicts and sets, so that most of the time is spent moving their entries; never return."""
    rng = random.Random(int(sys.argv[1]))
    keys = [rng.getrandbits(60) for _ in range(1 << 17)]
    while True:
        table = dict.fromkeys(keys)
        while len(table) < 1 << 18:
            table[len(table)] = table
        kept = set(keys)
        for _ in range(40):
            # A copy of a table with holes is made by inserting one item after the other.
            kept.discard(rng.choice(keys))
            kept = kept | {rng.getrandbits(60)}
            del table[rng.choice(list(table))]
            table = dict(table)
        table.clear()


if __name__ == "__main__":
    main()
