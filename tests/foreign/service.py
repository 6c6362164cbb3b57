"""A service with a cache, orders and waiting threads. It prints how much it holds, and stops itself.

Standard output: one line of JSON. Standard error: malloc_stats(), then sys._debugmallocstats().
"""

import collections
import ctypes
import gc
import json
import os
import signal
import sys
import threading
import time

CACHE = {
    f"key-{number}": {"id": number, "name": f"name {number}", "tags": [str(number), 1.5]} for number in range(1500)
}


class Order:
    """An order with some lines and some bytes."""

    def __init__(self, number):
        self.number, self.lines, self.data = number, [number] * (number % 7), bytes(number % 900)


ORDERS = [Order(number) for number in range(2000)]


def waits(lock):
    """Keep a buffer while the lock is held by another."""
    kept = bytearray(300000)
    with lock:
        return kept


def main():
    """Wait in two threads, and print the contents."""
    lock = threading.Lock()
    with lock:
        for _ in range(2):
            threading.Thread(target=waits, args=(lock,), daemon=True, name="waiter").start()
        time.sleep(0.5)
        gc.collect()
        counts = collections.Counter(type(one).__qualname__ for one in gc.get_objects())
        said = {
            "page": os.sysconf("SC_PAGESIZE"),
            "pid": os.getpid(),
            "lists": counts["list"],
            "orders": counts["Order"],
        }
        print(json.dumps(said), flush=True)
        # Objects that these need are made before they count.
        pid, stop, malloc_stats = os.getpid(), int(signal.SIGSTOP), ctypes.CDLL(None).malloc_stats
        malloc_stats()
        sys._debugmallocstats()
        os.kill(pid, stop)
        signal.pause()


main()
