"""A master that forks workers, as gunicorn does: docs/tutorial-forks.md finds out why they do not share its table.

Each worker answers requests, which read some rows of the table, and the garbage collector runs from time to time.
Usage: workers.py [--rows=N] [--workers=2] [--freeze] [--seconds=3600]
--freeze follows the tutorial's advice. It prints "ready" when every worker has answered its requests.
"""

from __future__ import annotations

import argparse
import gc
import os
import signal

# A request reads one in this many rows.
READ = 50


class Row:
    """A row of the table."""

    def __init__(self, number: int) -> None:
        self.name, self.price, self.tags = f"item {number}", number * 1.5, [number, number + 1]


def answer(table: dict[str, Row]) -> float:
    """Add up some prices, as a request does."""
    return sum(table[f"key {number}"].price for number in range(len(table) // READ))


def main() -> None:
    """Load the table, fork the workers, and wait for them."""
    parser = argparse.ArgumentParser(description="A master that loads a table and forks workers.")
    parser.add_argument("--rows", type=int, default=100_000, help="how many rows to load (100,000)")
    parser.add_argument("--workers", type=int, default=2, help="how many workers to fork (2)")
    parser.add_argument("--freeze", action="store_true", help="follow the tutorial's advice")
    parser.add_argument("--seconds", type=int, default=3600, help="how long to live at most (3600)")
    options = parser.parse_args()
    signal.alarm(options.seconds)
    table = {f"key {number}": Row(number) for number in range(options.rows)}
    if options.freeze:
        gc.collect()
        gc.freeze()
    done, report = os.pipe()
    for _ in range(options.workers):
        if os.fork() == 0:
            signal.alarm(options.seconds)
            answer(table)
            gc.collect()
            os.write(report, b".")
            signal.pause()
    for _ in range(options.workers):
        os.read(done, 1)
    print("ready", flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
