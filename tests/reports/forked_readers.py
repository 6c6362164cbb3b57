"""A parent loads a large table and forks workers that only read it (pytorch/pytorch#13246): reading changes
reference counts, and so the workers' pages become private."""

import os
import signal
import sys

table = [(f"key-{n}", n * 1.5) for n in range(300_000)]
read, written = os.pipe()
for worker in range(3):
    if os.fork() == 0:
        # The first one is idle.
        if worker:
            total = sum(value + len(key) for key, value in table)
        os.write(written, b".")
        signal.pause()
for _ in range(3):
    os.read(read, 1)
print("READY", flush=True)
sys.stdin.readline()
