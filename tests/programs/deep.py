"""deep.py DEPTH: nested calls, each with a list of its own in a local variable; the innermost waits."""

import signal
import sys


class Item:
    """An object that only a frame keeps."""


def call(left):
    """Keep a list, and call the next level."""
    own = [Item()]
    if left:
        call(left - 1)
    signal.pause()
    return own


sys.setrecursionlimit(1 << 30)
call(int(sys.argv[1]))
