"""A Python process with one list of floats: many blocks in little memory.

Usage: target_floats.py [FLOATS]
Prints one line of JSON when it is ready: {"pid", "blocks"}, and beats as target_python.py does.
"""

from __future__ import annotations

import gc
import json
import os
import sys

from target_python import beat


def main() -> None:
    """Fill the list, print the line, and beat until the input ends."""
    gc.disable()
    floats = [float(number) for number in range(int(sys.argv[1]) if len(sys.argv) > 1 else 80_000_000)]
    print(json.dumps({"pid": os.getpid(), "blocks": sys.getallocatedblocks()}), flush=True)
    beat()
    # Freeing millions of objects one by one would take longer than measuring them.
    assert floats
    os._exit(0)


if __name__ == "__main__":
    main()
