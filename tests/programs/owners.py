"""Hold objects that own blocks, and write a table of them: owners.py SEED COUNT TRUTH.

TRUTH is JSON: ``sizes`` is {type: [count, bytes requested for each owned block]}, by ``__sizeof__`` of the types;
``owners`` is [address of a block, address of its owner] for each, by the types' own methods or by their fields. A child
writes it. It includes numpy's arrays if numpy is installed.
"""

from __future__ import annotations

import array
import collections
import ctypes
import gc
import json
import os
import random
import sys
from typing import Any, Callable

try:
    import numpy
except ImportError:
    numpy = None  # type: ignore[assignment]

BLOCK = 66 * 8
NODE = 32


class Deque(collections.deque):  # type: ignore[type-arg]
    """A deque: linked blocks of 64 items."""


class Ordered(collections.OrderedDict):  # type: ignore[type-arg]
    """An ordered dict: keys, a table of nodes, nodes."""


class Array(array.array):  # type: ignore[type-arg]
    """An array with its items."""


class Bytes(bytearray):
    """A byte array with its data."""


class List(list):  # type: ignore[type-arg]
    """A list with its items."""


class Dict(dict):  # type: ignore[type-arg]
    """A dict with its keys."""


class Set(set):  # type: ignore[type-arg]
    """A set with a table."""


class Wide(ctypes.Structure):
    """A structure larger than the 16 bytes in the object itself."""

    _fields_ = [("data", ctypes.c_char * 700)]


def word(address: int) -> int:
    """Return the word at an address of this process."""
    return ctypes.c_size_t.from_address(address).value


def rest(thing: Any) -> int:
    """Return the bytes that ``__sizeof__`` counts beyond the object's own fields."""
    return int(thing.__sizeof__()) - int(type(thing).__basicsize__)


def of_deque(thing: Any) -> dict[int, int]:
    """Return {address: bytes} of the blocks of a deque, from the left one on."""
    blocks, at = {}, word(id(thing) + 24)
    for _ in range(rest(thing) // BLOCK):
        blocks[at] = BLOCK
        at = word(at + BLOCK - 8)
    return blocks


def of_ordered(thing: Any) -> dict[int, int]:
    """Return {address: bytes} of the blocks of an OrderedDict: keys, table and nodes."""
    keys = dict.__sizeof__(thing) - type(thing).__basicsize__
    blocks = {word(id(thing) + 32): keys, word(id(thing) + 64): rest(thing) - keys - NODE * len(thing)}
    at = word(id(thing) + 48)
    for _ in range(len(thing)):
        blocks[at] = NODE
        at = word(at + 16)
    return blocks


def at_offset(offset: int) -> Callable[[Any], dict[int, int]]:
    """Return a function for types with one block, whose address is at this offset."""
    return lambda thing: {word(id(thing) + offset): rest(thing)} if rest(thing) else {}


def of_wide(thing: Any) -> dict[int, int]:
    """Return the block of a ctypes structure."""
    return {ctypes.addressof(thing): ctypes.sizeof(thing)}


def of_ndarray(thing: Any) -> dict[int, int]:
    """Return data, and dimensions with strides, of an ndarray that owns its data."""
    return {thing.ctypes.data: max(1, thing.nbytes), word(id(thing) + 32): 2 * 8 * thing.ndim}


def makers(rng: random.Random) -> dict[type, tuple[Callable[[], Any], Callable[[Any], dict[int, int]]]]:
    """Return for each type a function that makes one, and a function that returns its blocks."""
    size = rng.randrange
    found: dict[type, tuple[Callable[[], Any], Callable[[Any], dict[int, int]]]] = {
        Deque: (lambda: Deque(range(size(600))), of_deque),
        Ordered: (lambda: Ordered.fromkeys(range(1, 1 + size(1, 60))), of_ordered),
        Array: (lambda: Array("d", bytes(8 * size(400))), at_offset(24)),
        Bytes: (lambda: Bytes(size(3000)), at_offset(56 if sys.version_info >= (3, 15) else 32)),
        List: (lambda: List(range(size(1, 300))), at_offset(24)),
        Dict: (lambda: Dict.fromkeys(range(size(1, 300))), at_offset(32)),
        Set: (lambda: Set(range(size(6, 300))), at_offset(40)),
        Wide: (Wide, of_wide),
    }
    if numpy is not None:
        shapes: list[Callable[[], Any]] = [lambda: (size(300),), lambda: (size(20), size(20))]

        class Plain(numpy.ndarray):  # type: ignore[type-arg]
            """An array with data and dimensions."""

        Plain.__qualname__ = "Plain"
        found[Plain] = (lambda: Plain(rng.choice(shapes)()), of_ndarray)
    return found


def main() -> None:
    """Make the objects, write the truth, wait."""
    rng = random.Random(int(sys.argv[1]))
    kinds = makers(rng)
    held: dict[type, list[Any]] = {kind: [] for kind in kinds}
    for _ in range(int(sys.argv[2])):
        kind = rng.choice(list(kinds))
        held[kind].append(kinds[kind][0]())
        if rng.random() < 0.3:
            others = held[rng.choice(list(kinds))]
            if others:
                others.pop(rng.randrange(len(others)))
    gc.collect()
    gc.disable()
    if os.fork() == 0:
        owned = {kind: [kinds[kind][1](thing) for thing in things] for kind, things in held.items()}
        sizes = {
            f"__main__.{kind.__name__}": [len(rows), [size for row in rows for size in row.values()]]
            for kind, rows in owned.items()
        }
        owners = {at: id(thing) for kind, rows in owned.items() for thing, row in zip(held[kind], rows) for at in row}
        with open(sys.argv[3] + ".part", "w") as file:
            json.dump({"sizes": sizes, "owners": list(owners.items())}, file)
        os.rename(sys.argv[3] + ".part", sys.argv[3])
        os._exit(0)
    os.wait()
    os.read(0, 1)


if __name__ == "__main__":
    main()
