"""Blocks of malloc that two objects lead to, each through its own table: neither table alone keeps them.

Usage: shared_blocks.py COUNT SIZE. The objects are `one` and `other`.
"""

import ctypes
import signal
import sys

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]


def table(blocks):
    """Return an object that points to a block with the addresses of the blocks."""
    rows = (ctypes.c_void_p * len(blocks))(*blocks)
    at = libc.malloc(ctypes.sizeof(rows))
    ctypes.memmove(at, rows, ctypes.sizeof(rows))
    return (ctypes.c_void_p * 2)(at)


def two_tables(count, size):
    """Return two objects that lead to the same blocks."""
    blocks = [libc.malloc(size) for _ in range(count)]
    return table(blocks), table(blocks)


one, other = two_tables(int(sys.argv[1]), int(sys.argv[2]))
signal.pause()
