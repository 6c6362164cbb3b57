"""Loads a library of C++, lets it fill its containers, and waits: loads_library.py LIBRARY SEED."""

import ctypes
import sys

LIBRARY = ctypes.CDLL(sys.argv[1])
LIBRARY.fill(ctypes.c_long(int(sys.argv[2])))
sys.stdin.readline()
