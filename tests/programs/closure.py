"""Hold objects of many kinds and write down every object that can be reached: closure.py SEED COUNT TRUTH.

TRUTH is written by a forked child (its own objects are not the parent's): one line ``address type`` for each object in
the closure of gc.get_objects() under gc.get_referents(). The parent then pauses.
"""

from __future__ import annotations

import array
import collections
import ctypes
import datetime
import decimal
import functools
import gc
import itertools
import os
import random
import re
import signal
import sys
import threading
import types
import weakref
from typing import Any, Callable

Pair = collections.namedtuple("Pair", "left right")


class Node:
    """A plain class with a dict."""

    def __init__(self, value: object) -> None:
        self.value = value

    def method(self) -> object:
        """Only here to be bound."""
        return self.value


class Slotted:
    """Slots and weak references."""

    __slots__ = ("value", "__weakref__")

    def __init__(self, value: object) -> None:
        self.value = value


class Failure(Exception):
    """An exception with a payload."""


class Counted(collections.OrderedDict):  # type: ignore[type-arg]
    """An ordered dict's subclass."""


def generate(value: int) -> Any:
    """A generator that stays suspended."""
    yield value
    yield value + 1


async def wait_for_it(value: int) -> int:
    """A coroutine that nobody awaits."""
    return value


def closure_over(value: object) -> Callable[[], object]:
    """Return a function with a cell."""
    return lambda: value


def suspended(i: int) -> object:
    """Return a generator that has begun."""
    generator = generate(i)
    next(generator)
    return generator


MAKERS: tuple[Callable[[int], object], ...] = (
    Node,
    Slotted,
    lambda i: Node(i).method,
    lambda i: Pair(str(i), float(i)),
    lambda i: Failure(str(i), i),
    lambda i: Counted({str(i): i, "b": (i,)}),
    lambda i: collections.OrderedDict(a=str(i), b=i),
    lambda i: collections.deque(range(i % 300)),
    lambda i: collections.defaultdict(list, {i: [str(i)]}),
    lambda i: collections.Counter(str(i * 7919)),
    lambda i: datetime.datetime(2000 + i % 30, 1, 1),
    lambda i: decimal.Decimal(i) / 7,
    lambda i: functools.partial(max, i, key=str),
    lambda i: itertools.chain([i], (i, str(i))),
    lambda i: re.compile("a" * (i % 90)),
    lambda i: threading.Lock(),
    lambda i: types.SimpleNamespace(a=i, b=str(i)),
    lambda i: type(f"Made{i}", (Node,), {"x": i}) if i % 50 == 0 else None,
    lambda i: array.array("d", range(i % 100)),
    lambda i: memoryview(bytes(i % 100)),
    lambda i: {str(i), i, (i, str(i))},
    lambda i: frozenset((str(i), i)),
    lambda i: {f"key{i}": [i, float(i), complex(i, 1)]},
    lambda i: bytearray(i % 2000),
    lambda i: "é" * (i % 900) + str(i),
    lambda i: bytes(i % 1000) + b"%d" % i,
    lambda i: 1 << (i % 500 + 30),
    lambda i: slice(i, str(i)),
    lambda i: range(i, i + 10),
    closure_over,
    suspended,
    wait_for_it,
    lambda i: iter([i, str(i)]),
    lambda i: property(closure_over(i)),
    lambda i: weakref.ref(ANCHORS[i % len(ANCHORS)], closure_over(i)),
    lambda i: types.MappingProxyType({i: str(i)}),
)

ANCHORS = [Slotted(i) for i in range(10)]


def name(kind: type) -> str:
    """Return module.qualname, without the module for builtins."""
    module = type.__getattribute__(kind, "__module__")
    qualname = type.__getattribute__(kind, "__qualname__")
    return str(qualname) if module == "builtins" else f"{module}.{qualname}"


def reach(found: list[object]) -> dict[int, str]:
    """Return {address: type} of everything that the objects in ``found`` lead to; ``found`` grows to hold them."""
    seen = {id(thing) for thing in found}
    mine = {id(found), id(seen)}
    for thing in found:
        for other in gc.get_referents(thing):
            if id(other) not in seen and id(other) not in mine:
                seen.add(id(other))
                found.append(other)
    return {id(thing): name(type(thing)) for thing in found}


def tell(path: str) -> None:
    """Write the truth in a child."""
    # The C function: os.fork() would run hooks in the child that make objects which the parent does not have.
    child = ctypes.PyDLL(None).fork()
    if child == 0:
        lines = [f"{address} {kind}\n" for address, kind in reach(gc.get_objects()).items()]
        with open(path + ".part", "w") as file:
            file.writelines(lines)
        os.rename(path + ".part", path)
        os._exit(0)
    os.waitpid(child, 0)


def main() -> None:
    """Make the objects, write the truth, pause."""
    generator = random.Random(int(sys.argv[1]))
    kept = [generator.choice(MAKERS)(i) for i in range(int(sys.argv[2]))]
    kept.extend(threading.Thread(target=signal.pause, daemon=True) for _ in range(2))
    gc.collect()
    gc.disable()
    tell(sys.argv[3])
    signal.pause()
    del kept


if __name__ == "__main__":
    main()
