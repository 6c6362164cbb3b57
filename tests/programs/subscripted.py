"""Hold one item of a dict, and four items of another dict: ``subscripted.py SIZE``, in bytes."""

import sys

size = int(sys.argv[1])
SINGLE = {"only": [bytes(size) for _ in range(1000)], "number": 1}
ALIKE = {key: [bytes(size) for _ in range(500)] for key in range(4)}
sys.stdin.readline()
