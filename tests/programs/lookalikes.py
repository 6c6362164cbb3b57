"""Hold buffers that look like objects, then pause: lookalikes.py COUNT.

The items of each array read as a bytearray's fields, whose buffer is an object that really is one. Plain enough for
Python 2.7.
"""

import array
import signal
import sys


class Fake(bytearray):
    """No object of it lives when the program pauses."""

    __slots__ = ()


class Real(list):
    """What the items of the arrays point to; it owns a block itself."""

    __slots__ = ()


COUNT = int(sys.argv[1])
REAL = [Real([number] * 7) for number in range(COUNT)]
BEFORE = [0] * ((sys.getsizeof(Fake()) - Fake().__sizeof__()) // 8)
ITEMS = [array.array("L", BEFORE + [1, id(Fake), 5] + [id(real)] * 4) for real in REAL]
print(COUNT)
sys.stdout.flush()
signal.pause()
