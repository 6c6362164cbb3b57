"""Texts at the places of earlier objects, with equal ends: documented.py COUNT. Prints nothing; waits for input."""

from __future__ import annotations

import os
import sys


class Past:
    """An object of 48 bytes in 3.12."""


# They end within the reference count, before the type.
texts = [f"a text of a type, in a place {number:06}" for number in range(int(sys.argv[1]))]
past = [Past() for _ in texts]
del past
types = [type("Documented", (), {"__doc__": text}) for text in texts]
os.read(0, 1)
