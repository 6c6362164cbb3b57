"""Keep known objects in variables, threads, closures and classes, and wait: the same on every machine.

With PYTHONHASHSEED=0 every set and dict has the same order in every run.
"""

from __future__ import annotations

import array
import collections
import gc
import signal
import threading
from typing import Callable

CACHE = {
    f"key-{number}": {"id": number, "name": f"name {number}", "tags": [str(number), 1.5]} for number in range(3000)
}
RECENT = collections.deque((number, f"item {number}") for number in range(500))
NUMBERS = array.array("d", range(60_000))
TEXTS = [f"{number % 40:04}" * 50 for number in range(40_000)]
LARGE = [bytes(300_000), bytearray(900_000)]


class Order:
    """An order with some lines and some bytes."""

    pending: list[Order] = []

    def __init__(self, number: int) -> None:
        self.number, self.lines, self.data = number, [number] * (number % 7), bytes(number % 900)


ORDERS = [Order(number) for number in range(4000)]
Order.pending.extend(Order(number) for number in range(700))


def closure() -> Callable[[], int]:
    """Return a function that keeps texts."""
    texts = [f"kept by a function {number}" for number in range(900)]
    return lambda: len(texts)


COUNT = closure()


def waits(lock: threading.Lock, number: int) -> None:
    """Keep a buffer while another thread has the lock."""
    kept = bytearray(300_000 + 100_000 * number)
    with lock:
        del kept


def lose() -> None:
    """Leave a cycle that the collector does not examine any more."""
    first: list[object] = [bytes(2000)]
    second: list[object] = [first, bytes(3000)]
    first.append(second)


def main() -> None:
    """Wait in three threads and in the main thread."""
    lock = threading.Lock()
    with lock:
        threads = [threading.Thread(target=waits, args=(lock, number), daemon=True) for number in range(3)]
        for thread in threads:
            thread.start()
        gc.collect()
        gc.disable()
        lose()
        signal.pause()


main()
