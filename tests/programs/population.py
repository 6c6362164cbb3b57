"""Hold known numbers of objects: population.py SEED MOST LARGEST TRUTH.

Stops twice, each time in a read of one byte from standard input: first with everything prepared and nothing made, then
with the population made. Between the two stops, exactly the populations come into being.
MOST bounds the number of objects of a type, LARGEST their sizes.
TRUTH is written by a child just before the second: {type: [count, bytes, buffers, chunks]}, where ``bytes`` and
``buffers`` are what malloc and pymalloc hand out for the objects and what they own, and ``chunks`` how many of these
blocks are malloc's, which may be 16 bytes larger (a rest too small to be a chunk of its own); and {type: addresses} for
the classes whose instances may own one block more (their attributes' values).
"""

from __future__ import annotations

import collections
import gc
import json
import os
import random
import sys
from typing import Any, Callable

Point = collections.namedtuple("Point", "x y z")


class Slots:
    """No dict, two slots."""

    __slots__ = ("left", "right")


class Plain:
    """A dict that does not exist until somebody asks: its values lie in a block of their own."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.other = None


class Mapping(dict):  # type: ignore[type-arg]
    """A dict subclass, with a dict of its own."""


class Text(str):
    """Not compact: its characters lie in a block of their own."""


class Number(float):
    """A float that no free list takes."""

    __slots__ = ()


class Raw(bytes):
    """Variable size; its dict slot lies behind the bytes."""


class Row(list):  # type: ignore[type-arg]
    """A list subclass without a dict."""

    __slots__ = ()


class Buffer(bytearray):
    """A bytearray subclass."""


class Outer:
    """Only holds the nested class."""

    class Inner:
        """Its qualified name has a dot."""

        __slots__ = ("weight",)


class Leaked:
    """Only in cycles that nothing reaches."""

    __slots__ = ("partner",)


def local_class() -> type:
    """Return a class whose qualified name has ``<locals>`` in it."""

    class Local:
        __slots__ = ()

    return Local


Local = local_class()
SIZES = (0, 1, 3, 7, 8, 20, 60, 64, 100, 400, 500, 513, 900, 3000, 20000)


def makers(generator: random.Random, largest: int) -> dict[type, Callable[[int], Any]]:
    """Return how one object of each type is made; the argument is its number."""
    sizes = [size for size in SIZES if size <= largest]

    def size() -> int:
        return generator.choice(sizes) + generator.randrange(16)

    def text() -> str:
        return generator.choice("xé語𝄞") * (size() + 2)

    return {
        Slots: lambda i: Slots(),
        Plain: Plain,
        Mapping: lambda i: Mapping.fromkeys(range(size() // 100)),
        Point: lambda i: Point(i % 200, None, None),
        Text: lambda i: Text(text()),
        Number: lambda i: Number(generator.random()),
        Raw: lambda i: Raw(size()),
        Row: lambda i: Row(bytes(size())),
        Buffer: lambda i: Buffer(size()),
        Outer.Inner: lambda i: Outer.Inner(),
        Local: lambda i: Local(),
        str: lambda i: text(),
        float: lambda i: generator.random(),
        bytes: lambda i: bytes(size() + 2),
        bytearray: lambda i: bytearray(size()),
        list: lambda i: [None] * size(),
        dict: lambda i: dict.fromkeys(range(size() // 100)),
        # Read 16 bytes too late, it looks like an instance of Plain; its blocks are as large and lie among theirs.
        tuple: lambda i: (Plain, None),
        set: lambda i: set(range(size() % 250 if largest > 100 else size() // 20)),
    }


def leak(pairs: int) -> None:
    """Leave ``pairs`` cycles of two that nothing reaches; the collector is off."""
    for _ in range(pairs):
        one, two = Leaked(), Leaked()
        one.partner, two.partner = two, one


def fill(holders: dict[type, list[Any]], make: dict[type, Callable[[int], Any]], pairs: int) -> None:
    """Put an object into each place of each holder, kinds mixed, so that they share pools."""
    for i in range(max(map(len, holders.values()))):
        for kind, holder in holders.items():
            if i < len(holder):
                holder[i] = make[kind](i % 250)
    leak(pairs)


def allocated(size: int) -> int:
    """Return what a request of ``size`` bytes takes: pymalloc's block, or beyond 512 bytes glibc's chunk."""
    return (size + 15) & ~15 if size <= 512 else max(32, (size + 8 + 15) & ~15)


def inside(thing: Any) -> int:
    """Return the bytes requested for an object itself, with what lies before it (a GC head, a dict's place).

    PyType_GenericAlloc, which makes the instances of classes, adds one item and rounds up to 8.
    """
    kind = type(thing)
    before = sys.getsizeof(thing) - int(thing.__sizeof__())
    if kind in (str, bytes, tuple):
        return sys.getsizeof(thing)
    items = (len(thing) + 1) * kind.__itemsize__ if kind.__itemsize__ else 0
    return before + (kind.__basicsize__ + items + 7 & ~7)


def outside(thing: Any) -> int:
    """Return the bytes requested for the block that an object owns, 0 if it has none."""
    if isinstance(thing, (list, dict, bytearray, set)):
        return int(thing.__sizeof__()) - type(thing).__basicsize__
    if isinstance(thing, Text):
        widest = max(map(ord, thing))
        return (len(thing) + 1) * (1 if widest < 256 else 2 if widest < 65536 else 4)
    return 0


def truth(holder: list[Any]) -> list[int]:
    """Return count, bytes, buffers and malloc's chunks of the objects of a holder."""
    own, owned = list(map(inside, holder)), [size for size in map(outside, holder) if size]
    chunks = sum(size > 512 for size in own + owned)
    return [len(holder), sum(map(allocated, own)), sum(map(allocated, owned)), chunks]


def name(kind: type) -> str:
    """Return module.qualname, without the module for builtins."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def managed(holders: dict[type, list[Any]]) -> dict[str, list[int]]:
    """Return the addresses of the instances of classes with Py_TPFLAGS_MANAGED_DICT."""
    return {name(kind): [id(thing) for thing in holder] for kind, holder in holders.items() if kind.__flags__ & 1 << 4}


def tell(holders: dict[type, list[Any]], pairs: int, path: str) -> None:
    """Write the truth in a child, whose own objects are not this process's."""
    child = os.fork()
    if child == 0:
        types = {name(kind): truth(holder) for kind, holder in holders.items()}
        types["__main__.Leaked"] = [2 * pairs, 2 * pairs * allocated(inside(Leaked())), 0, 0]
        with open(path + ".part", "w") as file:
            json.dump({"types": types, "managed": managed(holders)}, file)
        os.rename(path + ".part", path)
        os._exit(0)
    os.waitpid(child, 0)


def wait() -> None:
    """Read one byte from standard input: the parent's leave to go on."""
    os.read(0, 1)


def main() -> None:
    """Prepare, stop, make, stop."""
    generator = random.Random(int(sys.argv[1]))
    most, largest, path = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    make = makers(generator, largest)
    gc.collect()
    gc.disable()
    holders: dict[type, list[Any]] = {kind: [None] * generator.randrange(1, most) for kind in make}
    pairs = generator.randrange(1, most)
    fill({kind: [None] * 100 for kind in make}, make, 0)
    wait()
    fill(holders, make, pairs)
    tell(holders, pairs, path)
    wait()


if __name__ == "__main__":
    main()
