"""Leak: growing.py COUNT. Rests; at each line it adds COUNT objects to a list, and rests again."""

import os
import sys


class Leaked:
    """An object that is never dropped."""

    def __init__(self, number):
        """Own a little text."""
        self.text = f"leaked {number}"


class Keeper:
    """The object with the list."""

    def __init__(self):
        """Begin with an empty list."""
        self.kept = []


def main():
    """Grow at each line."""
    count = int(sys.argv[1])
    while os.read(0, 1):
        keeper.kept.extend(Leaked(number) for number in range(count))


keeper = Keeper()
if __name__ == "__main__":
    main()
