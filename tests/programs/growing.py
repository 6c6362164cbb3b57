"""Leak: growing.py COUNT. Rests; at each line COUNT objects more hang on a list, and it rests again."""

import os
import sys


class Leaked:
    """What is never dropped."""

    def __init__(self, number):
        """Own a little text."""
        self.text = f"leaked {number}"


class Keeper:
    """What holds it."""

    def __init__(self):
        """Begin with nothing."""
        self.kept = []


def main():
    """Grow at each line."""
    count = int(sys.argv[1])
    while os.read(0, 1):
        keeper.kept.extend(Leaked(number) for number in range(count))


keeper = Keeper()
if __name__ == "__main__":
    main()
