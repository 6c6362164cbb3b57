"""A Python program with one fault, or with none: ``faults.py SEED FAULT``.

The program makes the fault, prints sys._debugmallocstats(), and waits for a line on standard input. Then it does what
gdbheap's advice says, prints the figures again, and waits for another line. Python 2.7 can run it too, but prints
nothing.

FAULT is a key of FAULTS, whose classes describe the faults: idle, cycles, old, frozen, many cycles, many old, lists,
stack, buffer, queue, emptied, popped, emptied set, grown, columns, cache, log, many cache, full, forked, registered,
handled, traced, numbers, views, parts, healthy. "many" means that there are more objects than gdbheap searches in
every program. Python 2 keeps its numbers in blocks of their own, which "numbers" needs.

``mend()`` of each class follows the advice.
"""

import binascii
import gc
import os
import random
import sys
import weakref


class Fault(object):
    """No fault: a few kinds of objects in a few containers."""

    def __init__(self, generator):
        """Make the objects."""
        count = generator.randrange(60000, 90000)
        self.words = {str(number): number * 1000003 for number in range(count)}
        self.rows = [(number, str(number + count)) for number in range(count)]
        self.texts = ["%d of %d" % (number, count) for number in range(count)]

    def mend(self):
        """Follow the advice."""
        gc.collect()


class Idle(Fault):
    """Tuples of every length that has a free list: two thousand each, and some that no list takes."""

    def __init__(self, generator):
        """Make the objects."""
        lengths = [1 + number % 20 for number in range(2000 * 20 + generator.randrange(1000))]
        generator.shuffle(lengths)
        made = [(None,) * length for length in lengths]
        gc.collect()
        gc.disable()
        while made:
            made.pop()


class Node(object):
    """An object that refers to itself."""

    def __init__(self, number):
        """Make the cycle."""
        self.own = self
        self.text = "node %0200d" % number


class Cycles(Fault):
    """Objects that refer to themselves and that nothing else refers to."""

    LEAST = 15000

    def __init__(self, generator):
        """Make the objects."""
        gc.disable()
        for number in range(generator.randrange(self.LEAST, 2 * self.LEAST)):
            Node(number)


class Old(Cycles):
    """Cycles that become garbage after the collector's last visit."""

    def __init__(self, generator):
        """Make the objects."""
        made = [Node(number) for number in range(generator.randrange(self.LEAST, 2 * self.LEAST))]
        gc.collect()
        del made


class Frozen(Cycles):
    """Cycles that the collector does not visit."""

    def __init__(self, generator):
        """Make the objects."""
        made = [Node(number) for number in range(generator.randrange(self.LEAST, 2 * self.LEAST))]
        gc.freeze()
        del made

    def mend(self):
        """Follow the advice."""
        gc.unfreeze()
        gc.collect()


class ManyCycles(Cycles):
    """More cycles than are searched for in any program."""

    LEAST = 130000


class ManyOld(Old):
    """Cycles that became garbage after the collector's last visit, and more than are searched for in any program."""

    LEAST = 130000


class Lists(Fault):
    """Many short lists that were made by append()."""

    def __init__(self, generator):
        """Make the objects."""
        self.rows = []
        for _ in range(generator.randrange(400000, 500000)):
            self.rows.append([])
            self.rows[-1].append(None)

    def mend(self):
        """Follow the advice."""
        for number, row in enumerate(self.rows):
            self.rows[number] = row[:]


