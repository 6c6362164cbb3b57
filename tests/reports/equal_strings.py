"""Rows of a driver: each value has its own string, though few are different."""

import sys

rows = []
for n in range(120_000):
    rows.append(("".join(["DE", "-", "BERLIN"]), "".join(["status=", "ok" if n % 3 else "failed"]), float(n % 10), n))
print("READY", flush=True)
sys.stdin.readline()
