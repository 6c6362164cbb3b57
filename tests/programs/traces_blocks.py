"""Makes the given number of strings while tracemalloc is on."""

import signal
import sys
import tracemalloc

tracemalloc.start()
rows = []
for number in range(int(sys.argv[1])):
    rows.append(str(number) + "x")
signal.pause()
