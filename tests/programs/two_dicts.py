"""Two dicts of equal size, with the given number of texts."""

import signal
import sys

first = {number: str(number) * 3 for number in range(int(sys.argv[1]))}
second = {number: str(number) * 3 for number in range(int(sys.argv[1]))}
signal.pause()
