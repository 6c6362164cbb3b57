"""Previews of large arrays are slices: each keeps the whole array (numpy/numpy#10273, #15746, #19091)."""

import sys

import numpy as np


class Preview:
    def __init__(self, name, head):
        self.name = name
        self.head = head


def load(i):
    return np.random.default_rng(i).random(500_000)  # 4 MB each


previews = []
for i in range(60):
    data = load(i)
    previews.append(Preview(f"file-{i:03d}", data[:10]))
del data
print("READY", flush=True)
sys.stdin.readline()
