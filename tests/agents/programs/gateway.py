"""A large table that does not change, and a small list that grows by 2 MB a second."""

import time

routes = {f"/api/v1/resource/{number}": bytearray(2000) for number in range(40_000)}
audit = []
print("READY", flush=True)
while True:
    audit.extend(bytearray(1000) for _ in range(200))
    time.sleep(0.1)
