"""A dict of a module that serves as a cache without a limit: the commonest leak."""

import sys


class Entry:
    def __init__(self, n):
        self.body = bytes(4096)


cache = {n: Entry(n) for n in range(20_000)}
print("READY", flush=True)
sys.stdin.readline()
