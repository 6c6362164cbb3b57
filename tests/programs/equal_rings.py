"""Leave cycles of several kinds, whose parts of one type are equal in number and size, and rest: COUNT."""

import gc
import os
import sys


class One:
    """An object that leads to a tuple."""

    __slots__ = ("x",)


class Other:
    """The same under another name."""

    __slots__ = ("x",)


def ring(kind):
    """Leave two objects of a class that refer to each other through tuples."""
    one, other = kind(), kind()
    one.x, other.x = (other,), (one,)


def rings():
    """Leave a list in a tuple in that list, and a dict likewise."""
    items, table = [], {}
    items.append((items,))
    table[1] = (table,)


gc.disable()
for _ in range(int(sys.argv[1])):
    ring(One)
    ring(Other)
    rings()
os.read(0, 1)
