"""Hold buffers that look like objects, then pause: lookalikes.py COUNT.

The items of each array look like a bytearray's fields, whose buffer is a real object. Plain enough for Python 2.7.
"""

import array
import signal
import sys


class Fake(bytearray):
    """A class without live objects at the pause."""

    __slots__ = ()


class Real(list):
    """The class to which the items of the arrays point; its objects own a block."""

    __slots__ = ()


COUNT = int(sys.argv[1])
REAL = [Real([number] * 7) for number in range(COUNT)]
BEFORE = [0] * ((sys.getsizeof(Fake()) - Fake().__sizeof__()) // 8)
ITEMS = [array.array("L", BEFORE + [1, id(Fake), 5] + [id(real)] * 4) for real in REAL]
print(COUNT)
sys.stdout.flush()
signal.pause()
