"""Fill interpreters with objects: subinterpreters.py SEED OBJECTS ISOLATED SHARED TRUTH; CPython 3.12 and later.

ISOLATED interpreters have their own pools, SHARED ones the main interpreter's. Without TRUTH (``-``) each isolated one
prints sys._debugmallocstats() in its own thread and pauses there; then the main one prints sys.getallocatedblocks(),
which counts all of them, its own figures, and pauses too. With TRUTH a forked child writes down every object that each
interpreter can reach, one file for each, TRUTH.0 for the main one. The child's code is compiled there: objects that are
not alive in the parent may be among them.
"""

import gc
import os
import signal
import sys
import threading
import time

if sys.version_info >= (3, 13):
    import _interpreters as interpreters

    run = interpreters.exec
    create = {True: lambda: interpreters.create("isolated"), False: lambda: interpreters.create("legacy")}
else:
    import _xxsubinterpreters as interpreters

    run = interpreters.run_string
    create = {True: lambda: interpreters.create(isolated=True), False: lambda: interpreters.create(isolated=False)}

PAUSE = "34 "
# Run in every interpreter, after definitions of ``seed`` and ``objects``.
FILL = """
import gc
import os
import random
import signal
import sys

class Node:
    def __init__(self, value):
        self.value = value

class Slotted:
    __slots__ = ("value",)

generator = random.Random(seed)

def one(i):
    size = generator.randrange(generator.choice((16, 64, 200, 480, 700)))
    return generator.choice((
        lambda: "x" * (size + 2), lambda: bytes(size + 2), lambda: (None,) * (size // 8 + 1), lambda: [i] * (size // 8),
        generator.random, lambda: dict.fromkeys(range(size // 16)), lambda: {str(i), i}, lambda: Node(i), Slotted,
        lambda: 1 << size,
    ))()

kept = [one(i) for i in range(objects)]
for i in generator.sample(range(objects), objects // 3):
    kept[i] = None

def tell(stats=sys._debugmallocstats, pause=signal.pause):
    stats()
    pause()

def name(kind):
    module, qualname = (type.__getattribute__(kind, key) for key in ("__module__", "__qualname__"))
    return qualname if module == "builtins" else module + "." + qualname

def reach(path):
    found = gc.get_objects()
    mine = {id(found)}
    types_of = {}
    for thing in found:
        mine.add(id(thing))
    mine.update((id(types_of), id(mine), id(sys._getframe())))
    for thing in found:
        types_of[id(thing)] = name(type(thing))
        for other in gc.get_referents(thing):
            if id(other) not in mine:
                mine.add(id(other))
                found.append(other)
    with open(path, "w") as file:
        file.writelines("%d %s\\n" % pair for pair in types_of.items())

gc.collect()
gc.disable()
"""


def pausing_threads():
    """Return how many threads of this process are inside pause(2)."""
    found = 0
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{thread}/syscall") as file:
            found += file.read().startswith(PAUSE)
    return found


def tell_all(isolated, tell):
    """Let each interpreter print its figures and pause, one after another, the main interpreter last."""
    for number, interpreter in enumerate(isolated):
        threading.Thread(target=run, args=(interpreter, "tell()"), daemon=True).start()
        while pausing_threads() <= number:
            time.sleep(0.01)
    gc.collect()
    gc.disable()
    # Since 3.14 freed ints wait for reuse, and since 3.15 the formatter of bytes: all are taken, and everything has run
    # once.
    spare = [(1 << 40) + i for i in range(200)]
    first = sys.getallocatedblocks()
    os.write(2, b"blocks before: %d\n" % first)
    held = sys.getallocatedblocks()
    os.write(2, b"blocks in all: %d\n" % held)
    tell()
    del held, first, spare


def write_truth(others, path, fill):
    """Write the truth in a child, which has no thread but this one, then pause."""
    import ctypes

    # The C function: os.fork() would run hooks in the child that make objects that the parent does not have.
    child = ctypes.PyDLL(None).fork()
    if child == 0:
        for number, interpreter in enumerate(others, 1):
            run(interpreter, f"reach({f'{path}.{number}'!r})")
        fill["reach"](path + ".0")
        os._exit(0)
    os.waitpid(child, 0)
    signal.pause()


def main():
    """Make the interpreters, fill all, print."""
    seed, objects, isolated, shared = map(int, sys.argv[1:5])
    own = [create[True]() for _ in range(isolated)]
    others = own + [create[False]() for _ in range(shared)]
    for number, interpreter in enumerate(others, 1):
        run(interpreter, f"seed, objects = {seed + number}, {objects}\n{FILL}")
    fill = {"__name__": "__main__", "seed": seed, "objects": objects}
    exec(FILL, fill)
    if sys.argv[5] == "-":
        tell_all(own, fill["tell"])
    else:
        write_truth(others, sys.argv[5], fill)


if __name__ == "__main__":
    main()
