"""Holds the given number of MiB that it never touches, and a few that it does."""

import signal
import sys

held = bytes(int(sys.argv[1]) << 20)
used = b"x" * (1 << 20)
signal.pause()
