"""Fill the interpreter's free lists: freelists.py SEED TRUTH.

Stops twice: in a read of standard input with known numbers of objects alive, then in a pause with all of them gone and
sys._debugmallocstats() printed. TRUTH is JSON: {type: how many}. Plain enough for Python 2.7, which prints nothing.
"""

import gc
import json
import os
import random
import signal
import sys

# No tuple of arguments is made for the call: Python 2 makes one unless there are none, 3.6 unless there is one.
READ, ARGUMENTS = (sys.stdin.readline, ()) if sys.version_info[0] == 2 else (os.read, (0, 1))


class Holder(object):
    """A class with a method to be bound."""

    def method(self):
        """Exist as a method to be bound."""


def makers(generator):
    """Return {type's name: how one is made}; some of these types have free lists in one release, some in another."""
    holder, items = Holder(), [None]
    most = generator.randrange(1, 20)
    found = {
        "float": lambda i: i + 0.5,
        "int": lambda i: (1 << 40) + i,
        "list": lambda i: [i],
        "dict": lambda i: {i: None},
        "tuple": lambda i: tuple([None] * (1 + i % most)),
        "slice": lambda i: slice(i, None),
        type(holder.method).__name__: lambda i: holder.method,
        "builtin_function_or_method": lambda i: "x".join,
        type(iter(items)).__name__: lambda i: iter(items),
    }
    if sys.version_info[0] > 2:
        found["range"] = lambda i: range(i, i + 5)
    if sys.version_info >= (3, 7):
        import contextvars

        name = contextvars.Context
        found[name.__name__ if name.__module__ == "builtins" else "_contextvars.Context"] = lambda i: name()
    return found


def tell(stats=getattr(sys, "_debugmallocstats", gc.isenabled), pause=signal.pause):
    """Print the figures, then stop, without making or deleting an object in between."""
    stats()
    pause()


def drain(held):
    """Delete all objects, of all kinds in mixed order."""
    while held:
        held.pop()


def main():
    """Make the objects, stop, delete them, stop."""
    generator = random.Random(int(sys.argv[1]))
    make = makers(generator)
    counts = {name: generator.randrange(20, 300) for name in make}
    kinds = [make[name] for name, count in sorted(counts.items()) for _ in range(count)]
    generator.shuffle(kinds)
    with open(sys.argv[2], "w") as file:
        json.dump(counts, file)
    gc.collect()
    gc.disable()
    held = [None] * len(kinds)
    for i, kind in enumerate(kinds):
        held[i] = kind(i % 200)
    del kinds, kind, i
    READ(*ARGUMENTS)
    drain(held)
    tell()


if __name__ == "__main__":
    main()
