"""A process whose extension module leaks objects and blocks, with cycles that the collector frees, and others.

Usage: leaks.py SEED FOLDER EXTENSION [COUNT SIZE]. EXTENSION: the folder of leaking_extension, which loses COUNT
objects, and twice as many blocks, of SIZE bytes. Rests before it plants, and afterwards. When it continues it collects,
and writes the ids of all objects that the collector found to FOLDER/collected. FOLDER/cycles has the ids of its cycles
("collected", or the reason why not), FOLDER/lost the output of the extension.
"""

import gc
import os
import random
import sys

sys.path.insert(0, sys.argv[3])
import leaking_extension as leaking


class Node(object):  # noqa: UP004
    """A class with a parent and children."""


class Deleted(object):  # noqa: UP004
    """A class with a finalizer."""

    def __del__(self):
        """Do nothing."""


def failing(number):
    """Keep an exception in the frame that raised it; return the exception's id."""
    scratch = bytearray(number)
    try:
        raise ValueError(scratch)
    except ValueError as error:
        error.traceback = sys.exc_info()[2]
        failure = error
    return id(failure)


def family(rng):
    """Return the ids of a node and its children, which know their parent."""
    parent = Node()
    parent.children = []
    for _ in range(rng.randrange(1, 8)):
        child = Node()
        child.parent = parent
        parent.children.append(child)
    return [id(node) for node in [parent] + parent.children]


def held():
    """Return the id of a list in a cycle. The cycle goes through an object that the collector does not visit."""
    one = []
    one.append(leaking.hold(one))
    return id(one)


def deleted():
    """Return the id of an object that has a finalizer and refers to itself."""
    one = Deleted()
    one.self = one
    return id(one)


def frozen():
    """Return the id of a list that refers to itself and that gc.freeze() sets aside (3.7 and later)."""
    one = []
    one.append(one)
    if hasattr(gc, "freeze"):
        gc.freeze()
    return id(one)


def taken():
    """Return the id of a node whose reference count is one more than the number of its holders."""
    one = Node()
    leaking.take(one)
    return id(one)


def main():
    """Plant, write, wait, collect."""
    rng, folder = random.Random(int(sys.argv[1])), sys.argv[2]
    gc.collect()
    gc.disable()
    os.read(0, 1)
    rows = [("frozen" if hasattr(gc, "freeze") else "collected", frozen())]
    rows += [("failure", failing(rng.randrange(100, 4000))) for _ in range(rng.randrange(20, 60))]
    rows += [("collected", one) for _ in range(rng.randrange(5, 40)) for one in family(rng)]
    rows += [("untracked", held()) for _ in range(rng.randrange(3, 20))]
    rows += [("finalizer" if sys.version_info[0] == 2 else "collected", deleted()) for _ in range(rng.randrange(1, 9))]
    rows += [("reference", taken()) for _ in range(rng.randrange(1, 9))]
    lost = os.path.join(folder, "lost")
    given = [int(word) for word in sys.argv[4:]]
    leaking.lose_objects(lost, *(given or (rng.randrange(30, 300), rng.randrange(600, 5000))))
    leaking.lose_blocks(lost, *(given or (rng.randrange(30, 300), rng.randrange(600, 5000))))
    with open(os.path.join(folder, "cycles"), "w") as file:
        file.write("\n".join(kind + " " + str(one) for kind, one in rows))
    del rows, file
    os.read(0, 1)
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    with open(os.path.join(folder, "collected"), "w") as file:
        file.write(" ".join(str(id(one)) for one in gc.garbage))
    os.read(0, 1)


if __name__ == "__main__":
    main()
