"""Holders of known sizes: shared_out.py SEED TRUTH. Writes {path: bytes of the objects that only it leads to} to TRUTH.

A package, variables of this module and of the package's, an attribute deep in an instance, a local variable of a
running frame, and items that a list, a tuple and a set share.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import types


class Item:
    """A numerous item."""

    __slots__ = ("number", "text")

    def __init__(self, rng: random.Random) -> None:
        self.number = rng.getrandbits(200)
        self.text = f"{rng.getrandbits(100):x}"


class Service:
    """An object with many items."""

    def __init__(self, items: list[Item]) -> None:
        self.cache = {"known": dict(enumerate(items))}


CODE = "def work_{0}(one, two={0}):\n    'text of {0}'\n    return [one + two + {0}, 'constant {0}']\n"


def items(rng: random.Random) -> list[Item]:
    """Return some thousands."""
    return [Item(rng) for _ in range(rng.randrange(8000, 16000))]


def owned(found: list[Item], *others: object) -> int:
    """Return the bytes of items and their contents, and of other objects."""
    own = sum(sys.getsizeof(one) + sys.getsizeof(one.number) + sys.getsizeof(one.text) for one in found)
    return own + sum(map(sys.getsizeof, others))


def package(rng: random.Random) -> types.ModuleType:
    """Return a module that is a package, with thousands of functions and a table."""
    made = types.ModuleType("warehouse")
    made.__file__ = "/srv/warehouse/__init__.py"
    exec("".join(CODE.format(number) for number in range(rng.randrange(3000, 4000))), made.__dict__)
    made.stock = items(rng)  # type: ignore[attr-defined]
    sys.modules["warehouse"] = made
    return made


def main() -> None:
    """Make all objects, write the truth, and wait."""
    rng = random.Random(int(sys.argv[1]))
    local, known = items(rng), service.cache["known"]
    truth = {
        "sys.modules['warehouse'].stock": owned(warehouse.stock, warehouse.stock),
        # A tuple contains its items, a list has them in a separate block: one step more.
        "sys.modules['__main__'].again": owned(listed, again),
        "sys.modules['__main__'].service.cache['known']": owned(list(known.values()), known, *known),
        "local": owned(local, local),
        "shared": len(listed),
    }
    with open(sys.argv[2], "w") as file:
        json.dump(truth, file)
    signal.pause()
    del local


start = random.Random(int(sys.argv[1]) + 1)
warehouse = package(start)
listed = items(start)
again = tuple(listed)
both = set(listed)
service = Service(items(start))
main()
