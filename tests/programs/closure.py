"""Hold objects of many kinds and write down every object that can be reached: closure.py SEED COUNT TRUTH.

TRUTH is written by a forked child (its own objects are not the parent's): one line ``address type`` for each object in
the closure of gc.get_objects() under gc.get_referents(). The parent then pauses. Plain enough for Python 2.7.
"""

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

Pair = collections.namedtuple("Pair", "left right")


class Node(object):
    """A plain class with a dict."""

    def __init__(self, value):
        self.value = value

    def method(self):
        """Exist as a method to be bound."""
        return self.value


class Slotted(object):
    """A class with slots and weak references."""

    __slots__ = ("value", "__weakref__")

    def __init__(self, value):
        self.value = value


class Old:
    """An old-style class in Python 2; a plain one in Python 3."""

    def __init__(self, value):
        self.value = value


class Failure(Exception):
    """An exception with a payload."""


class Counted(collections.OrderedDict):
    """A subclass of the ordered dict."""


def generate(value):
    """Yield once; the generator stays suspended."""
    yield value
    yield value + 1


def closure_over(value):
    """Return a function with a cell."""
    return lambda: value


def suspended(i):
    """Return a generator that has begun."""
    generator = generate(i)
    next(generator)
    return generator


MAKERS = [
    Node,
    Slotted,
    Old,
    lambda i: Node(i).method,
    lambda i: Pair(str(i), float(i)),
    lambda i: Failure(str(i), i),
    lambda i: Counted({str(i): i, "b": (i,)}),
    lambda i: collections.OrderedDict(a=str(i), b=i),
    lambda i: collections.deque(range(i % 300)),
    lambda i: collections.defaultdict(list, {i: [str(i)]}),
    lambda i: collections.Counter(str(i * 7919)),
    lambda i: datetime.datetime(2000 + i % 30, 1, 1),
    lambda i: datetime.time(i % 24),
    lambda i: decimal.Decimal(i) / 7,
    lambda i: functools.partial(max, i, key=str),
    lambda i: itertools.chain([i], (i, str(i))),
    lambda i: re.compile("a" * (i % 90)),
    lambda i: threading.Lock(),
    lambda i: type("Made%d" % i, (Node,), {"x": i}) if i % 50 == 0 else None,
    lambda i: array.array("d", range(i % 100)),
    lambda i: memoryview(bytes(bytearray(i % 100))),
    lambda i: {str(i), i, (i, str(i))},
    lambda i: frozenset((str(i), i)),
    lambda i: {"key%d" % i: [i, float(i), complex(i, 1)]},
    lambda i: bytearray(i % 2000),
    lambda i: u"\xe9" * (i % 900) + str(i),
    lambda i: bytes(bytearray(i % 1000)) + b"%d",
    lambda i: 1 << (i % 500 + 30),
    lambda i: i * 1000003,
    lambda i: slice(i, str(i)),
    lambda i: range(i, i + 10),
    closure_over,
    suspended,
    lambda i: iter([i, str(i)]),
    lambda i: property(closure_over(i)),
    lambda i: weakref.ref(ANCHORS[i % len(ANCHORS)], closure_over(i)),
]
if sys.version_info[0] > 2:
    exec("async def wait_for_it(value): return value")
    MAKERS.append(lambda i: globals()["wait_for_it"](i))
    MAKERS.append(lambda i: types.SimpleNamespace(a=i, b=str(i)))
    MAKERS.append(lambda i: types.MappingProxyType({i: str(i)}))

ANCHORS = [Slotted(i) for i in range(10)]


def name(kind):
    """Return module.qualname, without the module for builtins."""
    module = type.__getattribute__(kind, "__module__")
    qualname = type.__getattribute__(kind, "__qualname__" if sys.version_info[0] > 2 else "__name__")
    return qualname if module in ("builtins", "__builtin__") else "%s.%s" % (module, qualname)


def reach(found):
    """Return {address: type} of everything that the objects in ``found`` lead to; ``found`` grows to hold them.

    Loops, not comprehensions: before 3.12 these make functions, which the parent does not have.
    """
    types_of = {}
    mine = {id(found), id(types_of), id(sys._getframe())}
    for thing in found:
        mine.add(id(thing))
    for thing in found:
        types_of[id(thing)] = name(type(thing))
        for other in gc.get_referents(thing):
            if id(other) not in mine:
                mine.add(id(other))
                found.append(other)
    return types_of


def tell(path):
    """Write the truth in a child, then pause: the child's view of this function's frame stays true."""
    # The C function: os.fork() would run hooks in the child that make objects that the parent does not have.
    child = ctypes.PyDLL(None).fork()
    if child == 0:
        reached = reach(gc.get_objects())
        with open(path + ".part", "w") as file:
            file.writelines("%d %s\n" % pair for pair in reached.items())
        os.rename(path + ".part", path)
        os._exit(0)
    os.waitpid(child, 0)
    signal.pause()


def idle_thread():
    """Return a thread that has not been started."""
    thread = threading.Thread(target=signal.pause)
    thread.daemon = True
    return thread


def main():
    """Make the objects, write the truth, pause."""
    generator = random.Random(int(sys.argv[1]))
    kept = [generator.choice(MAKERS)(i) for i in range(int(sys.argv[2]))]
    kept.extend(idle_thread() for _ in range(2))
    # Python 2 completes some types only when they are first asked for their names.
    reach(gc.get_objects())
    gc.collect()
    gc.disable()
    tell(sys.argv[3])
    del kept


if __name__ == "__main__":
    main()
