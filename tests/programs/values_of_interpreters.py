"""Make strings in interpreters with their own pools: values_of_interpreters.py SEED COUNT; CPython 3.12 and later.

Every interpreter has the same COUNT values, each once, and some of them twice; the number of these, over all
interpreters, is printed.
"""

import os
import random
import sys

if sys.version_info >= (3, 13):
    import _interpreters as interpreters

    run, kind = interpreters.exec, ("isolated",)
else:
    import _xxsubinterpreters as interpreters

    run, kind = interpreters.run_string, ()

rng = random.Random(int(sys.argv[1]))
count, twice, numbers = int(sys.argv[2]), 0, []
ONE = "[f'repeated value {k:09d} ' * 8 for k in range(%d)]"
made = f"kept = {ONE}\nkept += {ONE}"
for _ in range(rng.randrange(2, 4)):
    again = rng.randrange(count // 20)
    twice += again
    numbers.append(interpreters.create(*kind))
    run(numbers[-1], made % (count, again))
sys.stderr.write(f"{twice}\n")
sys.stderr.flush()
os.read(0, 1)
