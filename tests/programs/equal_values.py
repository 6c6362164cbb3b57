"""Hold random values many times over, and instances with attributes; write its own counts to FILE, and rest: SEED
COUNT FILE. Plain enough for Python 3.6."""

import json
import os
import random
import sys

SEED, COUNT, FILE = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
rng = random.Random(SEED)
MARK = f"{rng.getrandbits(32):08x}"
LETTERS = ["ab", "\xe4\xf6", "\u0416\u4e00", "\U0001f40d\U0001f600"]


class Plain:
    """A class with attributes in a dict, or in inline values."""


class Slotted:
    """A class with a slot of its own and one of its base."""

    __slots__ = ("other", "group")


class Below(Slotted):
    """A class with a dict and inherited slots."""


def made(kind):
    """Return a function that makes a new object at each call, always with the same value."""
    number = rng.getrandbits(70) + 2**71
    letters, times = rng.choice(LETTERS), rng.randrange(3, rng.choice([30, 3000]))
    if kind == "str":
        return lambda: "".join([MARK, f"{number:x}", letters * times])
    if kind == "bytes":
        return lambda: b"".join([MARK.encode(), f"{number:x}".encode(), b"z" * times])
    if kind == "int":
        sign, power = rng.choice([1, -1]), rng.randrange(2, 90)
        return lambda: sign * (number**power + int("0"))
    if kind == "float":
        return lambda: float(f"{number}.5")
    if kind == "complex":
        return lambda: complex(f"{number}+2.5j")
    parts = [made(rng.choice(["str", "bytes", "int", "float"])) for _ in range(rng.randrange(1, 4))]
    extra = rng.choice([(), (None,), (True, None), (1, (2, "x"))])
    return lambda: tuple([part() for part in parts] + [tuple(extra)])


held, truth = [], []
for _ in range(COUNT):
    kind = rng.choice(["str", "bytes", "int", "float", "complex", "tuple"])
    make, copies = made(kind), rng.choice([1, 1, 2, 3, rng.randrange(2, 60)])
    objects = [make() for _ in range(copies)]
    if len({id(one) for one in objects}) == copies:
        truth.append([kind, copies, sorted(id(one) for one in objects)])
    held.append(objects)
groups = {}
values = [made("str") for _ in range(4)] + [made("int") for _ in range(3)]
values += [lambda: None, lambda: True, lambda: (1, "x")]
for kind in (Plain, Slotted, Below):
    counts = [0] * (len(values) + 1)
    for _ in range(rng.randrange(1, 40 * COUNT)):
        one, place = kind(), rng.randrange(len(values) + 1)
        if rng.random() < 0.5:
            one.other = place
        if place < len(values):
            one.group = values[place]()
        if kind is not Slotted and rng.random() < 0.2:
            one.__dict__["more"] = 3
        counts[place] += 1
        held.append(one)
    groups[kind.__name__] = counts[:-1], counts[-1]
lists = [[None] * rng.randrange(0, 30) for _ in range(rng.randrange(1, 200))]
for one in lists:
    for _ in range(rng.randrange(0, 20)):
        one.append(1)
arrays = [bytearray(rng.randrange(0, 90)) for _ in range(rng.randrange(1, 90))]
for one in arrays:
    one.extend(b"x" * rng.randrange(0, 9))
sets = [set(range(rng.randrange(0, 300))) for _ in range(rng.randrange(1, 90))]
lengths = [len(one) for one in arrays]
with open(FILE, "w") as file:
    shown = [repr(one()) for one in values]
    empty_list = sys.getsizeof([])
    # A byte 0 after the data; since 3.15 all of a bytes object except its data.
    own = sys.getsizeof(b"") if sys.version_info >= (3, 15) else 1
    truth = {
        "values": truth,
        "groups": groups,
        "texts": shown,
        "lists": [[id(one), len(one), (sys.getsizeof(one) - empty_list) // 8] for one in lists],
        "arrays": [[len(one), max(one.__alloc__() - own, 0)] for one in arrays],
        "lengths": lengths,
    }
    json.dump(truth, file)
os.read(0, 1)
