"""A process with objects in structures of known shape, which evaluates expressions afterwards.

Usage: references.py SEED SIZE SOME TRUTH. Writes {structure: [ids of SOME of its objects]} to TRUTH. Each line of
standard input is the path of a JSON list of expressions; the list of the ids of their values is written beside it.
"""

import collections
import functools
import gc
import json
import os
import random
import sys


class Link(object):  # noqa: UP004
    """A class with attributes in a dict, or in its replacement."""

    def __init__(self, next_link):
        self.next = next_link


class Slotted(object):  # noqa: UP004
    """A class with attributes in slots."""

    __slots__ = ("first", "second", "weight")

    def __init__(self, first, second):
        self.first = first
        self.second = second
        self.weight = object()

    def second_of(self):
        """Return the second item."""
        return self.second


class Tree(object):  # noqa: UP004
    """Two branches, and a leaf that others may share."""

    def __init__(self, left, right, leaf):
        self.left = left
        self.right = right
        self.leaf = leaf


class Several(list):
    """A class with items and attributes."""


def nested(size):
    """Return a list in a list in a list, and so on."""
    inner = []
    for _ in range(size):
        inner = [inner]
    return inner


def linked(size):
    """Return the head of a linked list."""
    head = None
    for _ in range(size):
        head = Link(head)
    return head


def walk_links(head):
    """Yield the links."""
    while head is not None:
        yield head
        head = head.next


def walk_nested(inner):
    """Yield the lists."""
    while inner:
        yield inner
        inner = inner[0]


def grown(rng, depth, leaves):
    """Return a random tree."""
    if not depth:
        return None
    return Tree(
        grown(rng, depth - 1 - rng.randrange(2) if depth > 1 else 0, leaves),
        grown(rng, depth - 1, leaves),
        rng.choice(leaves),
    )


def walk_tree(tree):
    """Yield the trees."""
    if tree is not None:
        yield tree
        for branch in (tree.left, tree.right):
            for inner in walk_tree(branch):  # noqa: UP028
                yield inner


def closure(value, other):
    """Return a function that holds both."""

    def inner(default=[object()]):  # noqa: B006, B008
        return value, other, default

    inner.note = object()
    return inner


def cached(value):
    """Return a C function that holds a Python function, or a similar class if there is none."""

    def wrapped():
        return value

    return functools.lru_cache()(wrapped) if hasattr(functools, "lru_cache") else CachedByHand(wrapped)


class CachedByHand(object):  # noqa: UP004
    """A replacement for functools.lru_cache, which exists since 3.2."""

    def __init__(self, wrapped):
        self.__wrapped__ = wrapped


def generator(value):
    """Hold a value in a variable."""
    mine = [value]
    yield 1
    yield mine


def started(value):
    """Return a generator that has begun."""
    made = generator(value)
    next(made)
    return made


def ring(size):
    """Return one of the objects of a cycle."""
    first = Slotted(None, None)
    at = first
    for _ in range(size):
        at = Slotted(at, object())
    first.first = at
    return first


def walk_ring(first):
    """Yield the objects of a cycle."""
    yield first
    at = first.first
    while at is not first:
        yield at
        at = at.first


def keys(number):
    """Return keys of several types."""
    return number, "key " + str(number), (number, "x"), str(number).encode()


def main():
    """Build, write the truth, evaluate."""
    rng, size, some = random.Random(int(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
    space = globals()
    few = range(min(size, 5000))
    leaves = [[number] for number in range(300)]
    space["head"] = linked(size)
    space["deep"] = nested(size)
    space["tree"] = grown(rng, 12, leaves)
    space["wide"] = {rng.choice(keys(number)): object() for number in few}
    space["pairs"] = tuple((object(), [object()]) for _ in few)
    space["sets"] = [{object() for _ in range(rng.randrange(1, 40))} for _ in range(300)]
    space["closures"] = [closure(object(), [number]) for number in few]
    space["generators"] = [started(object()) for _ in few]
    space["first"] = ring(5000)
    space["partials"] = [functools.partial(max, object(), key=[number]) for number in range(1000)]
    space["queue"] = collections.deque(Slotted(object(), None) for _ in range(rng.randrange(200, 5000)))
    for _ in range(rng.randrange(70)):
        space["queue"].popleft()
    space["ordered"] = collections.OrderedDict((number, object()) for number in few)
    space["several"] = [Several([object()]) for _ in few]
    for one in space["several"]:
        one.extra = object()
    space["methods"] = [Slotted(object(), None).second_of for _ in few]
    space["slices"] = [slice(object(), [number]) for number in few]
    space["properties"] = [property(functools.partial(max, object())) for _ in few]
    space["cached"] = [cached([number]) for number in range(200)]
    space["objects"] = [type("Made" + str(number), (Link,), {"kept": object()}) for number in range(200)]
    structures = {
        "links": list(walk_links(space["head"])),
        "nested": list(walk_nested(space["deep"])),
        "trees": list(walk_tree(space["tree"])),
        "leaves": [tree.leaf for tree in walk_tree(space["tree"])],
        "values": list(space["wide"].values()),
        "pairs": [one for pair in space["pairs"] for one in (pair, pair[0], pair[1][0])],
        "members": [one for members in space["sets"] for one in members],
        "closures": [cell.cell_contents for made in space["closures"] for cell in made.__closure__],
        "notes": [made.note for made in space["closures"]],
        "ring": list(walk_ring(space["first"])),
        "weights": [one.weight for one in walk_ring(space["first"])],
        "partials": [one for made in space["partials"] for one in (made.args[0], made.keywords["key"])],
        "queue": [one.first for one in space["queue"]],
        "ordered": list(space["ordered"].values()),
        "several": [one for made in space["several"] for one in (made[0], made.extra)],
        "methods": [one for made in space["methods"] for one in (made, made.__self__.first)],
        "slices": [one for made in space["slices"] for one in (made.start, made.stop)],
        "properties": [made.fget.args[0] for made in space["properties"]],
        "cached": [made.__wrapped__ for made in space["cached"]],
        "classes": [one for made in space["objects"] for one in (made, made.kept)],
        "class dicts": [one for made in space["objects"] for one in gc.get_referents(made) if type(one) is dict],
        "generators": [made.gi_frame.f_locals["mine"][0] for made in space["generators"]],
    }
    truth = {name: [id(one) for one in rng.sample(found, some)] for name, found in structures.items()}
    del structures, leaves
    hold(truth)


def hold(truth):
    """Keep some objects in variables only."""
    local, others = object(), [object()]
    truth["local"] = [id(local)]
    truth["others"] = [id(others), id(others[0])]
    with open(sys.argv[4], "w") as file:
        json.dump(truth, file)
    del file, truth
    answer()
    return local, others


def answer():
    """Evaluate the requested expressions."""
    while True:
        line = os.read(0, 4096).decode()
        if not line.strip():
            return
        with open(line.strip()) as file:
            asked = json.load(file)
        found = [id(eval(expression, {"sys": sys})) for expression in asked]
        with open(line.strip() + ".answer", "w") as file:
            json.dump(found, file)


if __name__ == "__main__":
    sys.setrecursionlimit(10000)
    main()
