"""Holds linked C structures: parsers of expat, each with the names and attributes of its input.

It also has a class with many instances, and numbers that do not look like addresses. Prints its process id.

argv: the number of parsers, and the bytes of numbers.
"""

import os
import pyexpat
import random
import sys


class Planted:
    """A class of the program."""

    def __init__(self, number):
        self.number = number


def parser(number):
    """Return a parser that has read 200 names."""
    made = pyexpat.ParserCreate()
    names = "".join(f'<name{number}_{index} attribute{index}="1"/>' for index in range(200))
    made.Parse(f"<all>{names}", False)
    return made


kept = [Planted(number) for number in range(1000)]
parsers = [parser(number) for number in range(int(sys.argv[1]))]
# The highest byte but one of each eight is 0xAA: no address of user space.
numbers = bytearray(random.Random(1).getrandbits(8 * (1 << 16)).to_bytes(1 << 16, "little") * (int(sys.argv[2]) >> 16))
numbers[5::8] = b"\xaa" * (len(numbers) // 8)
numbers[7::8] = b"\xaa" * (len(numbers) // 8)
print(os.getpid(), flush=True)
os.read(0, 1)
