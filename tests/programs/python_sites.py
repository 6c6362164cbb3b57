"""Allocates blocks that stay, and prints the address and the traceback of each call: a line of JSON each."""

import json
import os
import sys
import threading
import traceback

kept = []


def report(block, stack):
    kept.append(block)
    frames = [[frame.filename, frame.name, frame.lineno] for frame in stack]
    print(json.dumps([id(block), sys.getsizeof(block), frames]))
    sys.stdout.flush()


def plain(size):
    report(bytes(size), traceback.extract_stack())  # both calls are on one line


class Holder:
    def method(self, size):
        return [plain(size + number) for number in range(2)]


def generated():
    for size in (70000, 80000):
        yield Holder().method(size)


def nested(depth):
    if depth:
        nested(depth - 1)
    else:
        plain(90000)


def späte_Funktion(size):
    plain(size)


def in_thread():
    nested(3)


plain(100000)
list(generated())
nested(40)
sorted([2, 1], key=lambda size: plain(110000 + size) or 0)
späte_Funktion(60000)
exec(compile("\n\nplain(120000)\n", "made_up.py", "exec"))
thread = threading.Thread(target=in_thread)
thread.start()
thread.join()
for number in range(50):
    # Deleted code objects, whose places others take.
    source = "\n" * number + f"def made_{number}(size):\n    plain(size)\nmade_{number}(130000)\n"
    exec(compile(source, f"made_{number}.py", "exec"), {"plain": plain})
# The blocks stay.
os._exit(0)
