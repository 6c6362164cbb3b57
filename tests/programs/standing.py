"""Threads that wait inside functions, and objects of a class: standing.py SEED OBJECTS THREADS TRUTH.

TRUTH has the number of objects, and the frames of each thread except the main one, innermost first. Plain enough for
Python 2.7.
"""

import json
import os
import random
import signal
import sys
import threading
import time


class Held:
    """The class whose objects are counted."""

    def __init__(self, number):
        self.number = number


def descend(depth, started, gate):
    """Wait, DEPTH calls further down."""
    if depth:
        return descend(depth - 1, started, gate)
    started.append(depth)
    gate.acquire()
    return depth


def stands(frame):
    """Return (function, line) of a frame and of its callers."""
    found = []
    while frame is not None:
        found.append((frame.f_code.co_name, frame.f_lineno))
        frame = frame.f_back
    return found


def main():
    """Make the objects and the threads, write the truth, pause."""
    generator = random.Random(int(sys.argv[1]))
    held = [Held(number) for number in range(int(sys.argv[2]))]
    started, gate = [], threading.Lock()
    gate.acquire()
    for _ in range(int(sys.argv[3])):
        thread = threading.Thread(target=descend, args=(generator.randrange(20), started, gate))
        thread.daemon = True
        thread.start()
    while len(started) < int(sys.argv[3]):
        time.sleep(0.01)
    # A moment passes between the last Python code and the wait for the lock.
    time.sleep(0.2)
    own = threading.current_thread().ident
    threads = [stands(frame) for ident, frame in sys._current_frames().items() if ident != own]
    with open(sys.argv[4] + ".part", "w") as file:
        json.dump({"held": len(held), "threads": threads}, file)
    os.rename(sys.argv[4] + ".part", sys.argv[4])
    signal.pause()
    del held


if __name__ == "__main__":
    main()
