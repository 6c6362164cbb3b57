"""A parent makes a table and forks three workers: two only read it, one does nothing.

It prints the id of each in a line, then reads.
"""

import os
import sys

TABLE = [(f"key-{number}", number * 1.5) for number in range(int(sys.argv[1]))]


def idle():
    """Do nothing."""


def read():
    """Use each object once."""
    total = 0.0
    for key, value in TABLE:
        total += value + len(key)


# Closed when the parent ends in any way: then the workers end.
alive, held = os.pipe()
for work in (idle, read, read):
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
