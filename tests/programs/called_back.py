"""Threads that wait: called_back.py COUNT BYTES.

One calls Python from C, from Python, from C; COUNT threads wait at one line, each with BYTES bytes of its own and some
shared ones.
"""

from __future__ import annotations

import signal
import sys
import threading

COMMON = [bytes(100_000)]
ready = threading.Barrier(int(sys.argv[1]) + 1)


def wait(number: int, common: list[bytes]) -> None:
    """Wait for ever."""
    word, own = f"worker {number}", bytearray(int(sys.argv[2]))
    ready.wait()
    threading.Event().wait()
    del word, own, common


def compare(item: int) -> int:
    """Wait inside a callback of sorted()."""
    here = {"item": item}
    return inner(here)


def inner(here: dict[str, int]) -> int:
    """Wait inside a callback of map(), within that."""
    return max(map(last, [here]))


def last(here: dict[str, int]) -> int:
    """Wait for ever."""
    signal.pause()
    return len(here)


for number in range(int(sys.argv[1])):
    threading.Thread(target=wait, args=(number, COMMON), daemon=True).start()
ready.wait()
sorted([3], key=compare)
