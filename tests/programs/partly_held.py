"""A process with strings that are held in one way each, for answers with a time limit.

Usage: partly_held.py WAY COUNT. WAY: one (a dict of a module), local (a list of a frame), attribute (of an instance),
shared (two lists have the same strings), named (a list with two names), lost (nothing leads to the list), tree (each
node of a tree has one, and refers to its parent). Prints JSON on standard error: {"bytes": of the strings by
sys.getsizeof(), "most": with the allocator's possible additions, and the containers}.
"""

import ctypes
import json
import sys

ROOM, POINTERS = 32, 64


class Store:
    """An object with a dict."""


class Node:
    """A node of a tree."""

    __slots__ = "below", "parent", "text"

    def __init__(self, text, parent):
        self.text, self.parent, self.below = text, parent, []
        if parent is not None:
            parent.below.append(self)


def grow(found):
    """Return the root of a tree in which each node has one of the texts and eight others below it."""
    nodes = []
    for place, text in enumerate(found):
        nodes.append(Node(text, nodes[(place - 1) // 8] if place else None))
    return nodes[0]


def strings(count):
    """Return ``count`` strings that only this program has."""
    return [f"text {number} of {count}" for number in range(count)]


def told(found, *containers, each=0):
    """Return as JSON the strings' bytes, and the most bytes that they and the containers may have."""
    least = sum(map(sys.getsizeof, found))
    more = sum(map(sys.getsizeof, containers)) + POINTERS * (len(containers) + 1)
    return json.dumps({"bytes": least, "most": least + (ROOM + each) * len(found) + more})


def wait(text):
    """Print the text and wait."""
    print(text, file=sys.stderr, flush=True)
    sys.stdin.readline()


def hold(way, count):
    """Hold the strings in a way that lasts; return their figures."""
    module = sys.modules["__main__"]
    found = strings(count)
    if way == "one":
        module.cache = dict.fromkeys(found)
        return told(found, module.cache)
    if way == "attribute":
        module.store = Store()
        module.store.found = found
        return told(found, found, module.store.__dict__)
    if way == "tree":
        module.tree = grow(found)
        return told(found, each=sys.getsizeof(module.tree) + sys.getsizeof(module.tree.below) + 2 * POINTERS)
    if way == "shared":
        module.first, module.second = found, list(found)
        return told(found, found, found)
    if way == "named":
        module.first = module.second = found
        return told(found, found)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(found))
    return told(found, found)


def main(count):
    """Hold the strings in a local variable."""
    found = strings(count)
    text = told(found, found)
    wait(text)
    return found


if sys.argv[1] == "local":
    main(int(sys.argv[2]))
else:
    wait(hold(sys.argv[1], int(sys.argv[2])))