class Stack(Fault):
    """A long list that lost a third of its items but keeps its room."""

    def __init__(self, generator):
        """Make the objects."""
        self.items = [None] * generator.randrange(3 << 20, 4 << 20)
        del self.items[len(self.items) * 2 // 3 :]

    def mend(self):
        """Follow the advice."""
        self.items = self.items[:]


class Buffer(Fault):
    """A filled byte array that lost its last third."""

    def __init__(self, generator):
        """Make the objects."""
        self.bytes = bytearray()
        for _ in range(generator.randrange(400, 500)):
            self.bytes += b"x" * 65536
        del self.bytes[len(self.bytes) * 2 // 3 :]

    def mend(self):
        """Follow the advice."""
        self.bytes = self.bytes[:]


class Emptied(Fault):
    """A dict that lost nearly all of its entries, one by one."""

    def __init__(self, generator):
        """Make the objects."""
        count, left = generator.randrange(600000, 800000), generator.randrange(5000)
        self.kept = dict.fromkeys(range(count))
        for number in range(count - left):
            del self.kept[number]

    def mend(self):
        """Follow the advice."""
        self.kept = dict(self.kept)


class Popped(Emptied):
    """A dict that lost its entries, the latest first."""

    def __init__(self, generator):
        """Make the objects."""
        left = generator.randrange(5000)
        self.kept = {str(number): None for number in range(generator.randrange(600000, 800000))}
        while len(self.kept) > left:
            self.kept.popitem()


class EmptiedSet(Fault):
    """A set that lost nearly all of its items."""

    def __init__(self, generator):
        """Make the objects."""
        left = generator.randrange(5000)
        self.kept = set(range(generator.randrange(600000, 800000)))
        while len(self.kept) > left:
            self.kept.pop()

    def mend(self):
        """Follow the advice."""
        self.kept = set(self.kept)


class Grown(Fault):
    """Tables whose size comes from growth alone, and tables that cannot be replaced."""

    def __init__(self, generator):
        """Make the objects."""
        count = generator.randrange(200000, 400000)
        self.dict, self.set, self.queue = dict.fromkeys(range(count)), set(range(count)), {}
        self.grow(self.dict.setdefault)
        self.grow(self.set.add)
        for number in range(4 * count):
            self.queue[number] = None
            self.queue.pop(number - count // 4, None)
        # In Python 2 a namespace has no order.
        if sys.version_info[0] > 2:
            names = ["%d" % number for number in range(count)]
            globals().update(dict.fromkeys(names))
            for name in names:
                del globals()[name]
        intern = getattr(sys, "intern", getattr(__builtins__, "intern", None))
        self.texts = [intern("text %d" % number) for number in range(2 * count)]
        del self.texts

    @staticmethod
    def grow(add):
        """Add items until the table has just grown."""
        container = add.__self__
        size = sys.getsizeof(container)
        while sys.getsizeof(container) == size:
            add(len(container))


class Columns(Fault):
    """Byte arrays that grow in turn and block each other, after a large buffer has raised malloc's threshold."""

    def __init__(self, generator):
        """Make the objects."""
        bytearray(30 << 20)
        self.columns = [bytearray() for _ in range(32)]
        self.lengths = [generator.randrange(20, 60) for _ in self.columns]
        while any(self.lengths):
            number = generator.randrange(32)
            if self.lengths[number]:
                self.lengths[number] -= 1
                self.columns[number] += binascii.unhexlify("%0131072x" % generator.getrandbits(8 * 65536))


class Queue(Buffer):
    """A byte array that was cut at its beginning."""

    def __init__(self, generator):
        """Make the objects."""
        self.bytes = bytearray(b"x" * 65536 * generator.randrange(400, 500))
        del self.bytes[: len(self.bytes) // 3]


class Session(object):
    """An object in a cache."""

    def __init__(self, number):
        """Make the objects."""
        self.name = "session %0100d" % number


class Cache(Fault):
    """A dict from which nothing is ever dropped."""

    LEAST = 30000
    kept = {}

    def __init__(self, generator):
        """Make the objects."""
        for number in range(generator.randrange(self.LEAST, self.LEAST * 3 // 2)):
            self.kept["key %d" % number] = Session(number)

    def mend(self):
        """Follow the advice, and print the number of entries."""
        sys.stderr.write("kept %d\n" % len(self.kept))
        self.kept.clear()


class ManyCache(Cache):
    """More objects than the limit for reading the graph in any program."""

    LEAST = 150000


class Log(Cache):
    """A list that is only appended to."""

    def __init__(self, generator):
        """Make the objects."""
        self.kept = [Session(number) for number in range(generator.randrange(self.LEAST, self.LEAST * 3 // 2))]

    def mend(self):
        """Follow the advice."""
        del self.kept[:]


class Full(Cache):
    """A table that was full before the first request: since then other dicts were changed. Then it grows after all."""

    def __init__(self, generator):
        """Make the objects."""
        Cache.__init__(self, generator)
        self.counters = [{} for _ in range(10)]
        for number in range(200000):
            self.counters[number % 10][number % 1000] = number

    def mend(self):
        """Add one entry."""
        self.kept["last"] = Session(0)


class Forked(Cache):
    """A table that a child shares. Then it grows here."""

    def __init__(self, generator):
        """Make the table; the child ends with its parent."""
        Cache.__init__(self, generator)
        end, own = os.pipe()
        if os.fork() == 0:
            os.close(own)
            os.read(end, 1)
            os._exit(0)
        os.close(end)
        self.own = own

    def mend(self):
        """Add more."""
        for number in range(5000):
            self.kept["more %d" % number] = Session(number)


class Views(Fault):
    """Short views of long bytes, two of each of them."""

    def __init__(self, generator):
        """Make the objects."""
        self.shown = []
        for _ in range(generator.randrange(40, 60)):
            # Filled, so that all of it is resident.
            whole = memoryview(b"%06d" % generator.randrange(10**6) * 50000)
            self.shown += [whole[:16], whole[-generator.randrange(8, 80) :]]

    def mend(self):
        """Follow the advice."""
        self.shown = [view.tobytes() for view in self.shown]


class Parts(Views):
    """Views that show most of their bytes, and short views of bytes that something else holds too."""

    def __init__(self, generator):
        """Make the objects."""
        Views.__init__(self, generator)
        self.held = [memoryview(view.obj) for view in self.shown[::2]]
        self.large = [memoryview(b"%06d" % generator.randrange(10**6) * 50000)[:200000] for _ in range(40)]


class Registered(Fault):
    """Connections that are held by a function that was registered with them: the collector does not see the
    library's references."""

    def __init__(self, generator):
        """Make the connections, and drop them."""
        self.kept = [self.make(generator) for _ in range(generator.randrange(60, 90))]
        gc.collect()

    def make(self, generator):
        """Return a weak reference to the data that one connection holds."""
        import sqlite3

        connection, held = sqlite3.connect(":memory:"), Held(generator)
        connection.create_function("one", 1, lambda number: (held, connection) and number)
        return weakref.ref(held)

    def mend(self):
        """Print how many the collector leaves."""
        gc.collect()
        sys.stderr.write("left %d of %d\n" % (sum(one() is not None for one in self.kept), len(self.kept)))
        sys.stderr.flush()


class Handled(Registered):
    """Parsers that are held by their handlers: words in C, which their type shows to the collector."""

    def __init__(self, generator):
        """Make the parsers, and drop them, without the collector's knowledge."""
        gc.disable()
        self.kept = [self.make(generator) for _ in range(generator.randrange(60, 90))]

    def make(self, generator):
        """Return a weak reference to the data that one parser holds."""
        from xml.parsers import expat

        parser, held = expat.ParserCreate(), Held(generator)
        parser.StartElementHandler = lambda name, attributes: (held, parser)
        return weakref.ref(held)


class Held(object):
    """About 200 KiB of data."""

    def __init__(self, generator):
        """Make the objects."""
        self.texts = ["%01000d" % generator.randrange(10**6) for _ in range(200)]


class Traced(Fault):
    """A program with tracemalloc enabled, whose tables are most of its memory."""

    def __init__(self, generator):
        """Make the objects."""
        import tracemalloc

        tracemalloc.start(generator.randrange(1, 4))
        self.items = [[number] for number in range(generator.randrange(100000, 150000))]

    def mend(self):
        """Follow the advice."""
        import ctypes
        import tracemalloc

        tracemalloc.stop()
        ctypes.CDLL(None).malloc_trim(0)


class Numbers(Fault):
    """Deleted numbers, except for a few that keep their blocks (Python 2)."""

    def __init__(self, generator):
        """Make the numbers, and drop most."""
        made = [generator.randrange(1000, 10**9) for _ in range(400000)]
        made += [generator.random() for _ in range(400000)]
        self.some = generator.sample(made, 20)
        made = None

    def mend(self):
        """Follow the advice."""
        import ctypes

        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)


FAULTS = {
    "registered": Registered,
    "handled": Handled,
    "traced": Traced,
    "numbers": Numbers,
    "healthy": Fault,
    "views": Views,
    "parts": Parts,
    "idle": Idle,
    "cycles": Cycles,
    "old": Old,
    "frozen": Frozen,
    "lists": Lists,
    "stack": Stack,
    "buffer": Buffer,
    "columns": Columns,
    "queue": Queue,
    "emptied": Emptied,
    "popped": Popped,
    "emptied set": EmptiedSet,
    "grown": Grown,
    "cache": Cache,
    "log": Log,
    "many cache": ManyCache,
    "full": Full,
    "forked": Forked,
    "many cycles": ManyCycles,
    "many old": ManyOld,
}


def rest(stats=getattr(sys, "_debugmallocstats", gc.isenabled)):
    """Print the figures, then wait for a line."""
    stats()
    sys.stdin.readline()


def main():
    """Make the fault, rest, follow the advice, rest."""
    fault = FAULTS[sys.argv[2]](random.Random(int(sys.argv[1])))
    rest()
    fault.mend()
    rest()


if __name__ == "__main__":
    main()
