"""Keep a few of many objects and of many bytes in a structure of this module, then evaluate expressions:
held_apart.py SEED."""

import random
import sys

from references import answer


class Record(object):  # noqa: UP004
    """An object with slots only: a block of a size that little else has."""

    __slots__ = tuple("slot" + str(number) for number in range(48))


class Cache(object):  # noqa: UP004
    """A class with attributes."""


cache = Cache()


def main():
    """Delete nearly all objects between those that stay."""
    rng = random.Random(int(sys.argv[1]))
    made = [Record() for _ in range(60000)]
    cache.log = [record for record in made if rng.randrange(1500) == 0]
    del made
    buffers, cache.users = [], {}
    for number in range(300):
        buffers.append(b"x" * rng.randrange(20000, 100000))
        cache.users[number] = b"x" * rng.randrange(600, 3000)
    del buffers
    answer()


if __name__ == "__main__":
    main()
