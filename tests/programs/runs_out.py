"""Runs out of memory by a limit that it sets itself: on a line of input it fills up, catches the MemoryError, says so
and lets go what it had."""

import resource
import sys
import threading

LIMIT, PIECE = int(sys.argv[1]), int(sys.argv[2])


class Hoard:
    """What the memory is filled with."""

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
