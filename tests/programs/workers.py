"""A process whose objects were made by several threads, some of which have ended.

Usage: workers.py SEED THREADS TRUTH. Rests, continues after a line. Each thread links objects, drops some of another
thread's, and plants a cycle; every second one ends, the others wait. Writes {"links": ids of some that the links of a
global hold, "held": ids that only a waiting thread's variable holds, "planted": ids of all objects of the cycles} to
TRUTH, then evaluates the requested expressions.
"""

import gc
import json
import os
import random
import sys
import threading

import references

LINKS = 300


class Places(object):  # noqa: UP004
    """The data that the threads share."""

    def __init__(self, threads):
        self.heads = [None] * threads
        self.held = [0] * threads
        self.planted = []
        self.ready = threading.Semaphore(0)
        self.end = threading.Lock()


def links_of(rng):
    """Return the head of a linked list. Other objects were made and deleted between its nodes."""
    head = None
    for _ in range(LINKS):
        head = references.Link(head)
        head.item = [object(), bytes(rng.randrange(700))]
    return head


def cycle():
    """Return the ids of two new objects without other holders, and of their contents."""
    one, other = references.Slotted(None, None), references.Slotted(None, None)
    one.first, other.first = other, one
    parts = [one, other, one.weight, other.weight]
    return [id(part) for part in parts]


def build(places, number, seed):
    """Make objects, and drop some of those that the previous thread made."""
    rng = random.Random(seed)
    places.heads[number] = links_of(rng)
    places.planted.extend(cycle())
    before = places.heads[number - 1]
    for _ in range(50):
        if before is not None:
            before.item = None
            before = before.next


def wait(places, number):
    """Hold an object in a variable only."""
    mine = [object()]
    places.held[number] = id(mine)
    places.ready.release()
    places.end.acquire()
    return mine


def work(places, number, seed):
    """Work, as the function of a thread."""
    build(places, number, seed)
    if number % 2:
        wait(places, number)
    else:
        places.ready.release()


def main():
    """Start the threads one after another, write the truth, evaluate."""
    rng, count = random.Random(int(sys.argv[1])), int(sys.argv[2])
    gc.collect()
    gc.disable()
    os.read(0, 1)
    references.places = places = Places(count)
    places.end.acquire()
    for number in range(count):
        thread = threading.Thread(target=work, args=(places, number, rng.random()))
        thread.daemon = True
        thread.start()
        places.ready.acquire()
        if not number % 2:
            thread.join()
    found = [one for head in places.heads for one in references.walk_links(head)]
    truth = {"links": [id(one) for one in rng.sample(found, 40)], "held": list(filter(None, places.held))}
    truth["planted"] = places.planted
    del found, thread
    with open(sys.argv[3], "w") as file:
        # json.dump() leaves cycles behind.
        file.write(json.dumps(truth))
    del file, truth, places.planted
    references.answer()


if __name__ == "__main__":
    main()
