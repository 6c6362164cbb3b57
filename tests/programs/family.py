"""A master and its workers, each of which writes to its memory from the fork in its own way, and then waits.

The argument is a number of objects. The workers: one does nothing, one keeps a reference to each object, one runs the
collector, one writes into a large bytearray, one makes new objects. The master prints the id of each in a line, then
reads.
"""

import gc
import os
import sys


class Touched:
    """An object to which one worker refers once more."""

    __slots__ = ("number",)

    def __init__(self, number):
        self.number = number


def nothing():
    """Write only the pages that running code writes by itself."""


def refer():
    """Refer to each object once more."""
    KEPT.extend(OBJECTS)


def collect():
    """Collect, which visits all objects that the collector tracks."""
    gc.collect()


def write():
    """Write to each page of the large buffer."""
    for place in range(0, len(BUFFER), 4096):
        BUFFER[place] = 1


def make():
    """Make rows, in memory that the master does not have."""
    MADE.extend([{"number": number, "text": f"row {number} " * 9} for number in range(len(OBJECTS))])


MADE = []
OBJECTS = [Touched(number) for number in range(int(sys.argv[1]))]
TRACKED = [[number] for number in range(int(sys.argv[1]))]
BUFFER = bytearray(b"x" * (8 << 20))
KEPT = [None] * len(OBJECTS)
del KEPT[:]
gc.collect()
if len(sys.argv) > 2:
    gc.freeze()
# Closed when the master ends in any way: then the workers end.
alive, held = os.pipe()
for work in (nothing, refer, collect, write, make):
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reading)
        os.close(held)
        work()
        os.write(writing, b"x")
        os.close(writing)
        os.read(alive, 1)
        os._exit(0)
    os.close(writing)
    os.read(reading, 1)
    os.close(reading)
    sys.stderr.write(f"{work.__name__} {pid}\n")
sys.stderr.flush()
sys.stdin.read(1)
