"""Allocate at random lines, write tracemalloc's figures for each line to FILE, and rest: SEED COUNT FRAMES FILE.

FILE is written by a forked child, which has the same traces but its own later objects.
"""

import gc
import json
import os
import random
import sys
import tracemalloc

SEED, COUNT, FRAMES, FILE = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
# Allocations at this line of the file and later differ between the two processes.
LAST = next(n for n, line in enumerate(open(__file__), 1) if line.startswith("child = "))
rng = random.Random(SEED)
tracemalloc.start(FRAMES)


def texts(count):
    return [str(number) * 3 for number in range(count)]


def blocks(count):
    return [bytes(rng.randrange(1, 5000)) for _ in range(count)]


def dicts(count):
    return [{number: [number]} for number in range(count)]


def large(count):
    return [bytearray(rng.randrange(1 << 17, 1 << 20)) for _ in range(count % 7)]


def instances(count):
    class Own:
        def __init__(self, number):
            self.number = number

    return [Own(number) for number in range(count)]


gc.disable()
kept = []
for _ in range(40):
    made = rng.choice([texts, blocks, dicts, large, instances])(rng.randrange(1, COUNT))
    if rng.random() < 0.7:
        kept.append(made)
places = {}
for made in kept:
    place = rng.choice(made) if made else None
    trace = tracemalloc.get_object_traceback(place) if place is not None else None
    if trace:
        # The most recent call comes last since 3.7.
        frame = trace[-1] if sys.version_info >= (3, 7) else trace[0]
        places[id(place)] = f"{frame.filename}:{frame.lineno}"
del made, place, trace
try:
    import _testcapi
except ImportError:
    _testcapi = None
if hasattr(_testcapi, "tracemalloc_track"):
    # Allocations of others, in their own domains.
    for number in range(rng.randrange(1, 50)):
        _testcapi.tracemalloc_track(rng.randrange(1, 4), 0x10000 + 16 * number, rng.randrange(1, 9999))
    # Blocks of the same addresses, as of another device. Such a domain is in the same bucket of the table (3.6, 3.7).
    for address in places:
        _testcapi.tracemalloc_track(1 << 24, address, rng.randrange(1, 9999))
gc.collect()
child = os.fork()
if not child:
    snapshot = tracemalloc.take_snapshot()
    lines = {}
    for row in snapshot.statistics("lineno"):
        frame = row.traceback[0]
        lines[f"{frame.filename}:{frame.lineno}"] = [row.count, row.size]
    with open(FILE, "w") as file:
        json.dump({"lines": lines, "places": places, "last": LAST}, file)
    os._exit(0)
os.waitpid(child, 0)
os.read(0, 1)
