"""Nested calls of every kind in several threads; prints the stacks of sys._current_frames(), then rests.

Usage: calls.py SEED DEPTH THREADS. The output is one line of JSON on standard error, {pthread_self(): [[name, file,
line], innermost first]}. Runs on every release from 2.7 on.
"""

import ctypes
import json
import random
import sys
import threading
import time

rng = random.Random(int(sys.argv[1]))
depth, threads = int(sys.argv[2]), int(sys.argv[3])
libc = ctypes.CDLL(None)
COMPARE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
done = threading.Event()


def plain(left):
    return go_on(left)


def longer(
    left,
):
    several = [
        left,
        left,
    ]
    return go_on(
        several[0],
    )


def generator(left):
    yield 0
    yield go_on(left)


def generated(left):
    return [str(value) for value in generator(left)]


def by_key(left):
    return sorted([left], key=lambda value: go_on(value))


def mapped(left):
    return list(map(go_on, [left]))


def by_c(left):
    def compare(one, other):
        if not done.is_set():
            go_on(left)
        return 0

    values = (ctypes.c_int * 2)(2, 1)
    libc.qsort(values, 2, 4, COMPARE(compare))


def executed(left):
    exec(compile("\n\ngo_on(left)", "<made up>", "exec"), {"go_on": go_on, "left": left})


def closing(left):
    class Closing:
        def __del__(self):
            go_on(left)

    held = Closing()
    del held


def imported(left):
    class Body:
        value = go_on(left)


class Callable:
    def __init__(self, left):
        self.left = left

    def __call__(self):
        return go_on(self.left)

    def __getattr__(self, name):
        return go_on(self.left)

    @classmethod
    def of_class(cls, left):
        return go_on(left)

    def __lt__(self, other):
        return go_on(self.left)


def called(left):
    return Callable(left)()


def looked_up(left):
    return Callable(left).nothing


def compared(left):
    return Callable(left) < Callable(left)


KINDS = [
    plain,
    longer,
    generated,
    by_key,
    mapped,
    by_c,
    executed,
    closing,
    imported,
    called,
    looked_up,
    compared,
    Callable.of_class,
]


def go_on(left):
    return rng.choice(KINDS)(left - 1) if left else rest()


def rest():
    if threading.current_thread() is not main:
        done.wait()
        return
    try:
        # On one line: the frame is the same before and after.
        return report(), sys.stdin.readline()
    finally:
        done.set()


def name_of(code):
    return getattr(code, "co_qualname", code.co_name)


def stacks():
    """Return all frames except those of this report."""
    found = {}
    for ident, frame in sys._current_frames().items():
        rows = found[ident] = []
        while frame is not None:
            rows.append([name_of(frame.f_code), frame.f_code.co_filename, frame.f_lineno])
            frame = frame.f_back
        if ident == main.ident:
            del rows[:2]
    return found


def others(found):
    return [rows for ident, rows in found.items() if ident != main.ident]


def waits(rows):
    return rows[0][1] != __file__ and rows[0][0].endswith("wait")


def report():
    """Print the report once nothing changes any more."""
    before, found = None, stacks()
    while before != found or len(found) <= threads or not all(map(waits, others(found))):
        time.sleep(0.05)
        before, found = found, stacks()
    sys.stderr.write(json.dumps(found) + "\n")
    sys.stderr.flush()


main = threading.current_thread()
sys.setrecursionlimit(100000)
for _ in range(threads):
    thread = threading.Thread(target=go_on, args=(rng.randrange(depth),))
    thread.daemon = True
    thread.start()
# A callback of C's in each examined stack.
by_c(depth)
