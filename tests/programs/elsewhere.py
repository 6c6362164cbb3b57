"""elsewhere SEED COUNT TABLE [damage]

Makes objects of many types whose blocks or buffers are larger than pymalloc's largest, and writes the interpreter's
figures: TABLE is {"types": {type: [count, bytes]}, "buffers": [[address of the object, address, bytes]], "damaged":
bytes}, the bytes by sys.getsizeof(). With "damage" a byte array finally claims a quarter of all addresses; "damaged" is
its real size.
"""

import array
import collections
import ctypes
import gc
import json
import random
import signal
import sys

seed, count, table = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
rng = random.Random(seed)


class Plain:
    """A class with attributes."""


class Named(str):
    """A str with attributes."""


class Rows(list):
    """A list with attributes."""


class Pairs(dict):
    """A subclass of dict."""


class Numbers(array.array):
    """A subclass of array."""


class Text(bytes):
    """A subclass of bytes."""


class Bag(set):
    """A subclass of set."""


class Row(tuple):
    """A subclass of tuple."""


class Large(int):
    """A subclass of int."""


class Data(bytearray):
    """A subclass of bytearray."""


class Chain(collections.deque):
    """A subclass of deque."""


def some(largest):
    return rng.randrange(largest)


def resized(made):
    """Grow the object by single steps, so that it has room beyond the last item."""
    for _ in range(some(40)):
        made.append(0)
    return made


def grown(made, keys):
    for key in range(keys):
        made[str(key)] = key
    return made


MAKERS = {
    "Rows": lambda: resized(Rows([None] * some(2000))),
    "Pairs": lambda: grown(Pairs(), some(500)),
    "Numbers": lambda: resized(Numbers("d", bytes(8 * some(2000)))),
    "Text": lambda: Text(bytes(some(5000))),
    "Bag": lambda: Bag(range(some(900))),
    "Row": lambda: Row(range(some(400))),
    "Large": lambda: Large(1 << some(40000)),
    "Data": lambda: resized(Data(some(9000))),
    "Named": lambda: Named(rng.choice("x\u0101\U00010000") * some(4000)),
    "Chain": lambda: Chain(range(some(900))),
    "Plain": Plain,
}
held = {name: [make() for _ in range(count)] for name, make in MAKERS.items()}
# Objects that only others lead to: no list of the collector has them.
kept = tuple(bytes(2000 + place) for place in range(count))
gc.collect()
sums = {"__main__." + name: [len(made), sum(map(sys.getsizeof, made))] for name, made in held.items()}
sums["tuple"] = [1, sys.getsizeof(kept)]
numbers = [[id(one), one.buffer_info()[0], one.itemsize * len(one)] for one in held["Numbers"]]
with open(table, "w") as file:
    json.dump({"types": sums, "buffers": numbers, "damaged": held["Data"][0].__alloc__()}, file)
if sys.argv[4:] == ["damage"]:
    # ob_alloc, after the header and ob_size.
    field = ctypes.c_ssize_t.from_address(id(held["Data"][0]) + 24)
    field.value = 1 << 62
signal.pause()
