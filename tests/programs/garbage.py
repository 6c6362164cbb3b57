"""A process with uncollected cycles, and with lost blocks of malloc.

Usage: garbage.py SEED TRUTH. Rests before it plants and afterwards. Writes three lines to TRUTH: ids of objects,
addresses that it lost itself, and addresses that an ended thread lost; it keeps addresses with all bits turned.
"""

import ctypes
import gc
import os
import random
import signal
import sys
import threading

# A library is a cycle of its own when it is deleted.
library = ctypes.CDLL(None)


class Plain(object):  # noqa: UP004
    """A class with attributes."""


class Slotted(object):  # noqa: UP004
    """A class with slots."""

    __slots__ = ("one", "two")


def bytes_of(rng):
    """Return a unique value."""
    return bytes(bytearray(rng.randrange(256) for _ in range(rng.randrange(40, 700))))


def cycle(rng):
    """Return the ids of all objects of a new cycle without other references."""
    parts = []
    for _ in range(rng.randrange(1, 6)):
        kind = rng.randrange(4)
        if kind == 0:
            made = Slotted()
            made.two = bytes_of(rng)
            parts += [(made, lambda it, to: setattr(it, "one", to)), (made.two, None)]
        elif kind == 1:
            value = bytes_of(rng)
            parts += [([value] * rng.randrange(1, 4), lambda it, to: it.append(to)), (value, None)]
        elif kind == 2:
            # Python 2 has many floats in one block, but not many complex numbers.
            made = {complex(rng.random()): bytes_of(rng)}
            parts += [(made, lambda it, to: it.__setitem__(0, to))]
            parts += [(one, None) for pair in made.items() for one in pair]
        else:
            made = Plain()
            made.value = bytes_of(rng)
            parts += [(made, lambda it, to: setattr(it, "next", to)), (made.value, None)]
            # Since 3.11 there is no dict before it is requested.
            if sys.version_info < (3, 11):
                parts.append((made.__dict__, None))
    joints = [part for part in parts if part[1] is not None]
    for (one, join), (other, _) in zip(joints, joints[1:] + joints[:1]):
        join(one, other)
    return [id(one) for one, _ in parts]


def lost(rng):
    """Return the addresses, with all bits inverted, of blocks that will never be freed."""
    library.malloc.restype = ctypes.c_size_t
    library.memset.argtypes = [ctypes.c_size_t, ctypes.c_int, ctypes.c_size_t]
    found = []
    for _ in range(rng.randrange(20, 200)):
        size = rng.randrange(600, 40000)
        address = library.malloc(ctypes.c_size_t(size))
        library.memset(address, 0, size)
        found.append(~address)
    return found


def in_thread(function):
    """Return the result of the function in a thread that ends."""
    found = []
    thread = threading.Thread(target=lambda: found.extend(function()))
    thread.start()
    thread.join()
    return found


def main():
    """Plant, write, wait."""
    rng = random.Random(int(sys.argv[1]))
    # The first thread leaves a stack for the second one.
    in_thread(list)
    gc.collect()
    gc.disable()
    alive = [cycle for _ in range(10)]
    os.read(0, 1)
    objects = [one for _ in range(rng.randrange(50, 500)) for one in cycle(rng)]
    here, there = lost(rng), in_thread(lambda: lost(rng))
    with open(sys.argv[2], "w") as file:
        lines = objects, [~address for address in here], [~address for address in there]
        file.write("\n".join(" ".join(map(str, numbers)) for numbers in lines))
    del file, lines
    # os.read() of 3.15 has its own block while it waits.
    signal.pause()
    return alive


if __name__ == "__main__":
    main()
