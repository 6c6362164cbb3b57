"""Hold a chain of nested dicts in which no key repeats the one before: ``nested_dicts.py COUNT``."""

import sys

chain = None
for number in range(int(sys.argv[1])):
    chain = {f"key{number % 7}": chain}
sys.stdin.readline()
