"""Hold: held.py COUNT. Rests; then holds COUNT objects of a kind in each of several ways, and rests again."""

import os
import sys


class InList:
    """An object in a list of an object of a module."""


class InDict:
    """An object in a dict of the same object."""


class InBoth:
    """An object in both, so that only the object itself holds it alone."""


class InLocal:
    """An object in a variable of a running function."""


class InNone:
    """An object that only holds itself; no collector runs."""


class Keeper:
    """The object that holds some."""

    def __init__(self):
        """Hold enough to be among the largest."""
        self.kept = [str(number) for number in range(5000)]
        self.table = {str(number): None for number in range(5000)}


def main():
    """Hold more after a line."""
    count = int(sys.argv[1])
    local = [str(number) for number in range(5000)]
    os.read(0, 1)
    keeper.kept.extend(InList() for _ in range(count))
    keeper.table.update((number, InDict()) for number in range(count))
    for number in range(count):
        both = InBoth()
        keeper.kept.append(both)
        keeper.table[-1 - number] = both
    both = None
    local.extend(InLocal() for _ in range(count))
    for _ in range(count):
        nobodys = InNone()
        nobodys.itself = nobodys
    nobodys = None
    os.read(0, 1)


keeper = Keeper()
if __name__ == "__main__":
    import gc

    gc.disable()
    main()
