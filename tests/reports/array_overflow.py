"""Foreign code writes 20 bytes past the end of an array; malloc aborts later (neuronsimulator/nrn#1303)."""

import ctypes
import sys

import numpy as np

frames = [np.zeros(30, dtype="u1") for _ in range(50)]
labels = [f"frame {n}" for n in range(50)]
victim = frames[20]
big = [np.zeros(1500, dtype="u1") for _ in range(60)]
guilty = big[33]
ctypes.memset(guilty.ctypes.data, 0x41, guilty.nbytes + 20)
print("READY", flush=True)
sys.stdin.readline()
for n in range(60):
    big[n] = None
    np.zeros(1500 * 2, dtype="u1")
keep = [np.zeros(5000 + n, dtype="u1") for n in range(100)]
