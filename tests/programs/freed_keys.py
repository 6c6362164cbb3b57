"""Lose a list like a library that takes a reference: freed_keys.py COUNT.

Dicts that had it are gone, and the interpreter keeps their keys for the next dicts. Prints nothing; waits for standard
input.
"""

import ctypes
import os
import sys


def lose(count: int) -> None:
    """Lose a list of ``count`` strings of 1,000 bytes."""
    lost = ["x" * 1000 + str(number) for number in range(count)]
    had = [{"key": lost} for _ in range(20)]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(lost))
    del had


lose(int(sys.argv[1]))
os.read(0, 1)
