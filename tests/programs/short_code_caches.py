"""Short code objects whose caches begin where the lists of two items were: the word after a cache is stale.

Usage: short_code_caches.py COUNT. Writes "holder:held" for each of COUNT pairs of dicts to standard output, as numbers.
CPython 3.8 to 3.10 allocate a cache of one byte an instruction for code that has run 1,024 times.
"""

import os
import sys

RUNS = 1100
SOURCE = "def f():\n return len"


def pairs(count, lists):
    """Return dicts that each hold another one, to which a list in ``lists`` refers, too."""
    made = []
    for _ in range(count):
        made.append({1j: {}})
        # A list that is made with its two items has no room for more.
        lists.append([None, made[-1][1j]])
    return made


def functions(count):
    """Return functions that have not run yet, each with its own code."""
    made = []
    for _ in range(count):
        space = {"len": len}
        exec(SOURCE, space)
        made.append(space["f"])
    return made


lists = []
held = functions(3 * int(sys.argv[1]))
owners = pairs(int(sys.argv[1]), lists)
del lists
for function in held:
    for _ in range(RUNS):
        function()
print(" ".join(f"{id(one)}:{id(one[1j])}" for one in owners), flush=True)
os.read(0, 1)
