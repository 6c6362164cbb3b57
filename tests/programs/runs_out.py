"""Runs out of memory by its own limit: on a line of input it fills its memory, catches the MemoryError, prints it
and deletes the objects."""

import resource
import sys
import threading

LIMIT, PIECE = int(sys.argv[1]), int(sys.argv[2])


class Hoard:
    """The objects that fill the memory."""

    def __init__(self):
        self.pieces = []

    def fill(self):
        while True:
            self.pieces.append(bytearray(PIECE))


def other(stop):
    count = 0
    while not stop.wait(0.001):
        count += 1


stop = threading.Event()
worker = threading.Thread(target=other, args=(stop,))
worker.start()
resource.setrlimit(resource.RLIMIT_AS, (LIMIT, resource.getrlimit(resource.RLIMIT_AS)[1]))
for _line in iter(sys.stdin.readline, ""):
    hoard = Hoard()
    try:
        hoard.fill()
    except MemoryError:
        count = len(hoard.pieces)
        del hoard
        sys.stderr.write("out {}\n".format(count))  # noqa: UP032
        sys.stderr.flush()
stop.set()
worker.join()
