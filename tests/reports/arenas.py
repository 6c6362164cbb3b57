"""Threads split arrays into many small pieces and drop them; small results stay (dask/dask#3530)."""

import concurrent.futures
import gc
import sys

import numpy as np

kept = []


def chunk(i):
    big = np.random.default_rng(i).integers(0, 50, 200_000)
    pieces = [big[big == k].copy() for k in range(50)]  # 50 pieces of about 32 KB
    kept.append(pieces[i % 50][:2000].copy())  # 16 KB stay
    return pieces


def main():
    for _ in range(6):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            lists = list(pool.map(chunk, range(40)))
        del lists
        gc.collect()
    print("READY", flush=True)
    sys.stdin.readline()


main()
