"""Hold objects of MIB MiB, and read the clock without a rest: large_clock.py MIB TABLE.

TABLE is mapped shared: one line, as tests/programs/checking.c writes them, with the longest time in nanoseconds between
two readings of the clock. A reader may set it to 0.
"""

from __future__ import annotations

import gc
import mmap
import struct
import sys
import time

NAME, ROUNDS, LONGEST = 0, 32, 56
# As many lines as the reader's table has (tests/harm/table.py), in whole pages.
SIZE = 8192
# Bytes of a row: a dict, its keys, a str, an int and a list.
ROW = 700


def rows(mebibytes: int) -> list[dict[str, object]]:
    """Return that much of a program's ordinary data."""
    return [
        {"number": n, "name": f"row {n}", "values": [n] * 20, "rest": bytes(150)}
        for n in range((mebibytes << 20) // ROW)
    ]


def watch(table: mmap.mmap) -> None:
    """Read the clock until killed."""
    put, get, now = struct.pack_into, struct.unpack_from, time.monotonic_ns
    count, before = 0, now()
    while True:
        time_now = now()
        if time_now - before > get("<Q", table, LONGEST)[0]:
            put("<Q", table, LONGEST, time_now - before)
        before = time_now
        count += 1
        if not count & 1023:
            put("<Q", table, ROUNDS, count)


def main() -> None:
    """Allocate, then watch."""
    gc.disable()
    held = rows(int(sys.argv[1]))
    with open(sys.argv[2], "a+b") as file:
        file.truncate(SIZE)
        table = mmap.mmap(file.fileno(), SIZE)
    struct.pack_into("<32s", table, NAME, b"clock")
    watch(table)
    del held


if __name__ == "__main__":
    main()
