"""Blocks of malloc whose addresses are only in arrays: numbered.py SEED COUNT TABLE; the table names the kind."""

from __future__ import annotations

import ctypes
import random
import signal
import sys

import numpy

SIZES = range(2000, 4000)


def blocks(rng: random.Random, count: int) -> list[int]:
    """Return the complements of the addresses of ``count`` blocks."""
    malloc = ctypes.CDLL(None).malloc
    malloc.restype, malloc.argtypes = ctypes.c_size_t, [ctypes.c_size_t]
    return [~malloc(rng.choice(SIZES)) for _ in range(count)]


def main() -> None:
    """Fill the arrays, write the table, and wait."""
    rng, count = random.Random(int(sys.argv[1])), int(sys.argv[2])
    numbers, structs = blocks(rng, count), blocks(rng, count)
    # malloc may leave room at the end of an array.
    held = numpy.zeros(count + 64, rng.choice(["i8", "u8", "M8[s]"]))
    raw = numpy.zeros(count + 64, [("next", "V8")])
    numpy.invert(numpy.array(numbers), out=held.view("i8")[:count])
    numpy.invert(numpy.array(structs), out=raw.view("i8")[:count])
    with open(sys.argv[3], "w", encoding="utf-8") as table:
        for kind, all_of in (("number", numbers), ("struct", structs)):
            table.writelines(f"{kind} {block}\n" for block in all_of)
    print("ready", flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
