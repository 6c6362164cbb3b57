"""A function whose variables retain few and many bytes: retaining.py COUNT SIZE."""

import sys

KEPT = ["kept elsewhere %d" % number for number in range(1000)]


def serve(count, size):
    """Rest with the sessions of many clients."""
    sessions = {number: {"state": b"s" * size + b"%d" % number} for number in range(count)}
    elsewhere = [KEPT]
    sys.stdin.readline()
    return sessions, elsewhere


serve(int(sys.argv[1]), int(sys.argv[2]))
