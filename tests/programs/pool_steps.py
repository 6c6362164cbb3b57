"""pool_steps.py SEED: at each line of standard input some objects are made and others deleted; prints
sys._debugmallocstats().

Nothing is allocated between the figures and the wait for the next line: everything needed exists before.
"""

import random
import sys


def main():
    """Rest, make a step, print."""
    generator = random.Random(int(sys.argv[1]))
    held, letter = [], bytearray(1)
    tell, wait = sys._debugmallocstats, sys.stdin.buffer.raw.readinto
    while True:
        tell()
        if not wait(letter):
            return
        count = generator.randrange(100, 30000)
        size = generator.choice((20, 60, 200, 450))
        held.extend(bytes(bytearray(generator.randrange(1, size))) for _ in range(count))
        first = generator.randrange(len(held))
        del held[first : first + generator.randrange(count)]


main()
