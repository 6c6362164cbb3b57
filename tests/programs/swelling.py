"""Grows on request, by small steps at a steady rate: RATE bytes a second up to MOST bytes, then rests.

argv: RATE MOST. All its memory is held by a list, `cargo`, of one kind of object, so that an answer can name it.
"""

import sys
import time

STEP = 256 << 10


class Ballast:
    """The memory of one step."""

    def __init__(self) -> None:
        """Write to each page."""
        self.bytes = b"\1" * STEP


rate, most = float(sys.argv[1]), int(sys.argv[2])
cargo = []
print("ready", flush=True)
sys.stdin.readline()
began = time.monotonic()
while len(cargo) * STEP < most:
    cargo.append(Ballast())
    time.sleep(max(0.0, began + len(cargo) * STEP / rate - time.monotonic()))
print("full", flush=True)
sys.stdin.readline()
